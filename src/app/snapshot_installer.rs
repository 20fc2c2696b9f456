//! Installs a new file: its snapshot, with the state that outlives a snapshot.

pub(super) mod running_file;

use super::GatewayState;
use super::certificates::CertificateOrders;
use super::key_sets::KeyFollower;
use super::tls_listeners::TlsListeners;
use crate::admin::Door;
use crate::admin::answers::settings::ChangedSetting;
use crate::config::diff::{FileChange, Outline, diff};
use crate::config::{Boot, Compiled, Files, Identities, Report};
use crate::reload::{self, Watcher};
use crate::snapshot::Snapshot;
use crate::store::Backend;
use crate::telemetry::metrics::Metrics;
use crate::upstream::keeper::{self, Kept};
use crate::upstream::resolution::{self, Resolutions};
use crate::upstream::{Registry, ServerUrl, Upstream, demo};
use running_file::{FileInForce, RunningConfiguration};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Watches the file and the files that it names, if there is one, until the gateway leaves.
pub(super) fn start_reload(
    file: Option<PathBuf>,
    files: Files,
    identities: Arc<Identities>,
    trigger: &reload::Trigger,
    installer: SnapshotInstaller,
) {
    installer.count_customers();
    tokio::spawn(Arc::clone(&installer.tls).watch_ends());
    if let Some(file) = file {
        let (drain, tls) = (installer.shared.drain.clone(), Arc::clone(&installer.tls));
        let leaving = drain.clone();
        let watching = Watcher::new(file, files, identities, trigger.clone()).run(installer);
        tokio::spawn(async move {
            tokio::select! {
                () = watching => {}
                // The file may be meant for a successor.
                () = leaving.leaving() => {}
            }
        });
        tokio::spawn(async move { tls.follow_lists(&drain).await });
    }
}

/// Installs a new file.
pub(super) struct SnapshotInstaller {
    pub(super) boot: Boot,
    pub(super) outline: Arc<Outline>,
    /// The files from which the configuration in force was read.
    pub(super) files: Files,
    pub(super) shared: GatewayState,
    pub(super) tls: Arc<TlsListeners>,
    pub(super) servers: ServerFollower,
    pub(super) keys: KeyFollower,
    pub(super) orders: Arc<CertificateOrders>,
    pub(super) running: Arc<RunningConfiguration>,
    pub(super) door: Arc<Door>,
}

impl reload::ReloadTarget for SnapshotInstaller {
    async fn apply(&mut self, compiled: Compiled) {
        // Other members and other numbers of customers change no setting.
        let is_setting = !compiled.files.differ_in_lists(&self.files);
        let generation = self.shared.snapshots.load().generation + u64::from(is_setting);
        let file = FileInForce::of(&compiled, generation);
        let Compiled {
            boot,
            mut snapshot,
            outline,
            identities,
            offers,
            orders,
            key_sets,
            files,
            ..
        } = compiled;
        snapshot.generation = generation;
        self.files = files;
        if let Err(error) = start_demo(&snapshot).await {
            tracing::warn!("the demo upstream cannot start: {error}");
        }
        self.servers.prepare(&mut snapshot, &boot).await;
        self.keys.prepare(key_sets).await;
        let changes = self.changes(&outline).await;
        self.boot.listen.keep_alive.set(outline.keep_alive);
        self.outline = outline;
        self.boot.store.rotate(&boot.store);
        self.shared.memory.keep_room_for(snapshot.limits());
        if let Backend::Redis(target) = &self.boot.store.source {
            target.try_for(snapshot.limits());
        }
        let listeners = &boot.listen.listeners;
        self.tls.install(snapshot, listeners, offers, identities);
        self.count_customers();
        self.shared.metrics.reloaded(generation);
        if let Some(admin) = &boot.admin {
            self.door.install(Arc::clone(&admin.access));
        }
        let noted = changes.iter().map(|change| ChangedSetting {
            subject: change.subject.clone(),
            what: change.what.clone(),
            restart: change.restart,
        });
        self.running.installed(file, noted.collect());
        log_changes(&changes, is_setting.then_some(generation));
        self.orders.want(orders).await;
    }

    fn in_force(&self) -> Option<&Arc<Outline>> {
        Some(&self.outline)
    }

    fn reading(&mut self) {
        self.running.reading();
    }

    fn refused(&mut self, report: &Report) {
        self.running.refused(report);
        self.tls.file_refused();
        self.shared.metrics.reload_failed();
    }

    fn signalled(&mut self) {
        self.orders.hurry();
        self.running.answered();
    }
}

impl SnapshotInstaller {
    /// The differences from the installed file. Lists of millions of members would hold up this thread, which accepts
    /// connections and serves the admin port.
    async fn changes(&self, outline: &Arc<Outline>) -> Vec<FileChange> {
        let (before, after) = (Arc::clone(&self.outline), Arc::clone(outline));
        let boot = self.boot.clone();
        let compared = spawn_blocking(move || diff(&before, &after, &boot)).await;
        compared.unwrap_or_default()
    }

    /// States in the metrics how many customers each group has.
    fn count_customers(&self) {
        let groups = self.outline.groups.iter();
        let groups = groups.filter_map(|group| {
            let many = i64::try_from(group.named()?.len()).ok()?;
            Some((group.name.to_string(), many))
        });
        let of_groups: BTreeMap<String, i64> = groups.collect();
        self.shared.metrics.customers(of_groups);
    }
}

/// Logs what a new file changes, and its generation. A change of lists has none.
fn log_changes(changes: &[FileChange], generation: Option<u64>) {
    let indent = match generation {
        Some(generation) => {
            tracing::info!("reloaded: generation {generation} is in force");
            "  "
        }
        None => "",
    };
    for change in changes {
        tracing::info!("{indent}{change}");
    }
    if changes.is_empty() && generation.is_none() {
        tracing::info!("lists of members or numbers were read again: nothing in force has changed");
    }
}

/// Keeps the servers of all upstreams up to date: their states over reloads, and the addresses of their names.
pub(super) struct ServerFollower {
    registry: Registry,
    kept: Arc<Kept>,
    resolutions: Resolutions,
}

impl ServerFollower {
    pub(super) fn new(metrics: &Arc<Metrics>) -> Self {
        let kept = Arc::<Kept>::default();
        tokio::spawn(keeper::keep(Arc::clone(&kept), Arc::clone(metrics)));
        Self {
            registry: Registry::default(),
            kept,
            resolutions: Resolutions::new(resolution::by_system(), Arc::clone(metrics)),
        }
    }

    /// Gives the upstreams of a new snapshot their states, and waits a moment for addresses of new names.
    pub(super) async fn prepare(&mut self, snapshot: &mut Snapshot, boot: &Boot) {
        let secrets = Arc::clone(&boot.secrets);
        let shown = move |name: &str| secrets.hide(name).into_owned();
        self.resolutions.show_as(Arc::new(shown));
        let names = self.registry.unresolved(&snapshot.upstreams);
        let found = self.resolutions.first(names).await;
        self.registry.adopt(&mut snapshot.upstreams, &found);
        self.resolutions.follow(&snapshot.upstreams);
        self.kept.install(&snapshot.upstreams);
    }
}

/// Starts the built-in server, if an upstream needs it. It is started once.
pub(super) async fn start_demo(snapshot: &Snapshot) -> io::Result<()> {
    let asked_for = |upstream: &Arc<Upstream>| {
        let mut servers = upstream.servers.iter();
        servers.any(|server| server.url == ServerUrl::Demo)
    };
    if snapshot.upstreams.iter().any(asked_for) {
        demo::start().await?;
    }
    Ok(())
}

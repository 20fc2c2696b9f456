//! Boot: the settings that are read once, at start. A reload can only say that they have changed.

use super::diagnostic::Diagnostic;
use super::document::Document;
use super::files::Files;
use super::masking::Secrets;
use super::source;
use crate::{admin, listen, store, telemetry};
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// What is read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// Where requests come in.
    pub listen: listen::ListenSettings,
    /// Threads that serve them; 0 is one for each core.
    pub workers: usize,
    /// How long requests under way may take to finish at the end.
    pub drain: Duration,
    /// The admin listener, if there is one.
    pub admin: Option<admin::AdminSettings>,
    /// Where counters live.
    pub store: store::StoreSettings,
    /// What is logged.
    pub log: telemetry::LogSettings,
    /// What is shown as stars wherever the file is told about.
    pub secrets: Arc<Secrets>,
}

/// Where the admin listener is when `[admin]` does not say.
const ADMIN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9090);

/// Puts the settings together; secrets are fetched from where the file says, and `files` has what was read for
/// them.
pub(super) fn read(
    document: &Document,
    text: &source::Source,
    files: &mut Files,
    found: &mut Vec<Diagnostic>,
) -> Boot {
    let (server, log) = (&document.server, &document.log);
    let defaults = listen::ListenSettings::default();
    let addresses = match server.listen.entries() {
        [] => defaults.addresses,
        written => written.iter().map(|at| at.value).collect(),
    };
    let terminal = || {
        if io::stdout().is_terminal() {
            telemetry::AccessFormat::Short
        } else {
            telemetry::AccessFormat::Json
        }
    };
    let store = super::store::read(document, text, files, found);
    Boot {
        secrets: Arc::new(secrets(document, &store)),
        listen: listen::ListenSettings {
            addresses,
            first_byte: server.first_byte.or(defaults.first_byte),
            head: server.head.or(defaults.head),
            idle: server.idle.or(defaults.idle),
            min_rate: server.min_rate.or(defaults.min_rate),
            max_connections: server
                .max_connections
                .get()
                .map_or(defaults.max_connections, |most| *most as usize),
            max_connections_per_client: server
                .max_connections_per_client
                .get()
                .map(|most| *most as usize),
        },
        workers: server.workers.or(0) as usize,
        drain: server.drain.or(Duration::from_secs(30)),
        admin: document.admin.as_ref().map(|admin| admin::AdminSettings {
            listen: admin.listen.or(ADMIN),
        }),
        store,
        log: telemetry::LogSettings {
            access: log.access.get().copied().unwrap_or_else(terminal),
            level: log.level.or(telemetry::Level::Info),
        },
    }
}

/// What the file's variables and the places that it names for secrets gave.
fn secrets(document: &Document, store: &store::StoreSettings) -> Secrets {
    let mut all = document.variables.secrets();
    all.extend(document.fetched.iter().cloned());
    if let store::Backend::Redis(target) = &store.source {
        let mut passwords = vec![&target.password];
        if let store::RedisEndpoint::Sentinel { password, .. } = &target.place {
            passwords.push(password);
        }
        let given = passwords.into_iter().flatten();
        all.extend(given.map(|one| one.expose().to_owned()));
    }
    Secrets::new(all)
}

/// The admin listener's address, as it will be.
pub(super) fn admin_address(document: &Document) -> Option<SocketAddr> {
    document.admin.as_ref().map(|admin| admin.listen.or(ADMIN))
}

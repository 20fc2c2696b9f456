//! The file in force, as the admin listener shows it, and reloads that the listener asks for.

use crate::admin::answers::instant;
use crate::admin::answers::limits::{LimitDetails, ListedLimit, UsedBy};
use crate::admin::answers::problem::Problem;
use crate::admin::answers::routing::RouteAnswer;
use crate::admin::answers::settings::{ChangedSetting, ConfigAnswer, ReloadAnswer};
use crate::admin::answers::status::LastReload;
use crate::admin::{Reloading, RunningFacts, RunningFile};
use crate::clock;
use crate::config::outline::Outline;
use crate::config::render::Colour;
use crate::config::{Compiled, Places, Report, describe, printed};
use crate::limit::{Limit, Mode, Scope};
use crate::reload::Trigger;
use arc_swap::ArcSwap;
use http::StatusCode;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// The longest time for a reload that the admin listener asks for. The connection lives a minute.
const RELOAD_WITHIN: Duration = Duration::from_secs(30);
/// The last reloads whose changes are kept.
const KEPT_RELOADS: usize = 16;
/// The time before a question in which a file that was taken over belongs to the answer.
const RECENT: Duration = Duration::from_secs(5);

/// The file in force, and what became of its reloads.
#[derive(Debug)]
pub(in crate::app) struct RunningConfiguration {
    in_force: ArcSwap<FileInForce>,
    /// Pulled for a reload; `None` for a gateway without a file.
    trigger: Option<Trigger>,
    log: Mutex<ReloadLog>,
    waiting: Mutex<WaitingReloads>,
}

/// A file in force.
#[derive(Debug)]
pub(in crate::app) struct FileInForce {
    generation: u64,
    loaded_at: String,
    outline: Arc<Outline>,
    places: Arc<Places>,
    asks_redis: bool,
    files: Vec<String>,
    /// Made at the first question.
    text: OnceLock<PrintedFile>,
}

#[derive(Debug)]
struct PrintedFile {
    text: String,
    hash: String,
}

#[derive(Debug, Default)]
struct ReloadLog {
    last: Option<LastReload>,
    /// The mistakes of the last file in words, if it was refused.
    refused: Option<String>,
    /// The last files that were taken over.
    taken: VecDeque<TakenFile>,
}

/// A file that was taken over.
#[derive(Debug)]
struct TakenFile {
    generation: u64,
    at: Instant,
    changes: Vec<ChangedSetting>,
    /// An answer to a reload has had the changes.
    is_answered: bool,
}

impl ReloadLog {
    /// The changes since `before`, and those of a moment before the question that no answer has had: where an operator
    /// writes the file and asks for a reload, the gateway is often first.
    fn answer(&mut self, before: u64, asked: Instant) -> Option<Vec<ChangedSetting>> {
        let fresh = self.taken.iter_mut().filter(|one| {
            let is_recent = one.at + RECENT >= asked;
            one.generation > before || is_recent && !one.is_answered
        });
        let mut changed = None::<Vec<ChangedSetting>>;
        for one in fresh {
            one.is_answered = true;
            let all = changed.get_or_insert_default();
            all.extend(one.changes.iter().cloned());
        }
        changed
    }
}

/// Requests for a reload.
#[derive(Debug, Default)]
struct WaitingReloads {
    /// Those that came after the present reading began.
    fresh: Vec<oneshot::Sender<()>>,
    /// Those that the present reading answers.
    read: Vec<oneshot::Sender<()>>,
}

impl FileInForce {
    /// The file of `compiled` under this number.
    pub(in crate::app) fn of(compiled: &Compiled, generation: u64) -> Self {
        let files = compiled.files.paths();
        Self {
            generation,
            loaded_at: instant(clock::wall()),
            outline: Arc::clone(&compiled.outline),
            places: Arc::clone(&compiled.places),
            asks_redis: compiled.asks_redis(),
            files: files.map(|path| path.display().to_string()).collect(),
            text: OnceLock::new(),
        }
    }

    fn printed(&self) -> &PrintedFile {
        self.text.get_or_init(|| {
            let text = printed(self.places.source(), &self.outline);
            // The first line names the file: gateways that have it at other places have one hash.
            let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
            let digest = Sha256::digest(rest);
            let hash = data_encoding::HEXLOWER.encode(&digest[..8]);
            PrintedFile { text, hash }
        })
    }
}

impl RunningConfiguration {
    /// The file with which the gateway starts.
    pub(in crate::app) fn new(file: FileInForce, trigger: Option<Trigger>) -> Arc<Self> {
        Arc::new(Self {
            in_force: ArcSwap::from_pointee(file),
            trigger,
            log: Mutex::default(),
            waiting: Mutex::default(),
        })
    }

    /// Notes that a reading of the file begins.
    pub(in crate::app) fn reading(&self) {
        let mut waiting = self.waiting.lock();
        let fresh = std::mem::take(&mut waiting.fresh);
        waiting.read.extend(fresh);
    }

    /// Notes that a requested reading has come to its end.
    pub(in crate::app) fn answered(&self) {
        for one in std::mem::take(&mut self.waiting.lock().read) {
            // The client may have left.
            let _ = one.send(());
        }
    }

    /// Notes a file that was taken over.
    pub(in crate::app) fn installed(&self, file: FileInForce, changes: Vec<ChangedSetting>) {
        let mut log = self.log.lock();
        log.last = Some(LastReload {
            at: file.loaded_at.clone(),
            ok: true,
            diagnostics: Vec::new(),
        });
        log.refused = None;
        log.taken.push_back(TakenFile {
            generation: file.generation,
            at: clock::now(),
            changes,
            is_answered: false,
        });
        while log.taken.len() > KEPT_RELOADS {
            log.taken.pop_front();
        }
        self.in_force.store(Arc::new(file));
    }

    /// Notes a file that was refused.
    pub(in crate::app) fn refused(&self, report: &Report) {
        let lines = report.json_lines();
        let read = lines
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut log = self.log.lock();
        log.refused = Some(report.human(Colour::Off));
        log.last = Some(LastReload {
            at: instant(clock::wall()),
            ok: false,
            diagnostics: read.collect(),
        });
    }

    async fn ask(&self) -> Result<ReloadAnswer, Problem> {
        let Some(trigger) = &self.trigger else {
            let detail = "the gateway was started from flags: there is no file to read";
            return Err(Problem::new(StatusCode::CONFLICT, "no_file", detail));
        };
        let (began, before) = (clock::now(), self.in_force.load().generation);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().fresh.push(answer);
        trigger.pull();
        if !matches!(timeout(RELOAD_WITHIN, answered).await, Ok(Ok(()))) {
            let detail =
                "the file was not read in time: it changes all the time, or the gateway is leaving";
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                detail,
            ));
        }
        let generation = self.in_force.load().generation;
        let mut log = self.log.lock();
        if let Some(text) = &log.refused {
            let last = log.last.as_ref();
            let diagnostics = last
                .map(|last| last.diagnostics.clone())
                .unwrap_or_default();
            let problem = Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "config_refused",
                "the file has mistakes; the earlier configuration stays in force",
            );
            return Err(problem
                .help(text.clone())
                .with_diagnostics(diagnostics.into()));
        }
        let changed = log.answer(before, began);
        let (unchanged, changed) = (changed.is_none(), changed.unwrap_or_default());
        let took_ms = began.elapsed().as_secs_f64() * 1_000.0;
        Ok(ReloadAnswer {
            generation,
            unchanged,
            text: outcome_text(generation, unchanged, &changed),
            changed,
            took_ms: (took_ms * 10.0).round() / 10.0,
        })
    }
}

/// The outcome of a reload in words, a line for each change.
fn outcome_text(generation: u64, unchanged: bool, changed: &[ChangedSetting]) -> String {
    if unchanged {
        return format!("the file is unchanged; configuration {generation} stays in force\n");
    }
    let lines = changed
        .iter()
        .map(|change| format!("  {}: {}\n", change.subject, change.what));
    format!(
        "configuration {generation} in force\n{}",
        lines.collect::<String>()
    )
}

impl RunningFile for RunningConfiguration {
    fn facts(&self) -> RunningFacts {
        let file = self.in_force.load();
        RunningFacts {
            generation: file.generation,
            hash: file.printed().hash.clone(),
            loaded_at: file.loaded_at.clone(),
            source: if self.trigger.is_some() {
                "file"
            } else {
                "flags"
            },
            last_reload: self.log.lock().last.clone(),
        }
    }

    fn limits(&self) -> Vec<LimitDetails> {
        let file = self.in_force.load();
        let by_name = file
            .outline
            .limits
            .chunk_by(|one, other| one.name == other.name);
        by_name.map(|rates| details(&file, rates)).collect()
    }

    fn routes(&self) -> Vec<RouteAnswer> {
        let file = self.in_force.load();
        let routes = file.outline.routes.iter();
        routes
            .map(|route| RouteAnswer {
                name: route.rule.name.to_string(),
                hosts: route.rule.hosts.iter().map(ToString::to_string).collect(),
                path: route.rule.path.to_string(),
                methods: route.rule.methods.iter().map(ToString::to_string).collect(),
                conditions: route.rule.conditions.len(),
                upstream: route.upstream.as_deref().map(str::to_owned),
                limits: route.limits.iter().map(ToString::to_string).collect(),
                place: file.places.of("routes", &route.rule.name),
            })
            .collect()
    }

    fn text(&self) -> ConfigAnswer {
        let file = self.in_force.load();
        let printed = file.printed();
        ConfigAnswer {
            generation: file.generation,
            hash: printed.hash.clone(),
            files: file.files.clone(),
            text: printed.text.clone(),
        }
    }

    fn reload(&self) -> Reloading<'_> {
        Box::pin(self.ask())
    }
}

/// A limit with all its rates, and those of its candidate.
fn details(file: &FileInForce, all: &[Arc<Limit>]) -> LimitDetails {
    let (first, outline) = (&all[0], &file.outline);
    let rates = all.iter().filter(|one| one.mode != Mode::Candidate);
    let rules: Vec<String> = rates.map(|one| describe::short(one)).collect();
    let sentences: Vec<String> = all
        .iter()
        .map(|one| describe::limit(one, file.asks_redis))
        .collect();
    let parts = first.by.parts.iter().map(ToString::to_string);
    let names = |limits: &[Arc<str>]| limits.contains(&first.name);
    let routes = outline.routes.iter().filter(|route| names(&route.limits));
    let upstreams = outline.upstreams.iter().filter(|one| names(&one.limits));
    LimitDetails {
        limit: ListedLimit {
            name: first.name.to_string(),
            rule: rules.join("; "),
            by: parts.collect(),
            mode: first.mode.as_str(),
            scope: match first.scope {
                Scope::Cluster => "cluster",
                Scope::Gateway => "gateway",
            },
            algorithm: describe::algorithm(first),
        },
        used_by: UsedBy {
            routes: routes.map(|route| route.rule.name.to_string()).collect(),
            upstreams: upstreams.map(|one| one.upstream.name.to_string()).collect(),
        },
        place: file.places.of("limits", &first.name),
        sentence: sentences.join(" | "),
    }
}

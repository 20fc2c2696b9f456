//! Whether Redis is asked at all.
//!
//! The first call that fails, or connection that cannot be made, puts the store down: from then on every decision is
//! answered at once, and nobody pays the deadline. A task of the worker's own tries again all the while, by making a
//! decision on a key of its own: what connects but cannot write is not back.
//!
//! Before the first connection decisions wait for it, at most the store's `timeout`, so that a gateway that starts
//! beside a healthy Redis does not begin with its fallback.

use super::batcher;
use super::cluster::ClusterMembership;
use super::layout::{self, probe_key};
use super::node::NodeCore;
use super::pool::{CONNECT_WITHIN, Connection};
use super::question::{self, Question};
use super::reply::{self, ReplyError};
use crate::limit::fixed_window::FixedWindow;
use crate::limit::rate::{Cost, Rate};
use crate::limit::{Rule, wire};
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::StoreReach;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time between two probes, in milliseconds; jittered, or all gateways would knock at once.
const PAUSE: std::ops::Range<u64> = 100..250;
/// A store that stays up for less than this is on the brink, and is tried again more slowly, though at least this often.
const STEADY: Duration = Duration::from_secs(1);

/// Tells of a master that was replaced: every worker finds out by itself.
static REPLACED: Throttle = Throttle::every(Duration::from_secs(5));

/// To how many workers of this process a Redis is away, by its name: each finds out by itself, but one line in the log
/// says it for all.
static AWAY: Mutex<BTreeMap<Arc<str>, OutageRecord>> = Mutex::new(BTreeMap::new());

/// How many refusals with words of their own are told of one outage.
const MOST_TOLD: usize = 4;

/// One Redis that is away.
#[derive(Debug, Default)]
struct OutageRecord {
    workers: usize,
    /// In which words it has refused, as far as they have been told.
    told: Vec<String>,
}

/// What one worker adds to that. Dropping it takes it away.
#[derive(Debug)]
pub(super) struct Outage {
    name: Arc<str>,
    lasts: Cell<bool>,
}

impl Outage {
    /// Of what has this name in the log, and is not away.
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            lasts: Cell::new(false),
        }
    }

    /// It is away. Is this the first worker to notice?
    pub(super) fn begins(&self) -> bool {
        if self.lasts.replace(true) {
            return false;
        }
        let mut away = AWAY.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = away.entry(Arc::clone(&self.name)).or_default();
        entry.workers += 1;
        entry.workers == 1
    }

    /// It has answered by refusing, in these words. Is it the first time in this outage?
    fn has_words(&self, words: &str) -> bool {
        let mut away = AWAY.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(OutageRecord { told, .. }) = away.get_mut(&self.name) else {
            return false;
        };
        let is_new = told.len() < MOST_TOLD && !told.iter().any(|known| known == words);
        if is_new {
            told.push(words.to_owned());
        }
        is_new
    }

    /// It is not away, for what this worker knows. Was it, and is this the last to say so?
    pub(super) fn ends(&self) -> bool {
        if !self.lasts.replace(false) {
            return false;
        }
        let mut away = AWAY.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = away.entry(Arc::clone(&self.name)).or_default();
        entry.workers = entry.workers.saturating_sub(1);
        let last = entry.workers == 0;
        if last {
            away.remove(&self.name);
        }
        last
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        self.ends();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Availability {
    /// No connection yet, and no failure.
    New,
    Up,
    Down,
}

/// A worker's opinion of its store.
#[derive(Debug)]
pub(super) struct Health {
    outage: Outage,
    state: Cell<Availability>,
    era: Cell<u64>,
    fallen: Notify,
}

impl Health {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            outage: Outage::new(name),
            state: Cell::new(Availability::New),
            era: Cell::new(0),
            fallen: Notify::new(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state.get() == Availability::Up
    }

    pub(super) fn is_down(&self) -> bool {
        self.state.get() == Availability::Down
    }

    /// It is asked no more, for the map does not name it.
    pub(super) fn leaves(&self) {
        if self.outage.ends() {
            let name = &self.outage.name;
            tracing::info!("{name} is asked no more: it serves no slot");
        }
    }

    /// Counts the times the store came up: bad news from an earlier time does not concern this one.
    pub(super) fn era(&self) -> u64 {
        self.era.get()
    }
}

impl NodeCore {
    /// Something failed that began in `era`: the store is down, and all who wait are told so.
    pub(super) fn fall(&self, era: u64, why: &StoreError) {
        if self.health.is_down() {
            return;
        }
        if era != self.health.era() {
            // The store has come up since. What waits is for another connection.
            return self.wake();
        }
        self.health.state.set(Availability::Down);
        self.stats.falls.add(1);
        self.connections.distrust(why);
        let meant = self.connections.of_cluster(why);
        let why = meant.as_ref().unwrap_or(why);
        let name = &self.health.outage.name;
        match (self.health.outage.begins(), &self.member) {
            (true, None) => {
                tracing::warn!("{name} is away, limits do as their on_down says: {why}");
            }
            (true, Some(_)) => tracing::warn!(
                "{name} is away, limits whose counters live there do as their on_down says: {why}"
            ),
            (false, _) => tracing::debug!("{name} is away for one more worker: {why}"),
        }
        if let StoreError::Refused(words) = why {
            self.health.outage.has_words(words);
        }
        self.changed();
        let decisions = self.decisions.take();
        self.stats.down.add(decisions.len() as u64);
        for asked in decisions {
            self.forsake(asked, &StoreError::Down, false);
        }
        self.set_aside();
        self.health.fallen.notify_one();
    }

    /// It is tried again, and fails again. What could not be reached may be there by now and refuse, for a reason that only it
    /// can tell.
    fn fails_again(&self, why: &StoreError) {
        let meant = self.connections.of_cluster(why);
        let why = meant.as_ref().unwrap_or(why);
        let name = &self.health.outage.name;
        match why {
            StoreError::Refused(words) if self.health.outage.has_words(words) => {
                tracing::warn!("{name} is still away: {why}");
            }
            _ => tracing::debug!("{name} does not serve yet: {why}"),
        }
    }

    fn rise(&self) {
        let before = self.health.state.replace(Availability::Up);
        self.health.era.set(self.health.era() + 1);
        let name = &self.health.outage.name;
        match (before, &self.member) {
            (Availability::Down, None) if self.health.outage.ends() => {
                tracing::info!("{name} is back, limits are shared again");
            }
            (Availability::Down, Some(_)) if self.health.outage.ends() => {
                tracing::info!("{name} is back, limits whose counters live there are shared again");
            }
            _ => tracing::debug!("connected to {name}"),
        }
        self.changed();
        self.wake();
    }

    /// Tells whoever looks at the whole.
    fn changed(&self) {
        match &self.member {
            None => self.stats.set_reach(self.reach()),
            Some(member) => member.changed(self.health.is_up()),
        }
    }

    /// All of it, or nothing.
    pub(super) fn reach(&self) -> StoreReach {
        if self.health.is_up() {
            StoreReach::All
        } else {
            StoreReach::None
        }
    }

    /// A decision of our own, on a fresh connection if there is no other.
    async fn probe(&self) -> Result<(), StoreError> {
        let late = |after| move |_| StoreError::Timeout { after };
        let taken = timeout(CONNECT_WITHIN, self.connections.take()).await;
        let mut connection = taken.map_err(late(CONNECT_WITHIN))??;
        let tag = self.member.as_ref().map(ClusterMembership::tag);
        let sent = self.pace.send(0);
        let tried = tries(&mut connection, &self.prefix, tag.as_deref());
        let tried = timeout(self.timeout, tried).await;
        match tried.map_err(late(self.timeout)).flatten() {
            Ok(()) => {
                self.pace.answer(sent);
                Ok(())
            }
            // It serves, if other slots than we thought.
            Err(StoreError::Refused(reason)) if self.is_redirected(&reason) => Ok(()),
            Err(error) => {
                connection.condemn();
                Err(error)
            }
        }
    }

    pub(super) fn is_redirected(&self, reason: &str) -> bool {
        let member = self.member.as_ref();
        member.is_some_and(|member| member.redirected(reason))
    }

    /// Waits until the store is down. A connection that ends while nobody uses it is replaced at once, and says so if
    /// it cannot be: then not even the first request waits.
    async fn watch_over(&self) {
        while !self.health.is_down() {
            tokio::select! {
                () = self.health.fallen.notified() => {}
                master = self.replaced() => {
                    self.connections.renew_for(master);
                    self.counts_elsewhere();
                }
                () = self.connections.signals.replaced.notified() => self.counts_elsewhere(),
                () = self.connections.signals.lost.notified() => {
                    let era = self.health.era();
                    let deadline = Instant::now() + CONNECT_WITHIN;
                    match timeout_at(deadline, self.connections.renew()).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => self.fall(era, &error),
                        Err(_) => self.fall(era, &StoreError::Timeout { after: CONNECT_WITHIN }),
                    }
                }
            }
        }
    }
}

impl NodeCore {
    /// Waits until sentinels name another master. Where none are asked nobody does.
    async fn replaced(&self) -> Address {
        match &self.connections.lookout {
            Some(lookout) => lookout.replaced(|| self.connections.master()).await,
            None => std::future::pending().await,
        }
    }

    /// The master is another: what the one before had counted last, this one may not have.
    fn counts_elsewhere(&self) {
        self.stats.counters_changed();
        if let (Some(master), Some(more)) = (self.connections.master(), REPLACED.pass()) {
            let name = &self.health.outage.name;
            tracing::info!("{name} has another master: {master}{more}");
        }
    }
}

/// A decision on keys of our own: what connects but cannot write does not serve. On one with this tag where a node of a
/// cluster is meant; else on two as requests have them, with tags of their own, which a node of a cluster refuses.
pub(super) async fn tries(
    connection: &mut Connection,
    prefix: &str,
    tag: Option<&[u8]>,
) -> Result<(), StoreError> {
    let mut question = Question::default();
    let tags = match tag {
        Some(tag) => [Some(tag), None],
        None => [Some(layout::EVERYONE), Some(b"a")],
    };
    for tag in tags.into_iter().flatten() {
        question.push(&probe_key(prefix), tag, &probe_block());
    }
    let command = question::decide(None, std::iter::once(&question));
    let bytes = connection.call(&command).await?;
    match reply::read(&bytes, std::iter::once(question.limits()))?.pop() {
        Some(Err(ReplyError::Limit { reason, .. })) if reply::server_wide(&reason) => {
            Err(StoreError::Refused(reason))
        }
        _ => Ok(()),
    }
}

/// Brings the store up, watches over it, and brings it up again, until the worker ends.
pub(super) async fn watch(shared: Rc<NodeCore>) {
    let mut brink = Duration::ZERO;
    loop {
        sleep(brink).await;
        while !shared.health.is_up() {
            let era = shared.health.era();
            let back = match shared.probe().await {
                Ok(()) => shared.pay().await,
                away => away,
            };
            match back {
                Ok(()) => shared.rise(),
                Err(error) => {
                    if shared.health.is_down() {
                        shared.fails_again(&error)
                    } else {
                        shared.fall(era, &error)
                    }
                    sleep(Duration::from_millis(fastrand::u64(PAUSE))).await;
                }
            }
        }
        let up = Instant::now();
        shared.watch_over().await;
        brink = if up.elapsed() < STEADY {
            (brink * 2).clamp(Duration::from_millis(PAUSE.start), STEADY)
        } else {
            Duration::ZERO
        };
    }
}

/// Nothing that could ever refuse, gone after a second.
fn probe_block() -> wire::Block {
    let rate = Rate {
        count: NonZeroU32::MAX,
        period: NonZeroU64::MIN.saturating_add(999_999),
    };
    wire::block(&Rule::FixedWindow(FixedWindow::new(rate)), Cost::ONE)
}

const _: () = assert!(batcher::MOST_DECISIONS <= batcher::MOST_WAITING);

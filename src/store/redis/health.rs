//! Whether Redis is asked at all.
//!
//! The first call that fails, or connection that cannot be made, puts the store down: from then on every decision is
//! answered at once, and nobody pays the deadline. A task of the worker's own tries again all the while, by making a
//! decision on a key of its own: what connects but cannot write is not back.
//!
//! Before the first connection decisions wait for it, at most the store's `timeout`, so that a gateway that starts
//! beside a healthy Redis does not begin with its fallback.

use super::layout::probe_key;
use super::pool::CONNECT_WITHIN;
use super::question::{self, Question};
use super::reply::{self, Wrong};
use super::{Shared, gather};
use crate::limit::fixed_window::FixedWindow;
use crate::limit::rate::{Cost, Rate};
use crate::limit::{Rule, wire};
use crate::store::error::StoreError;
use std::cell::Cell;
use std::num::{NonZeroU32, NonZeroU64};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time between two probes, in milliseconds; jittered, or all gateways would knock at once.
const PAUSE: std::ops::Range<u64> = 100..250;
/// A store that stays up for less than this is on the brink, and is tried again more slowly, though at least this often.
const STEADY: Duration = Duration::from_secs(1);

/// Workers of this process to whom Redis is away: each finds out by itself, but one line in the log says it for all.
static AWAY: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No connection yet, and no failure.
    New,
    Up,
    Down,
}

/// A worker's opinion of its store.
#[derive(Debug)]
pub(super) struct Health {
    state: Cell<State>,
    era: Cell<u64>,
    fallen: Notify,
}

impl Health {
    pub(super) fn new() -> Self {
        Self {
            state: Cell::new(State::New),
            era: Cell::new(0),
            fallen: Notify::new(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state.get() == State::Up
    }

    pub(super) fn is_down(&self) -> bool {
        self.state.get() == State::Down
    }

    /// Counts the times the store came up: bad news from an earlier time does not concern this one.
    pub(super) fn era(&self) -> u64 {
        self.era.get()
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        if self.is_down() {
            AWAY.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// Something failed that began in `era`: the store is down, and all who wait are told so.
    pub(super) fn fall(&self, era: u64, why: &StoreError) {
        if self.health.is_down() {
            return;
        }
        if era != self.health.era() {
            // The store has come up since. What waits is for another connection.
            return self.wake();
        }
        self.health.state.set(State::Down);
        self.stats.set_up(false);
        self.stats.falls.add(1);
        self.connections.distrust(why);
        if AWAY.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "{} is away, limits do as their on_down says: {why}",
                self.target
            );
        } else {
            tracing::debug!("{} is away for one more worker: {why}", self.target);
        }
        let decisions = self.decisions.take();
        self.stats.down.add(decisions.len() as u64);
        for asked in decisions {
            self.tell(asked, Err(Wrong::Store(StoreError::Down)));
        }
        let refunds = self.refunds.take();
        self.stats.refunds_lost.add(refunds.len() as u64);
        self.health.fallen.notify_one();
    }

    fn rise(&self) {
        let before = self.health.state.replace(State::Up);
        self.health.era.set(self.health.era() + 1);
        self.stats.set_up(true);
        if before == State::Down && AWAY.fetch_sub(1, Ordering::Relaxed) == 1 {
            tracing::info!("{} is back, limits are shared again", self.target);
        } else {
            tracing::debug!("connected to {}", self.target);
        }
        self.wake();
    }

    /// A decision of our own, on a fresh connection if there is no other.
    async fn probe(&self) -> Result<(), StoreError> {
        let late = |after| move |_| StoreError::Timeout { after };
        let taken = timeout(CONNECT_WITHIN, self.connections.take()).await;
        let mut connection = taken.map_err(late(CONNECT_WITHIN))??;
        let mut question = Question::default();
        question.push(&probe_key(&self.prefix), b"", &probe_block());
        let command = question::decide(None, std::iter::once(&question));
        let answer = timeout(self.timeout, connection.call(&command)).await;
        let told = answer
            .map_err(late(self.timeout))
            .flatten()
            .and_then(|bytes| reply::read(&bytes, std::iter::once(1)));
        match told.map(|mut told| told.pop()) {
            Ok(Some(Err(Wrong::Limit { reason, .. }))) if reply::server_wide(&reason) => {
                connection.condemn();
                Err(StoreError::Refused(reason))
            }
            Ok(_) => Ok(()),
            Err(error) => {
                connection.condemn();
                Err(error)
            }
        }
    }

    /// Waits until the store is down. A connection that ends while nobody uses it is replaced at once, and says so if
    /// it cannot be: then not even the first request waits.
    async fn watch_over(&self) {
        while !self.health.is_down() {
            tokio::select! {
                () = self.health.fallen.notified() => {}
                () = self.connections.signals.lost.notified() => {
                    if self.busy.get() > 0 {
                        continue;
                    }
                    let era = self.health.era();
                    let deadline = Instant::now() + CONNECT_WITHIN;
                    match timeout_at(deadline, self.connections.take()).await {
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => self.fall(era, &error),
                        Err(_) => self.fall(era, &StoreError::Timeout { after: CONNECT_WITHIN }),
                    }
                }
            }
        }
    }
}

/// Brings the store up, watches over it, and brings it up again, until the worker ends.
pub(super) async fn watch(shared: Rc<Shared>) {
    let mut brink = Duration::ZERO;
    loop {
        sleep(brink).await;
        while !shared.health.is_up() {
            let era = shared.health.era();
            match shared.probe().await {
                Ok(()) => shared.rise(),
                Err(error) => {
                    tracing::debug!("{} does not serve yet: {error}", shared.target);
                    shared.fall(era, &error);
                    sleep(Duration::from_millis(fastrand::u64(PAUSE))).await;
                }
            }
        }
        let up = Instant::now();
        shared.watch_over().await;
        brink = match up.elapsed() < STEADY {
            true => (brink * 2).clamp(Duration::from_millis(PAUSE.start), STEADY),
            false => Duration::ZERO,
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

const _: () = assert!(gather::MOST_DECISIONS <= gather::MOST_WAITING);

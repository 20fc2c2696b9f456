//! The counters of a replay: in memory on a clock that the replay moves, or in Redis through the scripts on that clock.

use crate::clock::{Clock, Timestamp};
use crate::store::redis::RedisStore;
use crate::store::{
    Amendment, Backend, Check, Decider, Intent, MemoryStore, OnDown, RedisTarget, Reservation,
    StoreDecision, StoreError, StoreSettings,
};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::LocalRuntime;
use tokio::signal::unix::{SignalKind, signal};

/// The timeout of a call to Redis: long, since no client waits for a replay.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Up to this number, counters are not swept.
const FEW: usize = 4_096;

/// The part of a decision that the caller needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// The outcome of the request.
    Outcome,
    /// The outcome, and the verdict of each limit.
    Verdicts,
}

/// The counters of one file.
#[derive(Debug)]
pub(super) enum Counters {
    /// In this process.
    Memory(MemoryCounters),
    /// In Redis.
    Redis(RedisCounters),
}

/// Counters in this process, as many as are live.
#[derive(Debug)]
pub(super) struct MemoryCounters {
    store: MemoryStore,
    /// The number of counters at which the ended ones are removed.
    room: usize,
}

/// Counters in Redis under a prefix of their own.
#[derive(Debug)]
pub(super) struct RedisCounters {
    store: RedisStore,
    server: Rc<ReplayRedis>,
}

/// The connection to a Redis, for as long as a replay lasts.
#[derive(Debug)]
pub(super) struct ReplayRedis {
    runtime: LocalRuntime,
    target: RedisTarget,
    prefix: String,
    interrupted: Rc<Cell<bool>>,
}

impl Counters {
    /// Empty counters in this process. Their number is bounded by the number of live counters: `max_keys` has no effect
    /// on an answer.
    pub(super) fn memory() -> Self {
        Self::Memory(MemoryCounters {
            store: MemoryStore::for_one_thread(Clock::manual(Timestamp::default())),
            room: FEW,
        })
    }

    /// Decides a request at the instant `now`, which is never before the previous one. `decided`, which is empty, stays
    /// empty if the request proceeds at once and `detail` requires no more.
    pub(super) fn decide(
        &mut self,
        checks: &[Check<'_>],
        now: Timestamp,
        detail: Detail,
        decided: &mut Option<Box<StoreDecision>>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => memory.decide(checks, now, detail, decided),
            Self::Redis(remote) => {
                let store = remote.store.at(now);
                let deciding = store.decide(checks);
                *decided = Some(Box::new(remote.server.runtime.block_on(deciding)?));
            }
        }
        Ok(())
    }

    /// Amends a charge at `now`.
    pub(super) fn amend(
        &mut self,
        reservation: &Reservation,
        amendment: Amendment,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => {
                memory.store.at(now).amend(reservation, amendment);
                Ok(())
            }
            Self::Redis(remote) => remote.amend(reservation, amendment, now),
        }
    }

    /// Removes the counters of the replay from Redis, and returns how many there were.
    pub(super) fn clear(&self) -> Result<u64, StoreError> {
        match self {
            Self::Memory(_) => Ok(0),
            Self::Redis(remote) => remote.server.runtime.block_on(remote.store.clear()),
        }
    }
}

impl RedisCounters {
    /// Amends a charge, and waits for Redis' answer, unlike a gateway: the next decision depends on the amendment.
    fn amend(
        &self,
        reservation: &Reservation,
        amendment: Amendment,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let lost = || self.store.stats().refunds_lost.get();
        let before = lost();
        self.server.runtime.block_on(async {
            self.store.at(now).amend(reservation, amendment);
            self.store.settle().await;
        });
        if lost() == before {
            Ok(())
        } else {
            Err(StoreError::Down)
        }
    }
}

impl MemoryCounters {
    fn decide(
        &mut self,
        checks: &[Check<'_>],
        now: Timestamp,
        detail: Detail,
        decided: &mut Option<Box<StoreDecision>>,
    ) {
        let store = self.store.at(now);
        let answers = store.measure(checks, Intent::Charge, Decider::Memory);
        if self.store.len() > self.room {
            self.sweep();
        }
        let goes_on = answers.admits_all() && !checks.iter().any(|check| check.limit.rule.queues());
        if detail == Detail::Verdicts || !goes_on {
            *decided = Some(Box::new(StoreDecision::of(checks, answers)));
        }
    }

    /// Sweeps all counters at once, and again when their number has doubled: the cost is spread over the new ones.
    #[cold]
    fn sweep(&mut self) {
        self.store.sweep(0);
        self.room = (self.store.len() * 2).max(FEW);
    }
}

impl ReplayRedis {
    /// Connects to the Redis.
    ///
    /// # Errors
    /// If Redis cannot be reached.
    pub(super) fn connect(target: &RedisTarget) -> io::Result<Rc<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())?;
        let server = Rc::new(Self {
            runtime,
            target: target.clone(),
            prefix: format!("tollgate-replay-{:032x}", fastrand::u128(..)),
            interrupted: Rc::default(),
        });
        server.runtime.block_on(async {
            let mut stop = signal(SignalKind::interrupt())?;
            let mut end = signal(SignalKind::terminate())?;
            let interrupted = Rc::clone(&server.interrupted);
            tokio::task::spawn_local(async move {
                tokio::select! {
                    _ = stop.recv() => {}
                    _ = end.recv() => {}
                }
                interrupted.set(true);
            });
            Ok::<_, io::Error>(())
        })?;
        Ok(server)
    }

    /// Empty counters in the Redis, under a prefix with `name` in it.
    ///
    /// # Errors
    /// If Redis cannot be reached.
    pub(super) fn counters(self: &Rc<Self>, name: &str) -> Result<Counters, StoreError> {
        let settings = StoreSettings {
            source: Backend::Redis(self.target.clone()),
            timeout: TIMEOUT,
            on_down: OnDown::Closed,
            prefix: format!("{}-{name}", self.prefix).into(),
            ..StoreSettings::default()
        };
        let store = self.runtime.block_on(async {
            let store = RedisStore::new(&self.target, &settings);
            store.reach().await.map(|()| store)
        })?;
        Ok(Counters::Redis(RedisCounters {
            store,
            server: Rc::clone(self),
        }))
    }

    /// Has a signal requested the end of the program? The counters in Redis are removed before the end.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.get()
    }
}

//! Discovers the map of a cluster at the start. Reads the map again when a node answers that the map is wrong, while a
//! master is unavailable, and periodically.

use super::router::Router;
use super::slot_map::{self, SlotRange};
use crate::clock;
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use crate::store::redis::link::connection::{CONNECT_WITHIN, within};
use crate::store::redis::link::outage::Outage;
use crate::store::redis::link::pool::Manager;
use crate::store::redis::wire::slot::SLOTS;
use crate::store::settings::RedisTarget;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The pause while nothing has happened.
const NOW_AND_THEN: Duration = Duration::from_secs(30);
/// The pause while a master is unavailable, in milliseconds; jittered, since otherwise all gateways would read at once.
const PAUSE: std::ops::Range<u64> = 100..250;
/// The pause while a master is unavailable and nothing has changed for [`STAYS`]: each reading needs a connection, and
/// an operator may need hours.
const LATER: std::ops::Range<u64> = 500..1000;
const STAYS: Duration = Duration::from_secs(10);
/// The pause while a known node serves nothing, and is to be dropped.
const SOON: Duration = Duration::from_secs(2);
/// The least pause between two readings in any case.
const LEAST: Duration = Duration::from_millis(20);
/// The time after which a silent node is not waited for alone: the next is queried in parallel.
const PATIENCE: Duration = Duration::from_millis(50);

/// Discovers the map for one worker.
pub(crate) struct Discovery {
    router: Rc<Router>,
    target: RedisTarget,
    seeds: Arc<[Address]>,
    /// The log's state while no node serves some of the slots.
    gap: Outage,
}

/// The number of nodes that are up, and of slots that no node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct MapState {
    up: usize,
    unserved: usize,
}

impl Discovery {
    pub(crate) fn new(router: Rc<Router>, target: RedisTarget, seeds: &Arc<[Address]>) -> Self {
        let gap = Outage::new(format!("a part of {target}").into());
        Self {
            router,
            target,
            seeds: Arc::clone(seeds),
            gap,
        }
    }

    /// Reads the map periodically, until the worker ends.
    pub(crate) async fn run(self) {
        let router = &*self.router;
        let mut state = MapState::default();
        let mut since = clock::now();
        loop {
            let mut unserved = false;
            match self.learn().await {
                Ok(ranges) => unserved = self.adopt(&ranges) > 0,
                Err(error) => router.set_unreachable(&error),
            }
            let now = MapState {
                up: router.map().up().len(),
                unserved: router.map().unserved(),
            };
            if std::mem::replace(&mut state, now) != now || !router.is_known() {
                since = clock::now();
            }
            let while_away = while_away(since);
            // Otherwise every request of an unserved slot would cause a new reading of the map.
            sleep(if unserved { while_away } else { LEAST }).await;
            let pause = if !router.is_up() {
                while_away
            } else if unserved || router.map().has_idle() {
                SOON
            } else {
                NOW_AND_THEN
            };
            let _ = timeout(pause, router.stale.notified()).await;
        }
    }

    /// Takes a map over. Returns the number of slots without a node.
    fn adopt(&self, ranges: &[SlotRange]) -> usize {
        let router = &*self.router;
        let was = (router.reach(), router.map().unserved());
        router.adopt(ranges);
        let is = (router.reach(), self.log_change());
        // More slots may be unavailable while a part of the map is.
        if is != was {
            router.report_reach();
        }
        is.1
    }

    /// The map, from the first node that answers. Available nodes are queried first, then the nodes that the file
    /// names. The next node is queried if one cannot answer, and in parallel to one that does not answer at once: many
    /// unreachable nodes do not delay the answer of a reachable one.
    async fn learn(&self) -> Result<Vec<SlotRange>, StoreError> {
        let mut known = self.router.map().up();
        fastrand::shuffle(&mut known);
        let mut seeds = self.seeds.to_vec();
        fastrand::shuffle(&mut seeds);
        seeds.retain(|seed| !known.contains(seed));
        let mut trouble = StoreError::Down;
        let mut questions = JoinSet::new();
        let mut next = known.into_iter().chain(seeds).peekable();
        loop {
            if let Some(address) = next.next() {
                questions.spawn_local(map_of(self.target.clone(), address));
            }
            let has_more = next.peek().is_some();
            let answer = tokio::select! {
                answer = questions.join_next() => answer,
                () = sleep(PATIENCE), if has_more => continue,
            };
            match answer {
                Some(Ok(Ok(ranges))) => return Ok(ranges),
                Some(Ok(Err(error))) => trouble = error,
                Some(Err(_)) => {}
                None if !has_more => return Err(trouble),
                None => {}
            }
        }
    }

    /// Logs the slots that the new map has lost or gained. Returns the number of unserved slots.
    fn log_change(&self) -> usize {
        let (target, unserved) = (&self.target, self.router.map().unserved());
        let is_back = self.router.is_back();
        match unserved {
            0 if self.gap.ends() => {
                tracing::info!("every slot of {target} is served, limits are shared again");
            }
            0 if is_back => tracing::info!("{target} is back, limits are shared again"),
            1.. if self.gap.begins() => tracing::warn!(
                "a part of {target} is away, limits with counters there follow their on_down: \
                 {unserved} of {SLOTS} slots are served by no node"
            ),
            _ => {}
        }
        unserved
    }
}

/// The pause while a master is unavailable, and nothing has changed since the instant `since`.
fn while_away(since: Instant) -> Duration {
    let is_new = clock::now() - since < STAYS;
    let range = if is_new { PAUSE } else { LATER };
    Duration::from_millis(fastrand::u64(range))
}

/// The map of the node at `address`.
pub(crate) async fn map_of(
    target: RedisTarget,
    address: Address,
) -> Result<Vec<SlotRange>, StoreError> {
    let manager = Manager::new(target.clone(), Some(address.clone()), Arc::default());
    let asked = manager.open_for(async |connection| slot_map::ask(connection, &address).await);
    let answer = within(CONNECT_WITHIN, asked).await.inspect_err(|error| {
        tracing::debug!("{address} of {target} does not answer with the map of slots: {error}");
    });
    answer.map(|(_, ranges)| ranges)
}

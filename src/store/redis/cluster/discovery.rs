//! Keeps the map of the cluster: asks again when a node says that it is wrong, while a master is away, and now and then.

use super::super::pool::{CONNECT_WITHIN, Manager};
use super::super::signals::Signals;
use super::slot::SLOTS;
use super::slot_map::{self, SlotRange};
use super::{ClusterState, MapKnowledge};
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// When nothing has happened.
const NOW_AND_THEN: Duration = Duration::from_secs(30);
/// While a master is away, in milliseconds; jittered, or all gateways would ask at once.
const PAUSE: std::ops::Range<u64> = 100..250;
/// Likewise once nothing has changed for [`STAYS`]: each question is a connection, and nobody may take its place for hours.
const LATER: std::ops::Range<u64> = 500..1000;
const STAYS: Duration = Duration::from_secs(10);
/// While a node is known that serves nothing: it is to be forgotten.
const SOON: Duration = Duration::from_secs(2);
/// Between any two questions, whatever happens.
const LEAST: Duration = Duration::from_millis(20);
/// Who has not told the map by then is not waited for alone.
const PATIENCE: Duration = Duration::from_millis(50);

/// Asks, and asks again, until the worker ends.
pub(super) async fn keep(nodes: Rc<ClusterState>) {
    let (mut seen, mut since) = ((0, 0), Instant::now());
    loop {
        let mut unserved = false;
        match nodes.learn().await {
            Ok(ranges) => {
                let was = (nodes.reach(), nodes.map.borrow().unserved());
                nodes.adopt(&ranges);
                let is = (nodes.reach(), nodes.tell());
                unserved = is.1 > 0;
                // More slots may be away while a part is.
                if is != was {
                    nodes.stats.set_reach(is.0);
                }
            }
            Err(error) => nodes.unknown(&error),
        }
        let sees = nodes.sees();
        let is_new = std::mem::replace(&mut seen, sees) != sees;
        if is_new || nodes.knowledge.get() != MapKnowledge::Known {
            since = Instant::now();
        }
        let while_away = if since.elapsed() < STAYS {
            PAUSE
        } else {
            LATER
        };
        let while_away = Duration::from_millis(fastrand::u64(while_away));
        // Every request of an unserved slot would have it asked anew.
        sleep(if unserved { while_away } else { LEAST }).await;
        let pause = match (nodes.is_up(), nodes.map.borrow().has_idle()) {
            (false, _) => while_away,
            (true, _) if unserved => SOON,
            (true, true) => SOON,
            (true, false) => NOW_AND_THEN,
        };
        let _ = timeout(pause, nodes.stale.notified()).await;
    }
}

impl ClusterState {
    /// How many nodes are up, and how many slots nobody serves.
    fn sees(&self) -> (usize, usize) {
        let map = self.map.borrow();
        (map.up().len(), map.unserved())
    }

    /// Who serves what, by whoever answers first: a node that is up, else one that the file names. The next is asked when
    /// one cannot tell, and beside one that lets us wait: of many that are cut off none holds up the one that is not.
    async fn learn(self: &Rc<Self>) -> Result<Vec<SlotRange>, StoreError> {
        let mut known = self.map.borrow().up();
        fastrand::shuffle(&mut known);
        let mut seeds = self.seeds.to_vec();
        fastrand::shuffle(&mut seeds);
        seeds.retain(|seed| !known.contains(seed));
        let (mut trouble, mut asked) = (StoreError::Down, JoinSet::new());
        let mut next = known.into_iter().chain(seeds).peekable();
        loop {
            if let Some(address) = next.next() {
                asked.spawn_local(Rc::clone(self).ask(address));
            }
            let (mut told, more) = (None, next.peek().is_some());
            tokio::select! {
                one = asked.join_next() => told = one,
                () = sleep(PATIENCE), if more => {}
            }
            match told {
                Some(Ok(Ok(ranges))) => return Ok(ranges),
                Some(Ok(Err(error))) => trouble = error,
                Some(Err(_)) => {}
                None if asked.is_empty() && !more => return Err(trouble),
                None => {}
            }
        }
    }

    async fn ask(self: Rc<Self>, address: Address) -> Result<Vec<SlotRange>, StoreError> {
        let late = |_| StoreError::Timeout {
            after: CONNECT_WITHIN,
        };
        let told = timeout(CONNECT_WITHIN, self.slots(&address)).await;
        told.map_err(late).flatten().inspect_err(|error| {
            tracing::debug!("{address} of {} does not tell: {error}", self.target);
        })
    }

    async fn slots(&self, address: &Address) -> Result<Vec<SlotRange>, StoreError> {
        let signals = Arc::<Signals>::default();
        let manager = Manager::new(self.target.clone(), Some(address.clone()), signals);
        let asked = manager.open_for(async |connection| slot_map::slots(connection, address).await);
        asked.await.map(|(_, ranges)| ranges)
    }

    /// Says what has come or gone by the map that was just taken over, and how many slots it names nobody for.
    fn tell(&self) -> usize {
        let (target, unserved) = (&self.target, self.map.borrow().unserved());
        let is_back = self.outage.ends();
        match unserved {
            0 if self.gap.ends() => {
                tracing::info!("every slot of {target} is served, limits are shared again");
            }
            0 if is_back => tracing::info!("{target} is back, limits are shared again"),
            1.. if self.gap.begins() => tracing::warn!(
                "a part of {target} is away, limits whose counters live there do as their on_down says: \
                 {unserved} of {SLOTS} slots are served by nobody"
            ),
            _ => {}
        }
        unserved
    }

    /// Nobody can be asked. What was known stays: each of its nodes says for itself whether it is there.
    pub(super) fn unknown(&self, why: &StoreError) {
        if self.knowledge.get() == MapKnowledge::Known {
            return;
        }
        *self.why.borrow_mut() = Some(why.clone());
        if self.knowledge.replace(MapKnowledge::Unreachable) == MapKnowledge::New {
            self.stats.falls.add(1);
            if self.outage.begins() {
                let name = &self.target;
                tracing::warn!("{name} is away, limits do as their on_down says: {why}");
            }
            self.learned.notify_waiters();
        }
    }
}

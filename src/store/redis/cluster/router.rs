//! One worker's knowledge of the slots of a cluster and their masters: from the map, and from redirections. The node of
//! a lone Redis serves every slot.

use super::redirect;
use super::slot_map::{SlotMap, SlotRange};
use crate::clock::Timestamp;
use crate::limit::Limit;
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use crate::store::redis::link::outage::Outage;
use crate::store::redis::node::{Node, NodeHandle};
use crate::store::redis::queue::context::StoreContext;
use crate::store::redis::wire::counter_update::{CounterUpdate, UpdateSender};
use crate::store::redis::wire::slot::{self, CallRoute, Slot, slot_of};
use crate::store::reservation::{Amendment, Reservation};
use crate::telemetry::metrics::{CallOutcome, Operation, StoreReach};
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// The state of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MapKnowledge {
    /// No node has been queried yet.
    New,
    /// A node has answered, at some time.
    Known,
    /// No node could be queried.
    Unreachable,
}

/// Makes the node at an address of a cluster, or of a lone Redis, with its tasks.
pub(crate) type NodeMaker = Box<dyn Fn(Option<&Address>) -> NodeHandle>;

/// The masters of a cluster and their slots.
pub(crate) struct Router {
    pub(crate) context: Rc<StoreContext>,
    make: NodeMaker,
    lone: OnceCell<NodeHandle>,
    map: RefCell<SlotMap>,
    knowledge: Cell<MapKnowledge>,
    /// The cause for which no node could be queried.
    why: RefCell<Option<StoreError>>,
    /// The log's state meanwhile.
    outage: Outage,
    /// Notified when the map is known, or cannot be.
    learned: Notify,
    /// Notified when the map is to be read again.
    pub(crate) stale: Notify,
    /// Calls that wait for a slot to arrive.
    pub(crate) underway: Cell<usize>,
}

impl Router {
    pub(crate) fn new(context: Rc<StoreContext>, make: NodeMaker) -> Self {
        let outage = Outage::new(context.target.to_string().into());
        Self {
            context,
            make,
            lone: OnceCell::new(),
            map: RefCell::default(),
            knowledge: Cell::new(MapKnowledge::New),
            why: RefCell::default(),
            outage,
            learned: Notify::new(),
            stale: Notify::new(),
            underway: Cell::new(0),
        }
    }

    /// The name of the cluster in the log.
    pub(crate) fn name(&self) -> &str {
        &self.outage.name
    }

    /// Reports the usable part of the cluster.
    pub(super) fn report_reach(&self) {
        self.context.stats.set_reach(self.reach());
    }

    /// Makes the node of a lone Redis, which serves every slot.
    pub(crate) fn make_lone(&self) {
        let node = self.lone.get_or_init(|| (self.make)(None));
        self.map.borrow_mut().set_lone(node.clone());
        self.knowledge.set(MapKnowledge::Known);
    }

    /// The only node, if the store is a lone Redis.
    pub(crate) fn lone(&self) -> Option<&NodeHandle> {
        self.lone.get()
    }

    /// Waits until the map is known, at most for `patience`. Does not wait at all once no node could be queried, or
    /// once a request has waited in vain.
    ///
    /// # Errors
    /// The cause, while the map is unknown.
    pub(crate) async fn known(&self, patience: Duration) -> Result<(), StoreError> {
        let learned = async {
            loop {
                let learned = self.learned.notified();
                match self.knowledge.get() {
                    MapKnowledge::New => learned.await,
                    MapKnowledge::Known => return Ok(()),
                    MapKnowledge::Unreachable => return Err(StoreError::Down),
                }
            }
        };
        let known = timeout(patience, learned).await.unwrap_or_else(|_| {
            self.set_unreachable(&StoreError::Timeout { after: patience });
            Err(StoreError::Down)
        });
        if known.is_err() {
            self.context.stats.down.add(1);
        }
        known
    }

    pub(crate) fn is_known(&self) -> bool {
        self.knowledge.get() == MapKnowledge::Known
    }

    /// The cause for which the map is unknown, if there is one.
    pub(crate) fn why(&self) -> Option<StoreError> {
        self.why.borrow().clone()
    }

    /// Notes that no node can be queried. A known map stays: each of its nodes tracks its own health.
    pub(super) fn set_unreachable(&self, why: &StoreError) {
        if self.is_known() {
            return;
        }
        *self.why.borrow_mut() = Some(why.clone());
        if self.knowledge.replace(MapKnowledge::Unreachable) == MapKnowledge::New {
            self.context.stats.falls.add(1);
            if self.outage.begins() {
                let name = self.name();
                tracing::warn!("{name} is away, limits follow their on_down: {why}");
            }
            self.learned.notify_waiters();
        }
    }

    /// Notes that a map was installed. Was the cluster unavailable, and is this worker the last to notice its return?
    pub(super) fn is_back(&self) -> bool {
        self.outage.ends()
    }

    /// The node that serves a slot.
    ///
    /// # Errors
    /// If no node serves the slot.
    pub(crate) fn at(&self, slot: Slot) -> Result<NodeHandle, StoreError> {
        let node = self.map().at(slot).cloned();
        node.ok_or_else(|| {
            self.context.stats.errors.add(1);
            self.stale.notify_one();
            StoreError::Refused(format!("no node serves slot {slot}").into())
        })
    }

    /// The node that serves a counter. If none does, a node that will redirect the call once another does.
    fn home(&self, limit: &Limit, key: &[u8]) -> Option<(NodeHandle, CallRoute)> {
        if let Some(lone) = self.lone() {
            return Some((lone.clone(), CallRoute::default()));
        }
        let slot = slot_of(limit, key);
        let node = self.at(slot).ok().or_else(|| self.all().first().cloned())?;
        Some((node, CallRoute::to(slot)))
    }

    /// Queues an update of a counter at the node that serves it by then.
    pub(crate) fn update(&self, limit: &Limit, key: &[u8], update: CounterUpdate) {
        match self.home(limit, key) {
            Some((home, route)) => home.node.updates.push(CounterUpdate { route, ..update }),
            // The map of the cluster was never known.
            None => {
                self.context
                    .stats
                    .updated(Operation::Refund, CallOutcome::Lost, Duration::ZERO)
            }
        }
    }

    /// Amends a charge, soon. `answer` receives the script's byte. A place in a queue is given back in its order when
    /// its request is not forwarded.
    pub(crate) fn amend(
        &self,
        clock: Option<Timestamp>,
        reservation: &Reservation,
        amendment: Amendment,
        answer: Option<UpdateSender>,
    ) {
        if amendment == Amendment::Cancellation
            && self.context.abandonments.hand_over(clock, reservation)
        {
            return;
        }
        if let Some(update) = self.context.amend(clock, reservation, amendment) {
            let Reservation { limit, key, .. } = reservation;
            self.update(limit, key, CounterUpdate { answer, ..update });
        }
    }

    /// Every node.
    pub(crate) fn all(&self) -> Vec<NodeHandle> {
        self.map().all().cloned().collect()
    }

    /// The map, to be read.
    pub(crate) fn map(&self) -> Ref<'_, SlotMap> {
        self.map.borrow()
    }

    /// Is every master available?
    pub(crate) fn is_up(&self) -> bool {
        self.is_known() && self.map().masters().all(NodeHandle::is_up)
    }

    /// Is the master of this slot available?
    pub(crate) fn serves(&self, slot: Slot) -> bool {
        self.map().at(slot).is_some_and(NodeHandle::is_up)
    }

    /// Are the shares of slots enforced at the master of this slot?
    pub(crate) fn keeps_shares(&self, slot: Slot) -> bool {
        let map = self.map();
        map.at(slot).is_some_and(|home| home.node.keeps_shares())
    }

    /// Does the master of this slot refuse a command, and is that the only reason for its unavailability?
    pub(crate) fn lacks_rights(&self, slot: Slot) -> bool {
        let map = self.map();
        map.at(slot)
            .is_some_and(|home| home.node.lacks_rights.get())
    }

    /// Starts a trial of the node of a counter that can be neither read nor written. `line` is the log line about its
    /// key.
    pub(crate) fn suspect(&self, limit: &Limit, key: &[u8], line: impl FnOnce() -> String) {
        if let Some((home, _)) = self.home(limit, key) {
            home.node.suspicion.raise(line);
        }
    }

    /// The usable part of the cluster.
    pub(crate) fn reach(&self) -> StoreReach {
        let map = self.map();
        if self.is_up() && map.unserved() == 0 {
            StoreReach::All
        } else if map.masters().any(NodeHandle::is_up) {
            StoreReach::Part
        } else {
            StoreReach::None
        }
    }

    /// Notes that a node became available, or unavailable.
    pub(crate) fn node_changed(&self, up: bool) {
        self.report_reach();
        if !up {
            self.stale.notify_one();
        }
    }

    /// Does `node` answer that other nodes serve the slots of its call?
    pub(crate) fn is_redirected(&self, node: &Node, reason: &str) -> bool {
        let address = node.address.as_ref();
        let redirected =
            address.is_some_and(|address| redirect::read_redirection(reason, address).is_some());
        if redirected {
            self.stale.notify_one();
        }
        redirected
    }

    /// The node at this address, which may be new.
    pub(crate) fn at_address(&self, address: &Address) -> NodeHandle {
        self.map
            .borrow_mut()
            .node(address, || (self.make)(Some(address)))
    }

    /// Takes over a node's answer that a slot is served at `address`.
    pub(crate) fn moved(&self, slot: Slot, address: &Address) -> NodeHandle {
        let node = self
            .map
            .borrow_mut()
            .moved(slot, address, || (self.make)(Some(address)));
        self.stale.notify_one();
        node
    }

    /// Takes over a node's map.
    pub(super) fn adopt(&self, ranges: &[SlotRange]) {
        let map = &mut *self.map.borrow_mut();
        map.adopt(ranges, |address| (self.make)(Some(address)));
        for handle in map.masters() {
            let node = &handle.node;
            let is_served = |slot| {
                map.at(slot)
                    .is_some_and(|home| Rc::ptr_eq(&home.node, node))
            };
            let mut tag = node.probe_tag.borrow_mut();
            if tag
                .as_ref()
                .is_some_and(|tag| !is_served(slot::of_tag(tag)))
                && let Some(tag_here) = slot::tag_of(is_served)
            {
                *tag = Some(tag_here);
            }
        }
        pass_on(map);
        repeat_elsewhere(map);
        self.knowledge.set(MapKnowledge::Known);
        self.learned.notify_waiters();
    }
}

/// Repeats recently answered updates at the nodes that now serve their slots, since these may lack the updates.
fn repeat_elsewhere(map: &SlotMap) {
    for former in map.all() {
        let home = |slot| {
            map.at(slot)
                .filter(|home| !Rc::ptr_eq(&home.node, &former.node))
        };
        for call in former
            .node
            .updates
            .answered
            .take(|slot| home(slot).is_some())
        {
            if let Some(home) = home(call.slot()) {
                home.node.updates.answered.take_over(call);
                home.node.lanes.wake();
            }
        }
    }
}

/// Moves updates from unavailable nodes to the nodes that now serve their slots.
fn pass_on(map: &SlotMap) {
    for away in map.all().filter(|handle| !handle.is_up()) {
        let home = |route: CallRoute| &map.at(route.slot).unwrap_or(away).node;
        for update in away.node.updates.take_all() {
            home(update.route).updates.push(update);
        }
    }
}

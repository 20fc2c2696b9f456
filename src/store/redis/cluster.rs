//! Counters spread over the masters of a cluster: who serves which slot, and what follows from a change of that.
//!
//! A master is a [`Node`] like a lone Redis: lanes, connections and health of its own, so that one that is away takes
//! nothing with it but the counters that live there.

mod discovery;
mod multi_slot;
mod redirect;
mod slot;
mod slot_calls;
mod slot_map;

pub(super) use slot::SLOTS;
pub(super) use slot_map::slots as slots_of;

use super::LONGEST;
use super::abandonment::Abandonments;
use super::health::Outage;
use super::node::{Node, NodeCore, Tasks};
use super::stats::Stats;
use crate::clock::Timestamp;
use crate::limit::Limit;
use crate::store::answers::{Answers, TentativeCharge};
use crate::store::check::{Check, Refund, apart};
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use crate::store::settings::{RedisTarget, StoreSettings};
use crate::telemetry::metrics::{CallOutcome, Operation, StoreReach};
use multi_slot::AbandonedMultiSlot;
use slot::Slot;
use slot_map::SlotMap;
pub(super) use slot_map::SlotRange;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// By which way something is sent, and how far it has come. A lone Redis has one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Route {
    slot: Slot,
    /// The slot is on its way to where this is sent.
    asking: bool,
    /// In a call of its own.
    alone: bool,
    /// How often it was sent elsewhere.
    hops: u8,
    /// How often it was tried again where it was.
    tries: u8,
}

/// The slot in which a limit counts a key.
#[must_use]
pub fn slot_of(limit: &Limit, key: &[u8]) -> u16 {
    slot::of_tag(super::layout::tag(limit, key))
}

/// One worker's way to the masters of a cluster. Clones share it.
#[derive(Clone)]
pub(super) struct Cluster {
    nodes: Rc<ClusterState>,
    _tasks: Rc<Tasks>,
}

/// What the face, the lanes and the keeper work on together.
pub(super) struct ClusterState {
    /// For those that are made later.
    me: Weak<Self>,
    target: RedisTarget,
    settings: StoreSettings,
    seeds: Arc<[Address]>,
    stats: Arc<Stats>,
    leavers: Rc<Abandonments>,
    map: RefCell<SlotMap>,
    knowledge: Cell<MapKnowledge>,
    /// Why nobody can be asked.
    why: RefCell<Option<StoreError>>,
    /// What the log says meanwhile.
    outage: Outage,
    /// What it says while nobody serves some of the slots.
    gap: Outage,
    /// The map is known, or cannot be.
    learned: Notify,
    /// The map is to be looked at again.
    stale: Notify,
    /// Requests over several slots that have left.
    stragglers: RefCell<Vec<AbandonedMultiSlot>>,
    late: Notify,
    /// What waits for a slot to arrive, and stragglers that are seen to.
    underway: Cell<usize>,
}

/// Of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MapKnowledge {
    /// Nobody has been asked yet.
    New,
    /// Somebody has told it, however long ago.
    Known,
    /// Nobody could be asked.
    Unreachable,
}

/// What a node of a cluster knows of the cluster.
pub(super) struct ClusterMembership {
    nodes: Weak<ClusterState>,
    pub(super) address: Address,
    /// One that lives there, for its probe.
    tag: RefCell<Vec<u8>>,
}

impl Cluster {
    /// Starts to ask `seeds` and waits for nothing.
    pub(super) fn new(
        target: &RedisTarget,
        settings: &StoreSettings,
        seeds: &Arc<[Address]>,
        stats: Arc<Stats>,
    ) -> Self {
        let nodes = Rc::new_cyclic(|me| ClusterState {
            me: me.clone(),
            target: target.clone(),
            settings: settings.clone(),
            seeds: Arc::clone(seeds),
            stats,
            leavers: Rc::default(),
            map: RefCell::default(),
            knowledge: Cell::new(MapKnowledge::New),
            why: RefCell::default(),
            outage: Outage::new(target.to_string().into()),
            gap: Outage::new(format!("a part of {target}").into()),
            learned: Notify::new(),
            stale: Notify::new(),
            stragglers: RefCell::default(),
            late: Notify::new(),
            underway: Cell::new(0),
        });
        let tasks = vec![
            tokio::task::spawn_local(discovery::keep(nodes.clone())),
            tokio::task::spawn_local(multi_slot::see_to(nodes.clone())),
        ];
        Self {
            nodes,
            _tasks: Rc::new(Tasks(tasks)),
        }
    }

    /// Asks about limits, wherever their counters live.
    pub(super) async fn ask(
        &self,
        clock: Option<Timestamp>,
        checks: &[Check<'_>],
        refused: bool,
    ) -> Result<Answers, StoreError> {
        self.known().await?;
        let parts = multi_slot::parts(checks);
        let [(slot, _)] = &parts[..] else {
            return multi_slot::ask(&self.nodes, (clock, refused), checks, parts).await;
        };
        let (node, route) = self.nodes.at(*slot)?;
        if !checks
            .iter()
            .any(|check| check.limit.with_history_if_asked().is_some())
        {
            return node.ask(clock, checks, (refused, route)).await;
        }
        let checks = apart(checks, Limit::with_history_if_asked);
        node.ask(clock, &checks, (refused, route)).await
    }

    /// Waits until somebody has told who serves what: not for long, and not at all once nobody could be asked or somebody
    /// has waited in vain.
    pub(super) async fn known(&self) -> Result<(), StoreError> {
        let nodes = &self.nodes;
        let asked = async {
            loop {
                let learned = nodes.learned.notified();
                match nodes.knowledge.get() {
                    MapKnowledge::New => learned.await,
                    MapKnowledge::Known => return Ok(()),
                    MapKnowledge::Unreachable => return Err(StoreError::Down),
                }
            }
        };
        // The question itself is to have time left.
        let patience = nodes.timeout() / 2;
        let asked = timeout(patience, asked).await;
        let known = asked.unwrap_or_else(|_| {
            nodes.unknown(&StoreError::Timeout { after: patience });
            Err(StoreError::Down)
        });
        if known.is_err() {
            nodes.stats.down.add(1);
        }
        known
    }

    pub(super) fn stats(&self) -> &Arc<Stats> {
        &self.nodes.stats
    }

    pub(super) fn timeout(&self) -> Duration {
        self.nodes.timeout()
    }

    /// Who serves a counter, if anybody does.
    pub(super) fn home(&self, limit: &Limit, key: &[u8]) -> Option<(Rc<NodeCore>, Route)> {
        self.nodes.home(limit, key)
    }

    /// Who serves the slot of what is counted for everyone.
    pub(super) async fn everyone(&self) -> Result<Rc<NodeCore>, StoreError> {
        self.known().await?;
        let (node, _) = self.nodes.at(slot::of_tag(super::layout::EVERYONE))?;
        Ok(node.shared)
    }

    /// Is there somebody who serves that?
    pub(super) fn serves_everyone(&self) -> bool {
        self.serves(slot::of_tag(super::layout::EVERYONE))
    }

    /// Is there somebody who serves this slot?
    pub(super) fn serves(&self, slot: Slot) -> bool {
        let map = self.nodes.map.borrow();
        map.at(slot).is_some_and(|node| node.shared.health.is_up())
    }

    /// Does anything wait for a master to be back?
    pub(super) fn owes(&self) -> bool {
        let all = self.nodes.all();
        all.iter().any(|node| !node.shared.owed.is_paid())
    }

    /// Is every master there?
    pub(super) fn is_up(&self) -> bool {
        self.nodes.is_up()
    }

    /// Those who have left while they were asked about.
    pub(super) fn leavers(&self) -> &Abandonments {
        &self.nodes.leavers
    }

    /// How much of it is asked?
    pub(super) fn reach(&self) -> StoreReach {
        self.nodes.reach()
    }

    /// Waits until nothing is under way any more.
    pub(super) async fn settled(&self) {
        let nodes = &self.nodes;
        loop {
            let all = nodes.all();
            for node in &all {
                node.shared.settled().await;
            }
            let quiet = all.iter().all(|node| node.shared.is_quiet());
            if quiet && nodes.underway.get() == 0 && nodes.stragglers.borrow().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Takes back what was charged for a request that does not go on.
    pub(super) fn undo(&self, clock: Option<Timestamp>, charged: &[TentativeCharge]) {
        self.nodes.undo(clock, charged);
    }

    /// Every master that serves something, once that is known; else why it is not.
    pub(super) async fn masters(&self) -> Result<Vec<Node>, StoreError> {
        let known = self.known().await;
        known.map_err(|error| self.nodes.why.borrow().clone().unwrap_or(error))?;
        Ok(self.nodes.map.borrow().masters().cloned().collect())
    }
}

impl ClusterState {
    fn timeout(&self) -> Duration {
        self.settings.timeout.min(LONGEST)
    }

    /// The node that serves a counter; where nobody does, one that will say who does when somebody does again.
    fn home(&self, limit: &Limit, key: &[u8]) -> Option<(Rc<NodeCore>, Route)> {
        let slot = slot_of(limit, key);
        let (node, route) = self.at(slot).ok().or_else(|| {
            let route = Route {
                slot,
                ..Route::default()
            };
            Some((self.all().first()?.clone(), route))
        })?;
        Some((node.shared.clone(), route))
    }

    /// What is owed to nodes that are away goes to those that serve their slots now.
    fn pass_on(&self, map: &SlotMap) {
        let away = |node: &&Node| !node.shared.health.is_up();
        for node in map.all().filter(away) {
            let home = |route: Route| map.at(route.slot).unwrap_or(node).shared.clone();
            node.shared.owed.pass_on(home);
        }
    }

    /// The node that serves a slot.
    fn at(&self, slot: Slot) -> Result<(Node, Route), StoreError> {
        let Some(node) = self.map.borrow().at(slot).cloned() else {
            self.stats.errors.add(1);
            self.stale.notify_one();
            let reason = format!("nobody serves slot {slot}");
            return Err(StoreError::Refused(reason.into()));
        };
        let route = Route {
            slot,
            ..Route::default()
        };
        Ok((node, route))
    }

    fn all(&self) -> Vec<Node> {
        self.map.borrow().all().cloned().collect()
    }

    fn is_up(&self) -> bool {
        let is_up = |node: &Node| node.shared.health.is_up();
        self.knowledge.get() == MapKnowledge::Known && self.map.borrow().masters().all(is_up)
    }

    fn reach(&self) -> StoreReach {
        let map = self.map.borrow();
        if self.is_up() && map.unserved() == 0 {
            return StoreReach::All;
        }
        if map.masters().any(|node| node.shared.health.is_up()) {
            StoreReach::Part
        } else {
            StoreReach::None
        }
    }

    /// The node there, which may be new to us.
    fn at_address(&self, address: &Address) -> Node {
        self.map.borrow_mut().node(address, || self.make(address))
    }

    /// A slot has another home than we thought.
    fn moved(&self, slot: Slot, address: &Address) -> Node {
        let node = self
            .map
            .borrow_mut()
            .moved(slot, address, || self.make(address));
        self.stale.notify_one();
        node
    }

    fn make(&self, address: &Address) -> Node {
        let member = ClusterMembership {
            nodes: self.me.clone(),
            address: address.clone(),
            // Any will do: what answers that it serves other slots is there.
            tag: RefCell::new(b"*".to_vec()),
        };
        let beside = (self.stats.clone(), self.leavers.clone());
        Node::new(&self.target, &self.settings, Some(member), beside)
    }

    /// Takes over what somebody has told.
    fn adopt(&self, ranges: &[SlotRange]) {
        let map = &mut *self.map.borrow_mut();
        map.adopt(ranges, |address| self.make(address));
        for node in map.masters() {
            let is_own = |slot| map.at(slot).is_some_and(|home| home.is(node));
            if let Some(member) = &node.shared.member
                && !is_own(slot::of_tag(&member.tag.borrow()))
                && let Some(tag) = slot::tag_of(is_own)
            {
                *member.tag.borrow_mut() = tag;
            }
        }
        self.pass_on(map);
        self.knowledge.set(MapKnowledge::Known);
        self.learned.notify_waiters();
    }
}

impl ClusterMembership {
    /// A tag that lives on this node.
    pub(super) fn tag(&self) -> Vec<u8> {
        self.tag.borrow().clone()
    }

    /// The node has come, or gone.
    pub(super) fn changed(&self, up: bool) {
        if let Some(nodes) = self.nodes.upgrade() {
            nodes.stats.set_reach(nodes.reach());
            if !up {
                nodes.stale.notify_one();
            }
        }
    }

    /// Does the node say that others serve what it was asked?
    pub(super) fn redirected(&self, reason: &str) -> bool {
        let redirected = redirect::read(reason, &self.address).is_some();
        if let Some(nodes) = self.nodes.upgrade().filter(|_| redirected) {
            nodes.stale.notify_one();
        }
        redirected
    }

    /// Gives a charge back, wherever it lives by now.
    pub(super) fn give_back(&self, clock: Option<Timestamp>, refund: Refund<'_>) {
        if let Some(nodes) = self.nodes.upgrade() {
            nodes.give_back(clock, refund);
        }
    }
}

impl ClusterState {
    fn give_back(&self, clock: Option<Timestamp>, refund: Refund<'_>) {
        match self.home(refund.limit, refund.key) {
            Some((shared, route)) => shared.give_back(clock, (route, None), refund),
            // Of a cluster of which nothing was ever known.
            None => self
                .stats
                .owed(Operation::Refund, CallOutcome::Lost, Duration::ZERO),
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("target", &self.nodes.target)
            .field("knowledge", &self.nodes.knowledge)
            .finish_non_exhaustive()
    }
}

//! One Redis, alone or a master of a cluster: its queue, its connections, its health.

use super::link::health::{ChangeListener, Health};
use super::link::pool::Connections;
use super::link::{reply, rights};
use super::queue::abandonment::comes_back;
use super::queue::call_queue::CallQueue;
use super::queue::context::StoreContext;
use super::queue::lanes::Lanes;
use super::queue::pending_decision::PendingReply;
use super::queue::pending_refunds::PendingRefunds;
use super::queue::slot_question::SlotQuestion;
use super::queue::suspicion::Suspicion;
use super::wire::question::DecisionRequest;
use super::wire::slot::CallRoute;
use crate::clock;
use crate::store::answers::Answers;
use crate::store::check::Intent;
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// One worker's view of one Redis.
pub(super) struct Node {
    /// The node's address, if it is a master of a cluster.
    pub(super) address: Option<Address>,
    /// A tag in a slot of the node, for the trial of a master of a cluster.
    pub(super) probe_tag: RefCell<Option<Vec<u8>>>,
    pub(super) context: Rc<StoreContext>,
    pub(super) connections: Connections,
    pub(super) health: Rc<Health>,
    pub(super) lanes: Rc<Lanes>,
    pub(super) queue: CallQueue,
    pub(super) updates: PendingRefunds,
    /// The time until which the shares of its slots are enforced, since it has returned.
    shares_last: Cell<Option<Instant>>,
    /// Is a forbidden command the only reason for its unavailability?
    pub(super) lacks_rights: Cell<bool>,
    /// Counters that can be neither read nor written, for one of two causes.
    pub(super) suspicion: Rc<Suspicion>,
}

/// A node and its tasks, which end with the last clone.
#[derive(Clone)]
pub(super) struct NodeHandle {
    pub(super) node: Rc<Node>,
    _tasks: Rc<Tasks>,
}

/// Tasks that end with the last clone of the object that they work for.
pub(super) struct Tasks(pub(super) Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl NodeHandle {
    pub(super) fn new(node: Rc<Node>, tasks: Vec<JoinHandle<()>>) -> Self {
        Self {
            node,
            _tasks: Rc::new(Tasks(tasks)),
        }
    }

    /// Is the node currently available?
    pub(super) fn is_up(&self) -> bool {
        self.node.health.is_up()
    }
}

impl Node {
    /// Starts to connect to the single Redis of the context's target, or to a master of its cluster, and waits for
    /// nothing.
    pub(super) fn new(
        context: &Rc<StoreContext>,
        address: Option<Address>,
        listener: ChangeListener,
    ) -> Rc<Self> {
        let target = &context.target;
        let (name, limits) = match &address {
            None => (target.to_string(), "limits"),
            Some(address) => (
                format!("{address} of {target}"),
                "limits with counters there",
            ),
        };
        let health = Rc::new(Health::new(name.into(), limits, listener));
        let lanes = Rc::new(Lanes::new(context.timeout));
        let suspicion = Rc::<Suspicion>::default();
        Rc::new(Self {
            // Any tag is suitable at first: a node that answers that it serves other slots is available.
            probe_tag: RefCell::new(address.as_ref().map(|_| b"*".to_vec())),
            connections: Connections::new(target, address.clone()),
            address,
            context: Rc::clone(context),
            queue: CallQueue::new(context, &health, &lanes),
            updates: PendingRefunds::new(context, &health, &lanes, &suspicion),
            health,
            lanes,
            shares_last: Cell::default(),
            lacks_rights: Cell::new(false),
            suspicion,
        })
    }

    /// Checks limits whose counters are all on this node, and waits for the answer.
    pub(super) async fn ask(
        &self,
        request: DecisionRequest<'_>,
        route: CallRoute,
    ) -> Result<Box<Answers>, StoreError> {
        let mut pending = PendingAnswer {
            node: self,
            request,
            reply: Some(self.enqueue(request, route)?),
        };
        if let Some(reply) = &mut pending.reply {
            reply.await;
        }
        // Without its reply, the drop of the rest has no effect.
        let reply = pending.reply.take();
        let answers =
            reply.and_then(|reply| reply.read(|reply| reply::answers(reply, request.checks)));
        answers.unwrap_or(Err(StoreError::Down))
    }

    /// Queues a decision. Returns the receiver of the reply.
    pub(super) fn enqueue(
        &self,
        request: DecisionRequest<'_>,
        route: CallRoute,
    ) -> Result<PendingReply, StoreError> {
        self.queue.admit(request)?;
        let question = self.context.decision(request);
        Ok(self.queue.push(question, request.clock, route))
    }

    /// Notes that a call that began in `era` has failed: Redis is unavailable, and every waiting decision is answered
    /// accordingly.
    pub(super) fn go_down(&self, era: u64, why: &StoreError) {
        if self.health.is_down() {
            return;
        }
        if era != self.health.era() {
            // Redis has become available since. The waiting decisions are for another connection.
            return self.lanes.wake();
        }
        if let StoreError::Refused(reason) = why
            && rights::is_refused(reason)
        {
            self.context.target.trials.forget(&self.server());
        }
        self.context.stats.falls.add(1);
        self.connections.distrust(why);
        self.health.set_down(&self.connections.explain(why));
        self.queue.set_down();
        self.updates.set_down();
        self.health.fallen.notify_one();
    }

    /// The name of the server for trials: another master is another server.
    pub(super) fn server(&self) -> String {
        let name = &self.health.outage.name;
        match self.connections.master() {
            Some(master) => format!("{name} at {master}"),
            None => name.to_string(),
        }
    }

    /// Notes that Redis has answered, and knows the slots in flight since this change of masters: Redis is available
    /// from now on.
    pub(super) fn come_up(&self, change: u64) {
        self.lacks_rights.set(false);
        self.connections.signals.set_announced(change);
        // A new node of a cluster has taken over slots that another served.
        if self.health.is_down() || self.address.is_some() {
            self.shares_last.set(Some(self.context.shares.keep()));
        }
        self.health.set_up();
        self.lanes.wake();
    }

    /// Has a former master taken so long to answer that it was paused? The new one does not know the former one's
    /// admissions, and may have been used meanwhile.
    pub(super) fn is_too_late(&self, took: Duration) -> bool {
        self.connections.signals.is_untold() && took > self.context.timeout / 2
    }

    /// Are the shares of its slots enforced?
    pub(super) fn keeps_shares(&self) -> bool {
        let ends = self.shares_last.get();
        self.health.is_up() && ends.is_some_and(|ends| clock::now() < ends)
    }

    /// Notes a call without an answer in time.
    pub(super) fn late(&self) -> StoreError {
        StoreError::Timeout {
            after: self.context.timeout,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.lanes.busy() == 0 && self.queue.is_empty() && self.updates.is_empty()
    }

    /// Waits until every decision is answered and every update is sent.
    pub(super) async fn settled(&self) {
        loop {
            let quiet = self.lanes.quiet.notified();
            if self.is_quiet() {
                return;
            }
            quiet.await;
        }
    }
}

/// The wait for the reply to one call. A drop before the reply passes it to the abandoned requests. A check that has
/// not been sent by then is not sent.
struct PendingAnswer<'a> {
    node: &'a Node,
    request: DecisionRequest<'a>,
    /// `None` once the reply has arrived.
    reply: Option<PendingReply>,
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            self.abandon(reply);
        }
    }
}

impl PendingAnswer<'_> {
    #[cold]
    fn abandon(&self, reply: PendingReply) {
        let checks = self.request.checks;
        let is_charged = self.request.intent == Intent::Charge;
        if !self.node.queue.is_unsent(reply.number())
            && is_charged
            && checks.iter().any(|check| comes_back(check.limit))
        {
            let question = SlotQuestion::only(checks, reply);
            let abandonments = &self.node.context.abandonments;
            abandonments.push(self.request, vec![question]);
        }
    }
}

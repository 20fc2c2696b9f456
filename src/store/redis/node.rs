//! One Redis, alone or a master of a cluster: its queue, its connections, its health.

use super::abandonment::PendingAnswer;
use super::call_queue::CallQueue;
use super::context::StoreContext;
use super::counter_update::{CounterUpdate, UpdateKind, UpdateSender};
use super::health::{ChangeListener, Health};
use super::lanes::Lanes;
use super::pending_refunds::PendingRefunds;
use super::pool::Connections;
use super::question::DecisionRequest;
use super::reply::{self, ReplyError, ScriptReply};
use super::slot::CallRoute;
use crate::clock::Timestamp;
use crate::store::answers::Answers;
use crate::store::check::Check;
use crate::store::decider::Decider;
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use crate::store::reservation::Refund;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// One Redis, as a worker sees it.
pub(super) struct Node {
    /// Where it is, if it is a master of a cluster.
    pub(super) address: Option<Address>,
    /// A tag that lives here, for the probe of a master of a cluster.
    pub(super) probe_tag: RefCell<Option<Vec<u8>>>,
    pub(super) context: Rc<StoreContext>,
    pub(super) connections: Connections,
    pub(super) health: Rc<Health>,
    pub(super) lanes: Rc<Lanes>,
    pub(super) queue: CallQueue,
    pub(super) updates: PendingRefunds,
}

/// A node and its tasks, which end with the last clone.
#[derive(Clone)]
pub(super) struct NodeHandle {
    pub(super) node: Rc<Node>,
    _tasks: Rc<Tasks>,
}

/// Tasks that end with the last clone of what they work for.
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
}

impl Node {
    /// Starts to connect to the one Redis of the context's target, or to a master of its cluster, and waits for nothing.
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
                "limits whose counters live there",
            ),
        };
        let health = Rc::new(Health::new(name.into(), limits, listener));
        let lanes = Rc::new(Lanes::new(context.timeout));
        Rc::new(Self {
            // Any tag will do at first: a node that answers that it serves other slots is there.
            probe_tag: RefCell::new(address.as_ref().map(|_| b"*".to_vec())),
            connections: Connections::new(target, address.clone()),
            address,
            context: Rc::clone(context),
            queue: CallQueue::new(context, &health, &lanes),
            updates: PendingRefunds::new(context, &health, &lanes),
            health,
            lanes,
        })
    }

    /// Asks about limits whose counters all live here, and waits for the answer.
    pub(super) async fn ask(
        &self,
        request: DecisionRequest<'_>,
        route: CallRoute,
    ) -> Result<Answers, StoreError> {
        let (number, receiver) = self.enqueue(request, route)?;
        let mut pending = PendingAnswer {
            abandonments: &self.context.abandonments,
            request,
            number,
            receiver,
            done: request.refused,
        };
        let reply = (&mut pending.receiver).await;
        pending.done = true;
        answers(reply, request.checks)
    }

    /// Queues a decision. Returns its number, and what receives the reply.
    pub(super) fn enqueue(
        &self,
        request: DecisionRequest<'_>,
        route: CallRoute,
    ) -> Result<(u64, oneshot::Receiver<ScriptReply>), StoreError> {
        self.queue.admit(request)?;
        let question = self.context.decision(request);
        Ok(self.queue.push(question, request.clock, route))
    }

    /// Gives one charge back, soon. `answer` receives the script's byte.
    pub(super) fn refund(
        &self,
        refund: Refund<'_>,
        clock: Option<Timestamp>,
        route: CallRoute,
        answer: Option<UpdateSender>,
    ) {
        if let Some(question) = self.context.refund(refund) {
            let update =
                CounterUpdate::of(UpdateKind::refund_of(refund.limit), refund.limit, question);
            self.updates.push(CounterUpdate {
                clock,
                route,
                answer,
                ..update
            });
        }
    }

    /// A call that began in `era` has failed: Redis is away, and every decision that waits is answered so.
    pub(super) fn go_down(&self, era: u64, why: &StoreError) {
        if self.health.is_down() {
            return;
        }
        if era != self.health.era() {
            // Redis has come up since. What waits is for another connection.
            return self.lanes.wake();
        }
        self.context.stats.falls.add(1);
        self.connections.distrust(why);
        self.health.set_down(&self.connections.explain(why));
        self.queue.set_down();
        self.updates.set_down();
        self.health.fallen.notify_one();
    }

    /// Redis has answered: it is asked from now on.
    pub(super) fn come_up(&self) {
        self.health.set_up();
        self.lanes.wake();
    }

    /// A call without an answer in time.
    pub(super) fn late(&self) -> StoreError {
        StoreError::Timeout {
            after: self.context.timeout,
        }
    }

    /// Does nothing wait for Redis to be back?
    pub(super) fn is_paid(&self) -> bool {
        self.updates.is_empty() && self.queue.is_paid()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.lanes.busy() == 0 && self.queue.is_empty() && self.is_paid()
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

/// The reply of a lane, as the answers to `checks`.
pub(super) fn answers(
    reply: Result<ScriptReply, oneshot::error::RecvError>,
    checks: &[Check<'_>],
) -> Result<Answers, StoreError> {
    match reply {
        Ok(Ok((at, measured))) => Ok(Answers::measured(checks, Decider::Redis, at, measured)),
        Ok(Err(ReplyError::Store(error))) => Err(error),
        Ok(Err(ReplyError::Limit { index, reason })) => Err(match checks.get(index) {
            Some(check) if reason.starts_with("CLOCK") => StoreError::Clock {
                limit: check.limit.name.clone(),
            },
            _ if reply::server_wide(&reason) => StoreError::Refused(reason),
            Some(check) => StoreError::Answer {
                limit: check.limit.name.clone(),
                reason,
            },
            None => StoreError::Protocol("an error of a limit not asked about"),
        }),
        // The lane ended with the worker.
        Err(_) => Err(StoreError::Down),
    }
}

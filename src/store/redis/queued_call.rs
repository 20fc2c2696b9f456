//! What waits for a node and goes with others in one call: decisions, and updates of counters.

use super::applied_marker::AppliedMarker;
use super::call_queue::{QueuedDecision, SendState};
use super::counter_update::CounterUpdate;
use super::node::Node;
use super::pending_refunds::{self, CallResult};
use super::question;
use super::reply::{self, ReplyError};
use super::route::Route;
use crate::store::error::StoreError;
use bb8_redis::redis::Cmd;

/// A decision or an update. Those that go in one call are a batch.
pub(super) trait QueuedCall: Sized + 'static {
    fn route(&mut self) -> &mut Route;

    /// The marker of the call that it went with.
    fn marker(&self) -> Option<AppliedMarker>;

    /// Puts it in front of all that waits there.
    fn put_back(self, node: &Node);

    /// The cluster did not apply it.
    fn fail(self, node: &Node, why: &StoreError);

    /// A batch is about to be sent in one call.
    fn prepare(node: &Node, batch: &mut [Self]);

    /// The call for a batch.
    fn command(node: &Node, batch: &[Self]) -> Cmd;

    /// Takes over what has become of a batch. The error is the server's, if it has one.
    fn conclude(node: &Node, batch: Vec<Self>, result: CallResult) -> Result<(), StoreError>;
}

impl QueuedCall for QueuedDecision {
    fn route(&mut self) -> &mut Route {
        &mut self.route
    }

    fn marker(&self) -> Option<AppliedMarker> {
        None
    }

    fn put_back(self, node: &Node) {
        node.queue.put_back(self);
    }

    fn fail(self, node: &Node, why: &StoreError) {
        node.queue.fail(self, why, SendState::Unsent);
    }

    fn prepare(node: &Node, batch: &mut [Self]) {
        node.context.stats.sent(batch.len());
    }

    fn command(_: &Node, batch: &[Self]) -> Cmd {
        let clock = batch.first().and_then(|first| first.clock);
        question::decide(clock, batch.iter().map(|decision| &decision.question))
    }

    fn conclude(node: &Node, batch: Vec<Self>, result: CallResult) -> Result<(), StoreError> {
        let limits = batch.iter().map(|decision| decision.question.limits());
        let replies = result.answer.and_then(|bytes| reply::read(&bytes, limits));
        let replies = match replies {
            Ok(replies) => replies,
            Err(error) => {
                for decision in batch {
                    let Self {
                        question, route, ..
                    } = &decision;
                    node.updates.release(question, *route, &error);
                    node.queue.fail(decision, &error, SendState::Sent);
                }
                return Err(error);
            }
        };
        let mut trouble = Ok(());
        for (decision, reply) in batch.into_iter().zip(replies) {
            match &reply {
                Ok(_) => node.context.stats.decisions.add(1),
                Err(wrong) => {
                    node.context.stats.errors.add(1);
                    if let ReplyError::Limit { reason, .. } = wrong
                        && reply::server_wide(reason)
                    {
                        trouble = Err(StoreError::Refused(reason.clone()));
                    }
                }
            }
            node.queue.answer(decision, reply);
        }
        trouble
    }
}

impl QueuedCall for CounterUpdate {
    fn route(&mut self) -> &mut Route {
        &mut self.route
    }

    fn marker(&self) -> Option<AppliedMarker> {
        self.marker
    }

    fn put_back(self, node: &Node) {
        node.updates.put_back(self);
    }

    fn fail(self, node: &Node, why: &StoreError) {
        node.updates.put_off(self, why);
    }

    fn prepare(node: &Node, batch: &mut [Self]) {
        node.updates.mark(batch);
    }

    fn command(node: &Node, batch: &[Self]) -> Cmd {
        pending_refunds::command(&node.context.prefix, node.address.is_some(), batch)
    }

    fn conclude(node: &Node, batch: Vec<Self>, result: CallResult) -> Result<(), StoreError> {
        node.updates.conclude(batch, result)
    }
}

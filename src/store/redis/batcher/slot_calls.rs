//! Calls to a master of a cluster: one for each slot. A node refuses a call that names two slots, even if it serves
//! both. All calls are sent in one write, and each may fail separately. A redirected call is forwarded, since nothing
//! has been run.

use crate::store::error::StoreError;
use crate::store::redis::cluster::redirect::{self, Redirection};
use crate::store::redis::cluster::router::Router;
use crate::store::redis::link::connection::{FORGOTTEN_AGAIN, RedisConnection, is_forgotten};
use crate::store::redis::link::reply::{self, ReplyError, ScriptReply};
use crate::store::redis::node::Node;
use crate::store::redis::queue::equal_questions;
use crate::store::redis::queue::pending_decision::QueuedDecision;
use crate::store::redis::queue::pending_refunds::{self, CallResult};
use crate::store::redis::wire::counter_update::{AppliedMarker, CounterUpdate};
use crate::store::redis::wire::question;
use crate::store::redis::wire::slot::CallRoute;
use crate::telemetry::metrics::Redirect;
use bb8_redis::redis::{Cmd, Pipeline, Value, cmd};
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// The most times that a call is forwarded. A cluster that is being reconfigured needs two.
const MOST_HOPS: u8 = 16;

/// The most repeats of an update while its slot is moved; after that it is postponed. A decision is repeated until its
/// time has run out.
const MOST_TRIES: u8 = 250;

/// The pause for the rest of a slot that is being moved.
const ARRIVES: Duration = Duration::from_millis(3);

/// The answer to one call.
type CallAnswer = Result<Vec<u8>, StoreError>;

/// A part of a batch that can share a call.
pub(super) struct SlotBatch<C> {
    route: CallRoute,
    pub(super) calls: Vec<C>,
}

/// A decision or an update. The decisions and updates of one call form a batch.
pub(super) trait QueuedCall: Sized + 'static {
    /// Does it end after a number of repeats? If not, its time ends it.
    const GIVES_UP: bool;

    fn route(&mut self) -> &mut CallRoute;

    /// The marker of the call that carried it.
    fn marker(&self) -> Option<AppliedMarker>;

    /// Puts it back before all waiting ones.
    fn put_back(self, node: &Node);

    /// Fails it: the cluster did not apply it.
    fn fail(self, node: &Node, why: &StoreError);

    /// Prepares a batch that is about to be sent in one call.
    fn prepare(node: &Node, batch: &mut [Self]);

    /// The call for a batch.
    fn command(node: &Node, batch: &[Self]) -> Cmd;

    /// Processes the outcome of a batch. An error is returned if the server is the cause.
    fn conclude(node: &Node, batch: Vec<Self>, result: CallResult) -> Result<(), StoreError>;
}

impl QueuedCall for QueuedDecision {
    const GIVES_UP: bool = false;

    fn route(&mut self) -> &mut CallRoute {
        &mut self.route
    }

    fn marker(&self) -> Option<AppliedMarker> {
        None
    }

    fn put_back(self, node: &Node) {
        node.queue.put_back(self);
    }

    fn fail(self, _: &Node, why: &StoreError) {
        Self::fail(self, why);
    }

    fn prepare(node: &Node, batch: &mut [Self]) {
        node.context.stats.sent(batch.len());
        equal_questions::gather(batch);
    }

    fn command(_: &Node, batch: &[Self]) -> Cmd {
        let clock = batch.first().and_then(|first| first.clock);
        question::decide(clock, batch.iter().map(|decision| &decision.question))
    }

    fn conclude(node: &Node, batch: Vec<Self>, result: CallResult) -> Result<(), StoreError> {
        let is_too_late = result.is_outdated && node.is_too_late(result.took);
        let limits = batch.iter().map(|decision| decision.question.limits());
        let (mut trouble, mut wrong, mut now) = (Ok(()), 0, None);
        let mut waiting = batch.iter();
        let is_given_up = |decision: &Self, reply: &ScriptReply| {
            is_too_late && decision.question.asks_for_slots() && reply::admits(reply)
        };
        let keep = |reply: ScriptReply| {
            match &reply {
                Ok((at, _)) => now = Some(*at),
                Err(error) => {
                    wrong += 1;
                    if let ReplyError::Limit { reason, .. } = error
                        && reply::ends_service(reason)
                    {
                        trouble = Err(StoreError::Refused(reason.clone()));
                    }
                }
            }
            if let Some(decision) = waiting.next()
                && !is_given_up(decision, &reply)
            {
                decision.keep(reply);
            }
        };
        let read = result
            .answer
            .and_then(|bytes| reply::read_each(&bytes, limits, keep));
        if let Err(error) = read {
            for decision in batch {
                node.updates
                    .release(&decision.question, decision.route, &error);
                decision.fail(&error);
            }
            return Err(error);
        }
        if let Some(now) = now {
            node.updates.answered.answered_at(now);
        }
        let stats = &node.context.stats;
        stats.errors.add(wrong);
        stats.decisions.add(batch.len() as u64 - wrong);
        if is_too_late {
            give_up_slots(node, batch);
        }
        trouble
    }
}

impl QueuedCall for CounterUpdate {
    const GIVES_UP: bool = true;

    fn route(&mut self) -> &mut CallRoute {
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

/// Abandons the decisions that have no answer though a former master has admitted them, and frees the slots in case the
/// new one knows them.
#[cold]
fn give_up_slots(node: &Node, batch: Vec<QueuedDecision>) {
    let why = StoreError::Lost("another master has taken its place".into());
    for decision in batch.into_iter().filter(|decision| !decision.is_answered()) {
        let updates = &node.updates;
        updates.release(&decision.question, decision.route, &why);
        decision.fail(&why);
    }
}

/// Forwards the parts of a batch that `node` has redirected. Returns a batch that the node has answered.
pub(super) fn follow<C: QueuedCall>(
    node: &Node,
    router: &Weak<Router>,
    batch: Vec<C>,
    answer: &CallAnswer,
) -> Option<Vec<C>> {
    let Err(StoreError::Refused(reason)) = answer else {
        return Some(batch);
    };
    let address = node.address.as_ref();
    let redirection = address.and_then(|address| redirect::read_redirection(reason, address));
    let (Some(redirection), Some(router)) = (redirection, router.upgrade()) else {
        return Some(batch);
    };
    match redirection {
        Redirection::Moved(..) => node.context.stats.redirected(Redirect::Moved),
        Redirection::Ask(_) => node.context.stats.redirected(Redirect::Ask),
        Redirection::TryAgain | Redirection::Unserved | Redirection::Crossed => {}
    }
    let is_alone = batch.len() == 1;
    for mut call in batch.into_iter().rev() {
        let route = call.route();
        if !route.goes_on(&redirection) || (C::GIVES_UP && route.tries > MOST_TRIES) {
            call.fail(node, &StoreError::Refused(reason.clone()));
            continue;
        }
        match &redirection {
            Redirection::Moved(slot, address) => {
                route.asking = false;
                send_on(call, &router.moved(*slot, address).node);
            }
            Redirection::Ask(address) => {
                route.asking = true;
                send_on(call, &router.at_address(address).node);
            }
            Redirection::TryAgain if is_alone => send_later(call, router.clone()),
            Redirection::TryAgain => send_alone(call, node, &router),
            Redirection::Unserved => {
                router.stale.notify_one();
                call.fail(node, &StoreError::Refused(reason.clone()));
            }
            Redirection::Crossed => {
                let why = "the keys of a call in several slots";
                call.fail(node, &StoreError::Protocol(why));
            }
        }
    }
    None
}

impl CallRoute {
    /// Counts a redirection. Returns whether the call is to be forwarded. While a slot is moved, a call goes back and
    /// forth between the slot's owner and the node that it is moved to: that counts as one detour, however long it
    /// lasts.
    fn goes_on(&mut self, redirection: &Redirection) -> bool {
        match redirection {
            Redirection::TryAgain => {
                self.tries = self.tries.saturating_add(1);
                self.returned = true;
            }
            Redirection::Ask(_) if std::mem::take(&mut self.returned) => {}
            _ => self.hops += 1,
        }
        self.hops <= MOST_HOPS
    }
}

fn send_on<C: QueuedCall>(call: C, node: &Node) {
    if node.health.is_down() {
        node.context.stats.down.add(1);
        return call.fail(node, &StoreError::Down);
    }
    call.put_back(node);
    node.lanes.wake();
}

/// Sends a call of several counters again, one by one: one counter may be new and another not. If each counter is sent
/// alone, it is in one of the two places or will be there soon, and the slot's owner knows the place. In the importing
/// node, a counter that has not arrived yet would start anew: before version 7, the owner redirects a call of several
/// counters even if it still has some of them.
fn send_alone<C: QueuedCall>(mut call: C, node: &Node, router: &Router) {
    let route = call.route();
    route.alone = true;
    route.asking = false;
    match router.at(route.slot) {
        Ok(home) => send_on(call, &home.node),
        Err(why) => call.fail(node, &why),
    }
}

/// Sends a call a little later to the node that serves its slot.
fn send_later<C: QueuedCall>(mut call: C, router: Rc<Router>) {
    router.underway.set(router.underway.get() + 1);
    tokio::task::spawn_local(async move {
        sleep(ARRIVES).await;
        let route = call.route();
        route.asking = false;
        match router.at(route.slot) {
            Ok(home) => send_on(call, &home.node),
            Err(why) => {
                if let Some(home) = router.all().first() {
                    call.fail(&home.node, &why);
                }
            }
        }
        router.underway.set(router.underway.get() - 1);
    });
}

/// The parts of a batch that can share a call, in order.
pub(super) fn by_slot<C: QueuedCall>(batch: Vec<C>) -> Vec<SlotBatch<C>> {
    let mut batches: Vec<SlotBatch<C>> = Vec::new();
    for mut call in batch {
        let route = CallRoute {
            hops: 0,
            tries: 0,
            returned: false,
            ..*call.route()
        };
        // Updates that were sent together stay together.
        let marker = call.marker();
        let is_with = |batch: &&mut SlotBatch<C>| {
            batch.route == route
                && batch.calls.first().map(C::marker) == Some(marker)
                && (marker.is_some() || !route.alone)
        };
        match batches.iter_mut().find(is_with) {
            Some(batch) => batch.calls.push(call),
            None => batches.push(SlotBatch {
                route,
                calls: vec![call],
            }),
        }
    }
    batches
}

/// Sends all calls in one write, and returns a reply for each. A server that has forgotten its scripts ran nothing: the
/// scripts are loaded again before the calls that it did not know, in one write.
pub(super) async fn send<C: QueuedCall>(
    connection: &mut RedisConnection,
    node: &Node,
    batches: &[SlotBatch<C>],
) -> Result<Vec<CallAnswer>, StoreError> {
    let mut replies = write(connection, node, batches, Reminder::None).await?;
    for _ in 0..FORGOTTEN_AGAIN {
        let is_forgotten = |index: &usize| replies[*index].as_ref().is_err_and(is_forgotten);
        let missing: Vec<usize> = (0..replies.len()).filter(is_forgotten).collect();
        if missing.is_empty() {
            break;
        }
        let forgotten = missing.iter().filter_map(|index| batches.get(*index));
        // A received reply stays valid for any fate of the rest.
        let more = write(connection, node, forgotten, Reminder::First).await;
        let more = more.unwrap_or_else(|error| vec![Err(error); missing.len()]);
        for (index, reply) in missing.into_iter().zip(more) {
            replies[index] = reply;
        }
    }
    Ok(replies)
}

/// The loading of scripts before calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reminder {
    None,
    /// Scripts are loaded again before the calls.
    First,
}

async fn write<'b, C: QueuedCall>(
    connection: &mut RedisConnection,
    node: &Node,
    batches: impl IntoIterator<Item = &'b SlotBatch<C>>,
    reminder: Reminder,
) -> Result<Vec<CallAnswer>, StoreError> {
    let mut commands = Pipeline::new();
    // A command before a call has an answer of its own.
    let mut is_call = Vec::new();
    let mut reminded: Vec<Vec<u8>> = Vec::new();
    for SlotBatch { route, calls } in batches {
        let call = C::command(node, calls);
        if reminder == Reminder::First
            && let Some(script) = connection.reminder(&call)
        {
            let packed = script.get_packed_command();
            if !reminded.contains(&packed) {
                reminded.push(packed);
                commands.add_command(script);
                is_call.push(false);
            }
        }
        if route.asking {
            commands.add_command(cmd("ASKING"));
            is_call.push(false);
        }
        commands.add_command(connection.shaped(call));
        is_call.push(true);
    }
    let answers = connection.many(&commands).await?;
    if answers.len() != is_call.len() {
        return Err(StoreError::Protocol("not an answer to each call"));
    }
    let answers = answers.into_iter().zip(is_call);
    let bytes = |answer| match answer {
        Ok(Value::BulkString(bytes)) => Ok(bytes),
        Ok(_) => Err(StoreError::Protocol("not a string")),
        Err(error) => Err(error),
    };
    Ok(answers
        .filter(|(_, is_call)| *is_call)
        .map(|(answer, _)| bytes(answer))
        .collect())
}

//! What waits for a master, sent as one call for each slot: a call that names two is refused, even where both live on the
//! same node. All calls go in one write, and each fails for itself. A call that was not made where it was sent is
//! sent on, for nothing has been run.

use super::super::batcher::{QueuedDecision, in_time};
use super::super::node::NodeCore;
use super::super::pending_refunds::{AppliedMarker, CounterUpdate};
use super::super::pool::{Connection, FORGOTTEN_AGAIN, is_forgotten};
use super::super::question;
use super::redirect::{self, Redirection};
use super::{ClusterMembership, ClusterState, Route};
use crate::store::error::StoreError;
use crate::telemetry::metrics::Redirect;
use bb8_redis::redis::{Cmd, Pipeline, Value, cmd};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often something is sent on. A cluster that is being changed needs two.
const MOST_HOPS: u8 = 16;

/// How often something is tried again while its slot is on its way. A decision is given up before, when its time is over.
const MOST_TRIES: u8 = 250;

/// How long to wait for the rest of a slot that is on its way.
const ARRIVES: Duration = Duration::from_millis(3);

/// What one call was answered.
type LaneReply = Result<Vec<u8>, StoreError>;

impl Route {
    /// The same slot, as if nothing had been sent yet.
    pub(in super::super) fn afresh(self) -> Self {
        Self {
            slot: self.slot,
            ..Self::default()
        }
    }
}

/// A decision or a refund that waits.
trait Redirectable: Sized + 'static {
    fn route(&mut self) -> &mut Route;

    /// By which Redis knows the call that it goes with.
    fn mark(&self) -> Option<AppliedMarker>;

    /// Puts it in front of all that waits there.
    fn put_back(self, node: &NodeCore);

    /// It is not to be.
    fn fails(self, node: &NodeCore, why: StoreError);
}

impl Redirectable for QueuedDecision {
    fn route(&mut self) -> &mut Route {
        &mut self.route
    }

    fn mark(&self) -> Option<AppliedMarker> {
        None
    }

    fn put_back(self, node: &NodeCore) {
        node.decisions.borrow_mut().push_front(self);
    }

    fn fails(self, node: &NodeCore, why: StoreError) {
        node.forsake(self, &why, false);
    }
}

impl Redirectable for CounterUpdate {
    fn route(&mut self) -> &mut Route {
        &mut self.route
    }

    fn mark(&self) -> Option<AppliedMarker> {
        self.mark
    }

    fn put_back(self, node: &NodeCore) {
        node.put_back(self);
    }

    fn fails(self, node: &NodeCore, why: StoreError) {
        node.put_off(self, &why);
    }
}

impl NodeCore {
    /// Decides all of `batch`, slot by slot. The error is the node's, if it has one.
    pub(in super::super) async fn decide_slots(
        &self,
        member: &ClusterMembership,
        connection: &mut Connection,
        batch: Vec<QueuedDecision>,
    ) -> Result<(), StoreError> {
        // What was sent here from elsewhere may be older than what waited here.
        let Some(oldest) = batch.iter().map(|asked| asked.arrived).min() else {
            return Ok(());
        };
        let groups = by_slot(batch);
        for (_, group) in &groups {
            self.stats.sent(group.len());
        }
        let build = |group: &Vec<QueuedDecision>| {
            let clock = group.first().and_then(|first| first.clock);
            question::decide(clock, group.iter().map(|asked| &asked.question))
        };
        let answers = self
            .call_all(connection, oldest + self.timeout, &groups, build)
            .await;
        let mut trouble = Ok(());
        for ((_, group), answer) in groups.into_iter().zip(answers) {
            if let Some((group, answer)) = self.followed(member, group, answer) {
                trouble = trouble.and(self.decided(group, answer));
            }
        }
        trouble
    }

    /// Likewise.
    pub(in super::super) async fn refund_slots(
        &self,
        member: &ClusterMembership,
        connection: &mut Connection,
        batch: Vec<CounterUpdate>,
    ) -> Result<(), StoreError> {
        let mut groups = by_slot(batch);
        for (_, group) in &mut groups {
            self.mark(group);
        }
        let build = |group: &Vec<CounterUpdate>| self.call_of(group);
        let sent = Instant::now();
        let deadline = sent + self.timeout;
        let answers = self.call_all(connection, deadline, &groups, build).await;
        let took = sent.elapsed();
        let mut trouble = Ok(());
        for ((_, group), answer) in groups.into_iter().zip(answers) {
            if let Some((group, answer)) = self.followed(member, group, answer) {
                trouble = trouble.and(self.refunded(group, (answer, took)));
            }
        }
        trouble
    }

    /// One call for each group; an answer for each.
    async fn call_all<W>(
        &self,
        connection: &mut Connection,
        deadline: Instant,
        groups: &[(Route, Vec<W>)],
        build: impl Fn(&Vec<W>) -> Cmd,
    ) -> Vec<LaneReply> {
        let made = in_time(deadline, calls(connection, groups, build)).await;
        let made = made.unwrap_or_else(|| Err(self.late()));
        made.unwrap_or_else(|error| vec![Err(error); groups.len()])
    }

    /// Sends a group on that was not asked here; else gives it back.
    fn followed<W: Redirectable>(
        &self,
        member: &ClusterMembership,
        group: Vec<W>,
        answer: LaneReply,
    ) -> Option<(Vec<W>, LaneReply)> {
        let reason = match &answer {
            Err(StoreError::Refused(reason)) => reason.clone(),
            _ => return Some((group, answer)),
        };
        let (Some(instead), Some(nodes)) = (
            redirect::read(&reason, &member.address),
            member.nodes.upgrade(),
        ) else {
            return Some((group, answer));
        };
        match instead {
            Redirection::Moved(..) => self.stats.redirected(Redirect::Moved),
            Redirection::Ask(_) => self.stats.redirected(Redirect::Ask),
            Redirection::TryAgain | Redirection::Unserved | Redirection::Crossed => {}
        }
        let many = group.len();
        for mut one in group.into_iter().rev() {
            let route = one.route();
            match instead {
                Redirection::TryAgain => route.tries = route.tries.saturating_add(1),
                _ => route.hops += 1,
            }
            if route.hops > MOST_HOPS || route.tries > MOST_TRIES {
                one.fails(self, StoreError::Refused(reason.clone()));
                continue;
            }
            match &instead {
                Redirection::Moved(slot, address) => {
                    route.asking = false;
                    send_on(one, &nodes.moved(*slot, address).shared);
                }
                Redirection::Ask(address) => {
                    route.asking = true;
                    send_on(one, &nodes.at_address(address).shared);
                }
                // Of several one may be new and another not. Alone each is in one of the two places, or will be, and its home
                // knows in which. Where a slot arrives one that has not come yet would begin anew: before version 7 a home
                // sends several there of which it still has some.
                Redirection::TryAgain if many > 1 => {
                    route.alone = true;
                    route.asking = false;
                    match nodes.at(route.slot) {
                        Ok((home, _)) => send_on(one, &home.shared),
                        Err(why) => one.fails(self, why),
                    }
                }
                Redirection::TryAgain => send_later(one, nodes.clone()),
                Redirection::Unserved => {
                    nodes.stale.notify_one();
                    one.fails(self, StoreError::Refused(reason.clone()));
                }
                Redirection::Crossed => {
                    one.fails(
                        self,
                        StoreError::Protocol("the keys of a call in several slots"),
                    );
                }
            }
        }
        None
    }
}

fn send_on<W: Redirectable>(one: W, node: &NodeCore) {
    if node.health.is_down() {
        node.stats.down.add(1);
        return one.fails(node, StoreError::Down);
    }
    one.put_back(node);
    node.wake();
}

/// To whoever serves the slot by then.
fn send_later<W: Redirectable>(mut one: W, nodes: Rc<ClusterState>) {
    nodes.underway.set(nodes.underway.get() + 1);
    tokio::task::spawn_local(async move {
        sleep(ARRIVES).await;
        one.route().asking = false;
        let slot = one.route().slot;
        match nodes.at(slot) {
            Ok((node, _)) => send_on(one, &node.shared),
            Err(why) => {
                if let Some(node) = nodes.all().first() {
                    one.fails(&node.shared, why);
                }
            }
        }
        nodes.underway.set(nodes.underway.get() - 1);
    });
}

/// Those that can share a call, in order.
fn by_slot<W: Redirectable>(batch: Vec<W>) -> Vec<(Route, Vec<W>)> {
    let mut groups: Vec<(Route, Vec<W>)> = Vec::new();
    for mut one in batch {
        let route = *one.route();
        let key = Route {
            hops: 0,
            tries: 0,
            ..route
        };
        // What has been sent together stays together.
        let mark = one.mark();
        let is_with = |other: &Route, group: &[W]| {
            let same = group.first().map(W::mark) == Some(mark);
            *other == key && same && (mark.is_some() || !key.alone)
        };
        let mut known = groups.iter_mut();
        match known.find(|(other, group)| is_with(other, group)) {
            Some((_, group)) => group.push(one),
            None => groups.push((key, vec![one])),
        }
    }
    groups
}

/// All calls in one write. A server that has forgotten its scripts ran nothing: it is told them again in front of what it
/// did not know, in one write.
async fn calls<W>(
    connection: &mut Connection,
    groups: &[(Route, Vec<W>)],
    build: impl Fn(&Vec<W>) -> Cmd,
) -> Result<Vec<LaneReply>, StoreError> {
    let all: Vec<usize> = (0..groups.len()).collect();
    let mut answers = write(connection, groups, (&all, false), &build).await?;
    let unknown = |answer: &LaneReply| answer.as_ref().is_err_and(is_forgotten);
    for _ in 0..FORGOTTEN_AGAIN {
        let again = all.iter().copied();
        let again: Vec<usize> = again
            .filter(|index| answers.get(*index).is_some_and(unknown))
            .collect();
        if again.is_empty() {
            break;
        }
        // What has been answered is answered, whatever becomes of the rest.
        let more = write(connection, groups, (&again, true), &build).await;
        let more = more.unwrap_or_else(|error| vec![Err(error); again.len()]);
        for (index, answer) in again.into_iter().zip(more) {
            answers[index] = answer;
        }
    }
    Ok(answers)
}

async fn write<W>(
    connection: &mut Connection,
    groups: &[(Route, Vec<W>)],
    (which, remind): (&[usize], bool),
    build: &impl Fn(&Vec<W>) -> Cmd,
) -> Result<Vec<LaneReply>, StoreError> {
    let mut commands = Pipeline::with_capacity(which.len());
    // What stands in front of a call has an answer of its own.
    let mut is_call = Vec::with_capacity(which.len());
    let mut reminded: Vec<Vec<u8>> = Vec::new();
    for (route, group) in which.iter().filter_map(|index| groups.get(*index)) {
        let call = build(group);
        if let Some(reminder) = connection.reminder(&call).filter(|_| remind) {
            let packed = reminder.get_packed_command();
            if !reminded.contains(&packed) {
                reminded.push(packed);
                commands.add_command(reminder);
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

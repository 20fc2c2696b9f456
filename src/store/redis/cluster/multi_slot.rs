//! A request whose limits live in several slots: one question for each slot, asked at once. When any refuses, what the
//! others were charged goes back, and nobody waits for it: never too much is admitted, and for about a round trip others
//! may find a little less than there is.

use super::super::abandonment::{OwnedCheck, comes_back};
use super::super::node::answered;
use super::super::reply::ScriptReply;
use super::slot::Slot;
use super::{ClusterState, slot_of};
use crate::clock::Timestamp;
use crate::limit::Limit;
use crate::limit::verdict::INLINE_LIMITS;
use crate::store::answers::{Answers, PartialOutage, TentativeCharge};
use crate::store::check::{Charge, Check, Refund, apart};
use crate::store::error::StoreError;
use crate::store::shadow::Charges;
use smallvec::SmallVec;
use std::rc::Rc;
use tokio::sync::oneshot::Receiver;

/// Positions among the limits of a request.
type LimitPositions = SmallVec<[usize; INLINE_LIMITS]>;

/// A request's limits by the slots of their counters.
pub(super) type SlotParts = SmallVec<[(Slot, LimitPositions); INLINE_LIMITS]>;

pub(super) fn parts(checks: &[Check<'_>]) -> SlotParts {
    let mut parts = SlotParts::new();
    for (index, check) in checks.iter().enumerate() {
        let slot = slot_of(check.limit, check.key);
        match parts.iter_mut().find(|(other, _)| *other == slot) {
            Some((_, indexes)) => indexes.push(index),
            None => parts.push((slot, LimitPositions::from_slice(&[index]))),
        }
    }
    parts
}

/// The limits that live in one slot, and what became of asking about them.
struct SlotPart {
    indexes: LimitPositions,
    state: SlotAnswer,
}

#[allow(
    clippy::large_enum_variant,
    reason = "it lives in a list that is made once, and nearly always becomes the large one"
)]
enum SlotAnswer {
    Asked(Receiver<ScriptReply>),
    Answered(Result<Answers, StoreError>),
}

impl SlotPart {
    fn checks<'a>(&self, checks: &[Check<'a>]) -> SmallVec<[Check<'a>; INLINE_LIMITS]> {
        let own = self.indexes.iter().filter_map(|index| checks.get(*index));
        own.copied().collect()
    }

    /// Waits for the answer, if it is not there yet. May be dropped and begun again.
    async fn answer(&mut self, checks: &[Check<'_>]) {
        if let SlotAnswer::Asked(receiver) = &mut self.state {
            let told = receiver.await;
            self.state = SlotAnswer::Answered(answered(told, &self.checks(checks)));
        }
    }
}

/// Asks about `checks`, which live in several slots.
pub(super) async fn ask(
    nodes: &Rc<ClusterState>,
    (clock, refused): (Option<Timestamp>, bool),
    checks: &[Check<'_>],
    parts: SlotParts,
) -> Result<Answers, StoreError> {
    let checks = &apart(checks, Limit::with_history);
    let parts = parts.into_iter().map(|(slot, indexes)| {
        let mut part = SlotPart {
            indexes,
            state: SlotAnswer::Answered(Err(StoreError::Down)),
        };
        let asked = nodes.at(slot).and_then(|(node, route)| {
            let checks = part.checks(checks);
            node.shared.enqueue(clock, &checks, (refused, route))
        });
        part.state = match asked {
            Ok((_, receiver)) => SlotAnswer::Asked(receiver),
            Err(error) => SlotAnswer::Answered(Err(error)),
        };
        part
    });
    let mut asking = MultiSlotWait {
        nodes,
        checks,
        clock,
        parts: parts.collect(),
        done: refused,
    };
    for part in &mut asking.parts {
        part.answer(checks).await;
    }
    asking.done = true;
    let whole = whole(checks, &asking.parts, false)?;
    if refused {
        // Nothing was to be charged.
        return Ok(CombinedAnswer {
            charged: Vec::new(),
            ..whole
        }
        .half(checks));
    }
    if whole.refused {
        nodes.undo(clock, &whole.charged);
    }
    Ok(whole.half(checks))
}

/// Waits for the answers. Dropping it before all are there leaves them to the straggler's task.
struct MultiSlotWait<'a> {
    nodes: &'a Rc<ClusterState>,
    checks: &'a [Check<'a>],
    clock: Option<Timestamp>,
    parts: Vec<SlotPart>,
    /// Nothing is to be given back.
    done: bool,
}

impl Drop for MultiSlotWait<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let checks = self.checks.iter().enumerate();
        let left = AbandonedMultiSlot {
            clock: self.clock,
            checks: checks
                .map(|(index, check)| OwnedCheck::of(index, check))
                .collect(),
            parts: std::mem::take(&mut self.parts),
        };
        self.nodes.stragglers.borrow_mut().push(left);
        self.nodes.late.notify_one();
    }
}

/// A request that has left before all of its slots had answered.
pub(super) struct AbandonedMultiSlot {
    clock: Option<Timestamp>,
    checks: Vec<OwnedCheck>,
    parts: Vec<SlotPart>,
}

/// Sees to it that those who left are charged nothing by a request that was refused, and of one that was admitted
/// nothing that only who goes on can use.
pub(super) async fn see_to(nodes: Rc<ClusterState>) {
    loop {
        nodes.late.notified().await;
        let left = nodes.stragglers.take();
        nodes.underway.set(nodes.underway.get() + left.len());
        for mut straggler in left {
            straggler.conclude(&nodes).await;
            nodes.underway.set(nodes.underway.get() - 1);
        }
    }
}

impl AbandonedMultiSlot {
    async fn conclude(&mut self, nodes: &ClusterState) {
        let checks: Vec<Check<'_>> = self.checks.iter().map(OwnedCheck::check).collect();
        for part in &mut self.parts {
            part.answer(&checks).await;
        }
        let Ok(whole) = whole(&checks, &self.parts, true) else {
            return;
        };
        let decided = !whole.refused && whole.why.is_none();
        if !decided {
            return nodes.undo(self.clock, &whole.charged);
        }
        for tentative in &whole.charged {
            if comes_back(&tentative.charge.limit) && !nodes.leave_behind(self.clock, tentative) {
                nodes.give_back(self.clock, Refund::from(&tentative.charge));
            }
        }
    }
}

impl ClusterState {
    /// Takes back what was charged for a request that does not go on: all of it, but for places in queues, which go back
    /// in their order.
    pub(super) fn undo(&self, clock: Option<Timestamp>, charged: &[TentativeCharge]) {
        for tentative in charged {
            if self.leave_behind(clock, tentative) {
                continue;
            }
            let Charge {
                limit, key, ticket, ..
            } = &tentative.charge;
            let ticket = limit.abandoned(*ticket, tentative.at);
            self.give_back(clock, Refund { limit, key, ticket });
        }
    }

    /// Hands a place in a queue over, if somebody takes it.
    fn leave_behind(&self, clock: Option<Timestamp>, tentative: &TentativeCharge) -> bool {
        let queues = tentative.charge.limit.rule.queues() && clock.is_none();
        let Some(heir) = self.leavers.heir.get().filter(|_| queues) else {
            return false;
        };
        heir(tentative.charge.clone(), tentative.turn);
        true
    }
}

/// All answers together.
struct CombinedAnswer<'a> {
    parts: &'a [SlotPart],
    /// What the parts were charged, each for itself.
    charged: Vec<TentativeCharge>,
    /// Does any limit refuse that decides?
    refused: bool,
    /// Why a part did not answer, if one did not.
    why: Option<StoreError>,
}

/// Puts the answers together. Nothing is known when nobody answered. `left` is who has asked.
fn whole<'a>(
    checks: &[Check<'_>],
    parts: &'a [SlotPart],
    left: bool,
) -> Result<CombinedAnswer<'a>, StoreError> {
    let (mut refused, mut why, mut silent) = (false, None, 0);
    for part in parts {
        match &part.state {
            SlotAnswer::Answered(Ok(half)) => {
                refused |= !Charges::of(&part.checks(checks), &half.measured, false).admitted;
            }
            SlotAnswer::Answered(Err(error)) => {
                silent += 1;
                why.get_or_insert_with(|| error.clone());
            }
            SlotAnswer::Asked(_) => silent += 1,
        }
    }
    if silent == parts.len() {
        return Err(why.unwrap_or(StoreError::Down));
    }
    let mut charged = Vec::new();
    // Mostly all agree, and everything stays where it is.
    if refused || left || why.is_some() {
        parts
            .iter()
            .for_each(|part| part.charges(checks, &mut charged));
    }
    Ok(CombinedAnswer {
        parts,
        charged,
        refused,
        why,
    })
}

impl SlotPart {
    /// Adds what was charged here.
    fn charges(&self, checks: &[Check<'_>], charged: &mut Vec<TentativeCharge>) {
        let SlotAnswer::Answered(Ok(half)) = &self.state else {
            return;
        };
        let checks = self.checks(checks);
        let charges = Charges::of(&checks, &half.measured, false);
        for (index, (check, measured)) in checks.iter().zip(&half.measured).enumerate() {
            let ticket = check.ticket(half.at, *measured);
            if let Some(ticket) = ticket.filter(|_| charges.has(index)) {
                charged.push(TentativeCharge {
                    charge: Charge {
                        limit: check.limit.clone(),
                        key: check.key.into(),
                        ticket,
                        by: None,
                    },
                    at: half.at,
                    turn: check.turn(half.at, *measured),
                });
            }
        }
    }
}

impl CombinedAnswer<'_> {
    /// The measurements in the order of the limits, each with its own node's instant.
    fn half(self, checks: &[Check<'_>]) -> Answers {
        let mut half = Answers::whole(
            Timestamp::default(),
            checks.iter().map(Check::nobody).collect(),
        );
        let mut known = vec![None; checks.len()];
        for part in self.parts {
            let SlotAnswer::Answered(Ok(answer)) = &part.state else {
                continue;
            };
            half.at = half.at.max(answer.at);
            for (index, measured) in part.indexes.iter().zip(&answer.measured) {
                half.measured[*index] = *measured;
                known[*index] = Some(answer.at);
            }
        }
        half.instants = known.iter().map(|at| at.unwrap_or(half.at)).collect();
        half.gap = self.why.map(|why| {
            let unknown = known.iter().enumerate().filter(|(_, at)| at.is_none());
            Box::new(PartialOutage {
                unknown: unknown.map(|(index, _)| index).collect(),
                charged: if self.refused {
                    Vec::new()
                } else {
                    self.charged
                },
                refused: self.refused,
                why,
            })
        });
        half
    }
}

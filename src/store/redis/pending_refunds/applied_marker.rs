//! By which Redis knows a call that must not be made twice.

use super::CounterUpdate;
use crate::store::redis::node::NodeCore;
use crate::store::redis::{layout, question};
use bb8_redis::redis::Cmd;
use tokio::time::Instant;

/// By which Redis knows a call: its name, which others had before it, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) struct AppliedMarker {
    pub(super) name: u64,
    pub(super) number: u64,
    /// When it was sent first.
    pub(super) since: Instant,
}

impl NodeCore {
    /// Has what goes in one call be known by it, if that must not be made twice. By a clock of the caller's nothing is
    /// repeated.
    pub(in crate::store::redis) fn mark(&self, batch: &mut [CounterUpdate]) {
        let is_new = batch.first().is_some_and(|first| first.mark.is_none());
        let adds_up = |one: &CounterUpdate| one.adds_up() && one.clock.is_none();
        if !is_new || !batch.iter().any(adds_up) {
            return;
        }
        let free = self.owed.names.borrow_mut().pop();
        let (name, last) = free.unwrap_or_else(|| (fastrand::u64(..), 0));
        let mark = AppliedMarker {
            name,
            number: last + 1,
            since: Instant::now(),
        };
        for one in batch {
            one.mark = Some(mark);
        }
    }

    /// One call for all of `batch`.
    pub(in crate::store::redis) fn call_of(&self, batch: &[CounterUpdate]) -> Cmd {
        let first = batch.first();
        let clock = first.and_then(|first| first.clock);
        let mark = first.and_then(|first| {
            let mark = first.mark?;
            // Of a cluster it lives where the counters do.
            let beside = first
                .question
                .keys()
                .next()
                .filter(|_| self.member.is_some());
            Some((layout::mark(&self.prefix, beside, mark.name), mark.number))
        });
        question::refund(clock, batch.iter().map(|one| &one.question), mark)
    }
}

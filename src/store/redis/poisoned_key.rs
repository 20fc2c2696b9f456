//! A request of which one limit cannot be counted: it is asked again without that one, for nothing was charged; the others
//! are decided where they live, and `on_down` answers for the one alone.

use super::RedisStore;
use crate::limit::verdict::INLINE_LIMITS;
use crate::store::answers::{Answers, PartialOutage, TentativeCharge};
use crate::store::check::{Charge, Check};
use crate::store::error::StoreError;
use crate::store::shadow::Charges;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::timeout_at;

type Few<T> = SmallVec<[T; INLINE_LIMITS]>;

impl RedisStore {
    /// Decides of `checks`, asked in vain at `asked`, those that can be decided: each limit that cannot falls out of the
    /// question once. All of it within the settings' `timeout`.
    ///
    /// # Errors
    /// Where none can be, one that cannot be `is_shut` meanwhile, or something may have been charged.
    pub(in crate::store) async fn measure_without(
        &self,
        checks: &[Check<'_>],
        (refused, asked): (bool, Instant),
        (why, is_shut): (StoreError, impl Fn(&Check<'_>) -> bool),
    ) -> Result<Answers, StoreError> {
        let deadline = asked + self.timeout();
        let mut out: Few<Arc<str>> = Few::new();
        let mut last = why.clone();
        loop {
            match uncounted(&last) {
                // Its rates go together.
                Some(name) if !out.contains(name) => out.push(Arc::clone(name)),
                _ => return Err(last),
            }
            let is_out = |check: &Check<'_>| out.contains(&check.limit.name);
            // What is not to pass anyhow charges nobody.
            if checks.iter().any(|check| is_out(check) && is_shut(check)) {
                return Err(last);
            }
            let rest = checks.iter().copied().filter(|check| !is_out(check));
            let rest: Few<Check<'_>> = rest.collect();
            if rest.is_empty() {
                return Err(why);
            }
            let after = self.timeout();
            let told = timeout_at(deadline.into(), self.ask(None, &rest, refused)).await;
            match told.unwrap_or(Err(StoreError::Timeout { after })) {
                Ok(half) => return Ok(with_gap(checks, (&rest, half), refused, why)),
                Err(error) => last = error,
            }
        }
    }
}

/// The limit that could not be read while nothing was written yet. What is refused for another reason may have been
/// refused at a write, with another limit's before it.
fn uncounted(error: &StoreError) -> Option<&Arc<str>> {
    match error {
        StoreError::Answer { limit, reason } if reason.contains("WRONGTYPE") => Some(limit),
        StoreError::Clock { limit } => Some(limit),
        _ => None,
    }
}

/// What was measured of `rest`, among all of `checks`.
fn with_gap(
    checks: &[Check<'_>],
    (rest, mut half): (&[Check<'_>], Answers),
    refused: bool,
    why: StoreError,
) -> Answers {
    let is_asked = |check: &Check<'_>| rest.iter().any(|other| other.limit.id == check.limit.id);
    let asked: Few<usize> = (0..checks.len())
        .filter(|index| is_asked(&checks[*index]))
        .collect();
    let (mut gone, mut charged) = (Vec::new(), Vec::new());
    let by_others = match half.gap.take() {
        // Some of the rest are away as well.
        Some(gap) => {
            gone.extend(gap.unknown.iter().filter_map(|index| asked.get(*index)));
            charged = gap.charged;
            gap.refused
        }
        None => {
            let charges = Charges::of(rest, &half.measured, refused);
            for (index, (check, measured)) in rest.iter().zip(&half.measured).enumerate() {
                let at = half.instant(index);
                let ticket = check.ticket(at, *measured);
                charged.extend(ticket.filter(|_| charges.has(index)).map(|ticket| {
                    TentativeCharge {
                        charge: Charge {
                            limit: Arc::clone(check.limit),
                            key: check.key.into(),
                            ticket,
                            by: None,
                        },
                        at,
                        turn: check.turn(at, *measured),
                    }
                }));
            }
            !Charges::of(rest, &half.measured, false).admitted
        }
    };
    let mut whole = half.among(checks, |index| asked.contains(&index));
    // Who answers for the others has a clock of its own.
    whole.instants = (0..checks.len())
        .map(|index| whole.instant(index))
        .collect();
    gone.extend((0..checks.len()).filter(|index| !asked.contains(index)));
    gone.sort_unstable();
    whole.gap = Some(Box::new(PartialOutage {
        unknown: gone,
        charged,
        refused: by_others,
        why,
    }));
    whole
}

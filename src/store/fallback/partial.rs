//! A request of which some limits were decided, and others could not be: the master where they live is away. What was
//! decided holds; for the rest, and for it alone, `on_down` answers.

use super::super::answers::{Answers, PartialOutage};
use super::super::check::Check;
use super::super::decider::Decider;
use super::super::error::StoreError;
use super::super::redis::RedisStore;
use super::super::shadow::Charges;
use super::super::tell_remedy;
use super::Fallback;
use crate::limit::OnDown;
use crate::limit::verdict::INLINE_LIMITS;
use smallvec::SmallVec;

impl Fallback<'_> {
    /// Fills what nobody measured, if there is such a thing. Of a request that is `refused` already nothing is charged.
    pub(in crate::store) fn fill(
        &self,
        checks: &[Check<'_>],
        mut half: Answers,
        (refused, shared): (bool, &RedisStore),
    ) -> Result<Answers, StoreError> {
        let Some(gap) = half.gap.take() else {
            return Ok(half);
        };
        tell_remedy(&gap.why);
        let PartialOutage {
            unknown,
            charged,
            refused: by_others,
            why,
        } = *gap;
        // What refuses is known, whatever the rest would say.
        if by_others {
            let open = unknown.iter().map(|index| (*index, Decider::Open));
            half.others.extend(open);
            return Ok(half);
        }
        let rest: SmallVec<[Check<'_>; INLINE_LIMITS]> = unknown
            .iter()
            .filter_map(|index| checks.get(*index).copied())
            .collect();
        let (own, by) = match self.decide(&rest, refused, why) {
            Ok(answer) => answer,
            Err(why) => {
                shared.undo(&charged);
                return Err(why);
            }
        };
        if let Some(own) = &own
            && !Charges::of(&rest, &own.measured, false).admitted
        {
            shared.undo(&charged);
        }
        for (position, (index, check)) in unknown.iter().zip(&rest).enumerate() {
            let counted = own.as_ref().filter(|_| self.does(check) == OnDown::Local);
            half.others.push(match counted {
                Some(_) => (*index, by),
                None => (*index, Decider::Open),
            });
            let Some(own) = counted else {
                continue;
            };
            if let Some(measured) = own.measured.get(position) {
                half.measured[*index] = *measured;
            }
            if let Some(at) = half.instants.get_mut(*index) {
                *at = own.at;
            }
        }
        Ok(half)
    }
}

//! A request of which some limits were decided, and others could not be: the master where they live is away. What was
//! decided holds; for the rest, and for it alone, `on_down` answers.

use super::away::StandIn;
use super::batch::Check;
use super::beside::Charges;
use super::decided_by::DecidedBy;
use super::error::StoreError;
use super::half::{Gap, Half};
use super::redis::RedisStore;
use super::tell_remedy;
use crate::limit::OnDown;
use crate::limit::verdict::INLINE_LIMITS;
use smallvec::SmallVec;

impl StandIn<'_> {
    /// Fills what nobody measured, if there is such a thing. Of a request that is `refused` already nothing is charged.
    pub(super) fn fill(
        &self,
        checks: &[Check<'_>],
        mut half: Half,
        (refused, shared): (bool, &RedisStore),
    ) -> Result<Half, StoreError> {
        let Some(gap) = half.gap.take() else {
            return Ok(half);
        };
        tell_remedy(&gap.why);
        let Gap {
            unknown,
            charged,
            refused: by_others,
            why,
        } = *gap;
        // What refuses is known, whatever the rest would say.
        if by_others {
            let open = unknown.iter().map(|index| (*index, DecidedBy::Open));
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
                None => (*index, DecidedBy::Open),
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

//! Other numbers of a limit for the members of a group. A tier is the limit itself, under its name, on counters of its own:
//! a key may stand for members and others in turn (an address, say), and what the one may have held would be impossible
//! for the other.

use super::Limit;
use crate::key::{Caller, Doubt, Group, KeyPart, Memberships};
use std::sync::Arc;

/// What holds for a group.
#[derive(Debug, Clone)]
pub struct Tier {
    /// Whose members it is for.
    pub group: Arc<Group>,
    /// The limit with their numbers.
    pub limit: Arc<Limit>,
}

impl Limit {
    /// Is `other` this limit, or one of its tiers?
    #[must_use]
    pub fn is(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let mut tiers = self.tiers.iter();
        Arc::ptr_eq(self, other) || tiers.any(|tier| Arc::ptr_eq(&tier.limit, other))
    }

    /// The position of the tier that holds for `caller`, whose key stands in `keys` from `start` to the end.
    ///
    /// # Errors
    /// When an upstream may read what a tier's group goes by otherwise.
    pub fn tier_of<'a>(
        &'a self,
        standing: &mut Memberships<'a>,
        caller: &Caller<'_>,
        keys: &mut Vec<u8>,
        start: usize,
    ) -> Result<Option<usize>, Doubt<'a>> {
        let written = Some((&self.by, start));
        for (position, tier) in self.tiers.iter().enumerate() {
            if standing.is_in(&tier.group, caller, keys, written)? {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// Does it, or a group of it, ask what a token claims?
    #[must_use]
    pub fn asks_token(&self) -> bool {
        let tiers = self.tiers.iter().map(|tier| &tier.group.by);
        let exempt = self.exempt.iter().flat_map(|exempt| &exempt.groups);
        let mut parts = self
            .by
            .parts
            .iter()
            .chain(tiers)
            .chain(exempt.map(|group| &group.by));
        parts.any(|part| matches!(part, KeyPart::Jwt { .. }))
    }
}

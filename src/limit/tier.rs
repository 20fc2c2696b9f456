//! Other numbers of a limit for the members of a group. A tier is the limit itself, under its name, on separate
//! counters. One key may belong to members and others in turn (an address, for instance), and a state that is possible
//! under one set of numbers would be impossible under the other.

use super::Limit;
use crate::key::{Caller, Doubt, Group, Memberships};
use std::sync::Arc;

/// A limit's numbers for a group.
#[derive(Debug, Clone)]
pub struct Tier {
    /// The group.
    pub group: Arc<Group>,
    /// The limit with the group's numbers.
    pub limit: Arc<Limit>,
}

impl Limit {
    /// Is `other` this limit, or one of its tiers?
    #[must_use]
    pub fn is(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let mut tiers = self.tiers.iter();
        Arc::ptr_eq(self, other) || tiers.any(|tier| Arc::ptr_eq(&tier.limit, other))
    }

    /// The position of the tier that applies to `caller`, whose key is in `keys` from `start` to the end.
    ///
    /// # Errors
    /// If an upstream may read the value that a tier's group depends on differently.
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

    /// Does a group of the limit or of its exemption depend on a token's claims?
    #[must_use]
    pub fn asks_token(&self) -> bool {
        let tiers = self.tiers.iter().map(|tier| &tier.group);
        let exempt = self.exempt.iter().flat_map(|exempt| &exempt.groups);
        let mut groups = tiers.chain(exempt);
        self.by.asks_token() || groups.any(|group| group.uses_token())
    }
}

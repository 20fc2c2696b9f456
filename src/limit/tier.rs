//! Other numbers of a limit for the members of a group. A tier is the limit itself, under its name, on separate
//! counters: one key may belong to members and others in turn (an address, for instance). Only where a limit counts
//! customers do its tiers share a counter, since a plan is the customer's.

pub mod customer_numbers;

use super::Limit;
use crate::key::{Caller, CustomerName, CustomerReading, Doubt, Group, Memberships};
use std::sync::Arc;

/// A limit's numbers for a group.
#[derive(Debug, Clone)]
pub struct Tier {
    /// The group.
    pub group: Arc<Group>,
    /// The limit with the group's numbers.
    pub limit: Arc<Limit>,
}

/// Whose numbers of a limit apply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumbersChoice {
    /// The limit's.
    Limit,
    /// Those of the tier at this position.
    Tier(usize),
    /// Those of a customer: a position among the limits with customers' numbers.
    Customer(usize),
}

impl Limit {
    /// Is `other` this limit, perhaps with the numbers of a tier or of a customer?
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        (&self.name, self.mode, self.rank) == (&other.name, other.mode, other.rank)
    }

    /// The limit with the chosen numbers.
    #[inline]
    #[must_use]
    pub fn with_choice(self: &Arc<Self>, choice: NumbersChoice) -> &Arc<Self> {
        match choice {
            NumbersChoice::Limit => self,
            NumbersChoice::Tier(tier) => &self.tiers[tier].limit,
            NumbersChoice::Customer(position) => {
                let numbers = self.customer_numbers.as_ref();
                let limit = numbers.and_then(|numbers| numbers.limit(position));
                limit.unwrap_or(self)
            }
        }
    }

    /// Whose numbers apply to `caller`, whose key is in `keys` from `start` to the end: the customer's, else those of a
    /// tier, else the limit's.
    ///
    /// # Errors
    /// If an upstream may read the value that a tier's group depends on differently.
    pub fn choose<'a>(
        &'a self,
        standing: &mut Memberships<'a>,
        caller: &Caller<'_>,
        keys: &mut Vec<u8>,
        start: usize,
    ) -> Result<NumbersChoice, Doubt<'a>> {
        let tier = self.tier_of(standing, caller, keys, start)?;
        let of_customer = self.customer_numbers.as_ref().and_then(|numbers| {
            let CustomerReading::Named { name, .. } = caller.customers.read(caller, keys) else {
                return None;
            };
            match name {
                CustomerName::Listed(customer) => numbers.position(*customer, tier),
                CustomerName::Claimed(_) => None,
            }
        });
        Ok(match (of_customer, tier) {
            (Some(position), _) => NumbersChoice::Customer(position),
            (None, Some(tier)) => NumbersChoice::Tier(tier),
            (None, None) => NumbersChoice::Limit,
        })
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

//! Numbers of single customers, in front of those of tiers. Customers with the same numbers share a limit, so that a
//! customer costs one entry of a table.

use crate::key::{CustomerIndex, Customers};
use crate::limit::Limit;
use foldhash::fast::RandomState;
use std::fmt;
use std::sync::Arc;

/// The customers with numbers of a file, each with its line.
pub struct NumberedCustomers {
    all: Arc<Customers>,
    file: Arc<str>,
    lines: hashbrown::HashMap<CustomerIndex, NumberedLine, RandomState>,
}

/// A customer's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedLine {
    /// The position of its numbers among the different numbers of the file.
    pub numbers: u32,
    /// The number of the line in the file, from 1.
    pub line: u32,
}

/// The output shows no name.
impl fmt::Debug for NumberedCustomers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NumberedCustomers")
            .field("file", &self.file)
            .field("lines", &self.lines.len())
            .finish_non_exhaustive()
    }
}

impl NumberedCustomers {
    /// The customers of `file`, whose names are among `all`.
    #[must_use]
    pub fn new(
        all: &Arc<Customers>,
        file: Arc<str>,
        lines: impl IntoIterator<Item = (CustomerIndex, NumberedLine)>,
    ) -> Self {
        let mut lines: hashbrown::HashMap<_, _, _> = lines.into_iter().collect();
        lines.shrink_to_fit();
        Self {
            all: Arc::clone(all),
            file,
            lines,
        }
    }
}

/// A limit with the numbers of single customers.
#[derive(Debug)]
pub struct CustomerNumbers {
    /// The rates of one limit share the customers.
    customers: Arc<NumberedCustomers>,
    /// For each of the different numbers: the limit with these numbers, then each tier with them. `None` for a tier
    /// that no customer with these numbers can have.
    limits: Box<[Option<Arc<Limit>>]>,
    tiers: usize,
}

/// How the numbers of customers differ between two files: the customers that have come, that have gone, and whose
/// numbers are others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NumberChanges {
    /// Customers with numbers that had none.
    pub more: usize,
    /// Customers without numbers that had some.
    pub fewer: usize,
    /// Customers with other numbers.
    pub changed: usize,
}

impl CustomerNumbers {
    /// The numbers of `customers`: `limits` has the limit and then its `tiers`, for each of the different numbers.
    #[must_use]
    pub fn new(
        customers: &Arc<NumberedCustomers>,
        limits: Vec<Option<Arc<Limit>>>,
        tiers: usize,
    ) -> Self {
        Self {
            customers: Arc::clone(customers),
            limits: limits.into(),
            tiers,
        }
    }

    /// The number of customers with numbers of their own.
    #[must_use]
    pub fn len(&self) -> usize {
        self.customers.lines.len()
    }

    /// Has no customer numbers of its own?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The different limits.
    pub fn limits(&self) -> impl Iterator<Item = &Arc<Limit>> {
        self.limits.iter().flatten()
    }

    /// The limit at this position.
    #[inline]
    #[must_use]
    pub fn limit(&self, position: usize) -> Option<&Arc<Limit>> {
        self.limits.get(position)?.as_ref()
    }

    /// The position of the limit with the numbers of a customer, whose tier is at position `tier`, or none.
    #[must_use]
    pub fn position(&self, customer: CustomerIndex, tier: Option<usize>) -> Option<usize> {
        let line = self.customers.lines.get(&customer)?;
        let position = line.numbers as usize * (self.tiers + 1) + tier.map_or(0, |tier| tier + 1);
        self.limit(position).is_some().then_some(position)
    }

    /// The limit with the numbers of the customer of this name, whose tier is at position `tier`, or none.
    #[must_use]
    pub fn of_name(&self, name: &str, tier: Option<usize>) -> Option<&Arc<Limit>> {
        let customer = self.customers.all.find(name)?;
        self.limit(self.position(customer, tier)?)
    }

    /// The place of the customer's line, `own-month.txt:7`, if `limit` has the numbers of that line.
    #[must_use]
    pub fn place(&self, name: &str, limit: &Arc<Limit>) -> Option<String> {
        let customer = self.customers.all.find(name)?;
        let mut limits = self.limits_of(customer);
        let has_them = limits.any(|one| Arc::ptr_eq(one, limit));
        let line = self.customers.lines.get(&customer).filter(|_| has_them)?;
        Some(format!("{}:{}", self.customers.file, line.line))
    }

    /// The limits with a customer's numbers; none if the customer has no line.
    fn limits_of(&self, customer: CustomerIndex) -> impl Iterator<Item = &Arc<Limit>> {
        let line = self.customers.lines.get(&customer);
        let width = self.tiers + 1;
        let of_line = line.and_then(|line| {
            let start = line.numbers as usize * width;
            self.limits.get(start..start + width)
        });
        of_line.into_iter().flatten().flatten()
    }

    /// Each customer of `self`, with the customer of the same name in `other` if that one has a line there.
    fn paired<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = (CustomerIndex, Option<CustomerIndex>)> {
        let customers = self.customers.lines.keys();
        customers.map(|customer| {
            let name = self.customers.all.name(*customer);
            let there = other.customers.all.find(name);
            let there = there.filter(|there| other.customers.lines.contains_key(there));
            (*customer, there)
        })
    }

    /// Does a customer of `before` have no numbers here?
    #[must_use]
    pub fn lacks_one_of(&self, before: &Self) -> bool {
        before.paired(self).any(|(_, here)| here.is_none())
    }

    /// The differences since `before`.
    #[must_use]
    pub fn changes_since(&self, before: &Self) -> NumberChanges {
        let mut changes = NumberChanges {
            fewer: before
                .paired(self)
                .filter(|(_, here)| here.is_none())
                .count(),
            ..NumberChanges::default()
        };
        for (customer, earlier) in self.paired(before) {
            let Some(earlier) = earlier else {
                changes.more += 1;
                continue;
            };
            let now = self.limits_of(customer).map(|one| (one.rate, &one.rule));
            let then = before.limits_of(earlier);
            let is_same = now.eq(then.map(|one| (one.rate, &one.rule)));
            changes.changed += usize::from(!is_same);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of docs/plans.md: a customer takes about 20 bytes, and each of the different numbers under 1 KB.
    #[test]
    fn customers_and_their_numbers_are_small() {
        assert_eq!(size_of::<(CustomerIndex, NumberedLine)>(), 12);
        let limit = size_of::<Limit>() + size_of::<Option<Arc<Limit>>>();
        assert!(limit < 1000, "{limit}");
    }
}

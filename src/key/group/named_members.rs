//! The customers among the members of a group.

use crate::key::{CustomerIndex, Customers};
use std::fmt;
use std::sync::Arc;

/// The customers among the members of a group: by any of their credentials.
pub struct NamedMembers {
    all: Arc<Customers>,
    /// One bit for each name of the file.
    names: Box<[u64]>,
    many: usize,
    /// Is everyone a member whose verified value of the group's part is a name?
    is_open: bool,
}

/// The output shows no name.
impl fmt::Debug for NamedMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedMembers")
            .field("names", &self.many)
            .field("is_open", &self.is_open)
            .finish_non_exhaustive()
    }
}

impl NamedMembers {
    /// The customers with these numbers; with `is_open` also those whose verified value is their name.
    #[must_use]
    pub fn new(
        all: &Arc<Customers>,
        names: impl IntoIterator<Item = CustomerIndex>,
        is_open: bool,
    ) -> Self {
        let mut bits = vec![0_u64; all.len().div_ceil(64)];
        for index in names {
            if let Some(word) = bits.get_mut(index.position() / 64) {
                *word |= 1 << (index.position() % 64);
            }
        }
        Self {
            many: bits.iter().map(|word| word.count_ones() as usize).sum(),
            names: bits.into(),
            all: Arc::clone(all),
            is_open,
        }
    }

    /// The customers of the file.
    #[must_use]
    pub fn all(&self) -> &Customers {
        &self.all
    }

    /// The number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.many
    }

    /// Has the group no name?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.many == 0
    }

    /// Are the names verified values, rather than lines of a file?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Is the customer with this number a member?
    #[must_use]
    pub fn has(&self, index: CustomerIndex) -> bool {
        let word = self.names.get(index.position() / 64);
        word.is_some_and(|word| word >> (index.position() % 64) & 1 == 1)
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let all = (0..self.names.len() * 64).filter_map(|at| u32::try_from(at).ok());
        let members = all.map(CustomerIndex::of).filter(|index| self.has(*index));
        members.map(|index| self.all.name(index))
    }

    /// Is the customer of this name a member?
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.all.find(name).is_some_and(|index| self.has(index))
    }
}

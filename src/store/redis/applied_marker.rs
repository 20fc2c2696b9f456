//! The marker by which Redis knows a call that must not be applied twice.
//!
//! A call that gives charges back leaves its marker in Redis: a name, which one call after the other has, each only when
//! the one before is answered, and the call's number under that name.

use crate::clock;
use std::cell::RefCell;
use tokio::time::Instant;

/// The name and the number of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AppliedMarker {
    pub(super) name: u64,
    pub(super) number: u64,
    /// When the call was sent first.
    pub(super) since: Instant,
}

/// Names that no call has just now, with the last number of each.
#[derive(Debug, Default)]
pub(super) struct MarkerNames(RefCell<Vec<(u64, u64)>>);

impl MarkerNames {
    /// A marker for a new call.
    pub(super) fn next(&self) -> AppliedMarker {
        let free = self.0.borrow_mut().pop();
        let (name, last) = free.unwrap_or_else(|| (fastrand::u64(..), 0));
        AppliedMarker {
            name,
            number: last + 1,
            since: clock::instant(),
        }
    }

    /// The call is answered: the next may have its name.
    pub(super) fn release(&self, marker: AppliedMarker) {
        self.0.borrow_mut().push((marker.name, marker.number));
    }
}

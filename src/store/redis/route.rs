//! Which slot a call is about, and how far the call has come on its way to the master that serves the slot.

use super::slot::Slot;

/// A call's slot and its detours so far. A lone Redis has one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Route {
    pub(super) slot: Slot,
    /// The slot is being moved to the node that this is sent to.
    pub(super) asking: bool,
    /// In a call of its own.
    pub(super) alone: bool,
    /// How often the call was sent to another node.
    pub(super) hops: u8,
    /// How often the call was repeated at the same node.
    pub(super) tries: u8,
}

impl Route {
    /// To the master of `slot`, without any detour yet.
    pub(super) fn to(slot: Slot) -> Self {
        Self {
            slot,
            ..Self::default()
        }
    }
}

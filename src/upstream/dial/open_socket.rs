//! The permits that an open connection to a server holds besides its stream: its place among the gateway's files, and
//! among the server's connections.

use crate::descriptors::{Descriptor, SpareDescriptor};
use crate::upstream::state::connection_bound::ConnectionPermit;

/// Counts a socket while it is open.
#[derive(Debug)]
pub(in crate::upstream) struct OpenSocket {
    descriptor: Descriptor,
    /// The permit for it, if the server's connections have a bound.
    _permit: Option<ConnectionPermit>,
}

impl OpenSocket {
    /// A socket with these permits.
    pub(in crate::upstream) fn new(
        descriptor: Descriptor,
        permit: Option<ConnectionPermit>,
    ) -> Self {
        Self {
            descriptor,
            _permit: permit,
        }
    }

    /// A spare descriptor, for a second registration of the socket.
    pub(in crate::upstream) fn take_spare(&self) -> Option<SpareDescriptor> {
        self.descriptor.take_spare()
    }
}

//! What an open connection to a server holds beside its stream: its place among the gateway's files, and among the
//! server's connections.

use super::connection_bound::ConnectionPermit;
use crate::descriptors::Descriptor;

/// What counts a socket as long as it is open.
#[derive(Debug)]
pub(super) struct OpenSocket {
    _descriptor: Descriptor,
    /// The right to it, where the server's connections have a bound.
    _permit: Option<ConnectionPermit>,
}

impl OpenSocket {
    /// A socket with these rights.
    pub(super) fn new(descriptor: Descriptor, permit: Option<ConnectionPermit>) -> Self {
        Self {
            _descriptor: descriptor,
            _permit: permit,
        }
    }
}

//! The admin listener: metrics and health, on an address of its own.

use std::net::SocketAddr;

/// Where the admin listener is. Absent without `[admin]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Its address; port 0 is any free port.
    pub listen: SocketAddr,
}

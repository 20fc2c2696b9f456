//! Values about the servers of upstreams.
//!
//! ```text
//! server   servers of an upstream
//! balance  values of an upstream's rules
//! ```

pub(in crate::config::value) mod balance;
pub(in crate::config::value) mod server;

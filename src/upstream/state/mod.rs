//! The shared state of upstreams and their servers over all workers, kept over reloads.
//!
//! In: the servers of the file, and the results of requests and probes. Out: the members that get requests, and slots
//! at them.
//!
//! ```text
//! registry          the states of all upstreams, kept over reloads
//! upstream_state    one upstream's servers, as all workers know them
//! server_state      one server, as all workers know it
//! resolution        names are asked for again and again
//! availability      which servers are available, and what changes that
//! server_health     what is known of one server
//! server_queue      requests that wait for a place at a server
//! connection_bound  connections to one server, over all workers
//! retry_budget      how many requests may be sent again
//! ```

mod availability;
pub(super) mod connection_bound;
pub(super) mod registry;
pub mod resolution;
pub(super) mod retry_budget;
mod server_health;
pub mod server_queue;
pub(super) mod server_state;
pub(super) mod upstream_state;

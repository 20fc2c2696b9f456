//! The rules of an upstream, and the counting that some of them need.
//!
//! In: the file's rules. Out: whether an event has a consequence. The room knows no servers.
//!
//! ```text
//! upstream_rules  the rules of an upstream
//! balance_rule    how a server is chosen
//! retry_rule      which requests may be sent again
//! probe_rule      how servers are probed
//! ejection        when a failing server gets none for a while
//! failure_row     failures in a row, and whose they were
//! recent_clients  which clients ask lately
//! ```

pub mod balance_rule;
pub mod ejection;
mod failure_row;
pub mod probe_rule;
pub(super) mod recent_clients;
pub mod retry_rule;
pub(super) mod upstream_rules;

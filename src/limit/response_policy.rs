//! What a limit tells clients: under which name it appears, and how it refuses them.

use super::Limit;
use crate::key::{Caller, KeyOutcome};
use std::sync::Arc;

/// What a limit tells clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponsePolicy {
    /// Its name on the wire, where that is not the one in the file.
    pub public_name: Option<Arc<str>>,
    /// The HTTP status of a refusal, from 400 to 599.
    pub refusal: u16,
    /// The HTTP status for a request without the key, from 400 to 599.
    pub keyless: u16,
    /// What becomes of CORS preflights.
    pub preflights: Preflights,
}

/// Requests that a browser sends to ask whether it may send another. They carry no credentials, so that a limit which
/// counts by those would refuse what it could never count rightly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preflights {
    /// They count beside all else, on counters of their own with the limit's numbers; what is in flight is counted as it is.
    Free,
    /// They count as any request does.
    Counted,
}

impl Default for ResponsePolicy {
    fn default() -> Self {
        Self {
            public_name: None,
            refusal: 429,
            keyless: 401,
            preflights: Preflights::Free,
        }
    }
}

impl Limit {
    /// Appends the key of a preflight that is free of it: on a counter of its own, by the limit's numbers. What is in flight is
    /// what it is, and counted with all else, where the preflight says whose it is.
    pub fn write_preflight(&self, caller: &Caller<'_>, out: &mut Vec<u8>) {
        let is_told = self.rule.holds().is_some() && self.by.write(caller, out) == KeyOutcome::Key;
        if !is_told {
            self.by.write_preflight(caller, out);
        }
    }
}

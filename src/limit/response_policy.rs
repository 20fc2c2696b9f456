//! A limit's view for clients: its name for them, and the form of its refusals.

use super::Limit;
use crate::key::{Caller, KeyOutcome};
use std::sync::Arc;

/// A limit's view for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponsePolicy {
    /// Its name on the wire, if that is not the one in the file.
    pub public_name: Option<Arc<str>>,
    /// Is the limit stated in the fields of every answer? A hidden one is stated in its own refusals only.
    pub is_shown: bool,
    /// The HTTP status of a refusal, from 400 to 599.
    pub refusal: u16,
    /// The HTTP status for a request without the key, from 400 to 599.
    pub keyless: u16,
    /// The treatment of CORS preflights.
    pub preflights: Preflights,
}

/// Requests by which a browser asks for permission to send another. They carry no credentials, so that a limit that
/// counts by credentials would refuse requests that it could never count correctly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preflights {
    /// Preflights count on separate counters with the limit's numbers. Requests in flight are counted together with all
    /// others.
    Free,
    /// Preflights count like any other request.
    Counted,
}

impl Default for ResponsePolicy {
    fn default() -> Self {
        Self {
            public_name: None,
            is_shown: true,
            refusal: 429,
            keyless: 401,
            preflights: Preflights::Free,
        }
    }
}

impl Limit {
    /// Appends the key of a preflight if the limit counts preflights separately: on a separate counter, by the limit's
    /// numbers. A limit on requests in flight counts a preflight with all other requests, if the preflight names its
    /// client.
    pub fn write_preflight(&self, caller: &Caller<'_>, out: &mut Vec<u8>) {
        let is_reported =
            self.rule.concurrency().is_some() && self.by.write(caller, out) == KeyOutcome::Key;
        if !is_reported {
            self.by.write_preflight(caller, out);
        }
    }
}

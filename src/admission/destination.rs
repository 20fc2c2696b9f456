//! The destination of a request, in the parts that limits may count by: host, path parameters, query.

use crate::key::Location;
use crate::route::{PathPattern, host_key, path};
use std::borrow::Cow;

/// The destination of one request. The parts are computed only when a limit needs them.
#[derive(Debug, Clone, Copy)]
pub struct RequestDestination<'a> {
    /// The host with its port, as the client spells it; empty when the client names none.
    pub authority: &'a str,
    /// The path, in any spelling.
    pub path: &'a str,
    /// The query.
    pub query: Option<&'a str>,
    /// The path of the route that recognised the request.
    pub pattern: &'a PathPattern,
}

impl Location for RequestDestination<'_> {
    fn host(&self) -> Cow<'_, str> {
        host_key(self.authority)
    }

    fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        // The path has a normal form, or no route would have matched it.
        let path = path::normalize(self.path).ok()?;
        let taken = self.pattern.taken(path.to_match(), name)?;
        Some(Cow::Owned(taken.to_owned()))
    }

    fn path(&self) -> Option<Cow<'_, str>> {
        let path = path::normalize(self.path).ok()?;
        Some(Cow::Owned(path.to_match().to_owned()))
    }

    fn query(&self) -> Option<&str> {
        self.query
    }
}

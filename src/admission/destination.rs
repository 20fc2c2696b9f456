//! The destination of a request, as limits may count it: host, parameters of the path, query.

use crate::key::Location;
use crate::route::{PathPattern, host_key, path};
use std::borrow::Cow;

/// The destination of one request. Its parts are computed only when a limit asks for them.
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
        // The path is known to have a normal form, or no route would have recognised it.
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

//! The search for a request's route while it is unknown whether the client is a member of certain groups.

use super::condition::{Condition, RequestView};
use http::HeaderMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// The positions of routes, in the order of their ranks.
pub type RoutePositions = SmallVec<[usize; 4]>;

/// A request with partly unknown memberships. A search with it finds the route that matches if the client has no
/// unknown membership, and notes the routes of higher rank that an unknown membership would lead to.
pub struct OpenSearch<'a, V> {
    /// The request, with the known memberships.
    known: &'a V,
    /// May the client be a member of one of these groups, as far as known?
    may_be_member: &'a dyn Fn(&[Arc<str>]) -> bool,
    possible: RefCell<RoutePositions>,
}

impl<'a, V: RequestView> OpenSearch<'a, V> {
    /// A search that has no notes yet.
    #[must_use]
    pub fn new(known: &'a V, may_be_member: &'a dyn Fn(&[Arc<str>]) -> bool) -> Self {
        Self {
            known,
            may_be_member,
            possible: RefCell::default(),
        }
    }

    /// The routes that match the request if its client is a member of their groups.
    #[must_use]
    pub fn possible(self) -> RoutePositions {
        self.possible.into_inner()
    }
}

impl<V> fmt::Debug for OpenSearch<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSearch")
            .field("possible", &self.possible)
            .finish_non_exhaustive()
    }
}

impl<V: RequestView> RequestView for OpenSearch<'_, V> {
    fn fields(&self) -> &HeaderMap {
        self.known.fields()
    }

    fn query(&self) -> Option<&str> {
        self.known.query()
    }

    fn is_https(&self) -> bool {
        self.known.is_https()
    }

    fn is_member(&self, groups: &[Arc<str>]) -> bool {
        self.known.is_member(groups) || (self.may_be_member)(groups)
    }

    fn meets(&self, route: usize, conditions: &[Condition]) -> bool {
        if !conditions.iter().all(|one| one.is_met(self)) {
            return false;
        }
        let is_known = |one: &Condition| match one {
            Condition::Groups(groups) => self.known.is_member(groups),
            _ => true,
        };
        let takes = conditions.iter().all(is_known);
        if !takes {
            self.possible.borrow_mut().push(route);
        }
        takes
    }
}

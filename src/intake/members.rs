//! The client of a request without a route yet, if routes have conditions about members of groups.

use super::caller::CallerFacts;
use crate::admission::RefusalCause;
use crate::key::token::{Token, TokenReading};
use crate::key::{CustomerReading, CustomerSearch, Group, Memberships, TokenDoubt};
use crate::snapshot::Snapshot;
use std::rc::Rc;
use std::sync::Arc;

/// The known facts about a client before its route is known. Its token is verified once, when a route has a condition
/// about a group by token.
#[derive(Debug)]
pub struct RouteMembers<'a> {
    groups: &'a [Arc<Group>],
    caller: CallerFacts<'a>,
    token: Token<'a>,
    customers: CustomerSearch<'a>,
    /// The customer that the request is assumed to be of.
    assumed: Option<Rc<CustomerReading>>,
}

impl<'a> RouteMembers<'a> {
    /// The client of the request that `caller` describes, or of the `assumed` customer; `None` if no route has
    /// conditions about groups.
    #[must_use]
    pub fn of(
        snapshot: &'a Snapshot,
        assumed: Option<&str>,
        caller: impl FnOnce() -> CallerFacts<'a>,
    ) -> Option<Self> {
        if snapshot.route_groups.is_empty() {
            return None;
        }
        let (caller, all) = (caller(), snapshot.customers.as_deref());
        let assumed = assumed.and_then(|name| Some(all?.assumed(name)));
        Some(Self {
            groups: &snapshot.route_groups,
            caller,
            token: Token::new(snapshot.tokens.as_deref(), caller.fields),
            customers: CustomerSearch::of(all).knowing(assumed.clone()),
            assumed,
        })
    }

    /// Is there a token that would be verified for a route with a condition about a group by token?
    #[must_use]
    pub fn have_token(&self) -> bool {
        self.groups.iter().any(|group| group.uses_token()) && self.token.is_there()
    }

    /// The same client without its token.
    pub(super) fn without_token(&self) -> Self {
        Self {
            token: self.token.unread(),
            customers: CustomerSearch::of(self.customers.all()).knowing(self.assumed.clone()),
            assumed: self.assumed.clone(),
            ..*self
        }
    }

    /// Does one of the groups of these names depend on a token?
    pub(super) fn depend_on_token(&self, names: &[Arc<str>]) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| group.uses_token() && names.contains(&group.name))
    }

    /// The result of the verification of the client's token, if a group needed it.
    pub(super) fn reading(&self) -> Option<TokenReading> {
        self.token.reading()
    }

    /// The customer of the request, if a group needed one.
    pub(super) fn customer(&self) -> Option<Rc<CustomerReading>> {
        self.customers.reading()
    }

    /// The reason why the client's token has no valid claims, if a group needed a claim.
    #[must_use]
    pub fn why_not(&self) -> Option<TokenDoubt> {
        self.token.why_not()
    }

    /// Fails if a group needed a claim of a token whose issuer's keys have not been read yet: the client may or may not
    /// be a member.
    pub(super) fn are_known(&self) -> Result<(), RefusalCause> {
        match self.why_not() {
            Some(TokenDoubt::KeysUnread) => Err(RefusalCause::KeysUnread),
            _ => Ok(()),
        }
    }

    /// Is the client in one of the groups of these names? A client whose token is not trusted is in none.
    #[cold]
    pub(super) fn is_in(&self, names: &[Arc<str>]) -> bool {
        let (mut standing, mut room) = (Memberships::default(), Vec::new());
        let mut asked = self
            .groups
            .iter()
            .filter(|group| names.contains(&group.name));
        let customers = &self.customers;
        self.caller.read_unrouted(&self.token, customers, |caller| {
            asked.any(|group| standing.is_in(group, caller, &mut room, None) == Ok(true))
        })
    }
}

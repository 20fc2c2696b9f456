//! The client of a request that no route has taken yet, where routes ask for members of groups.

use super::caller::CallerFacts;
use crate::admission::RefusalCause;
use crate::key::token::{Token, TokenReading};
use crate::key::{Group, Memberships, TokenDoubt};
use crate::snapshot::Snapshot;
use std::sync::Arc;

/// What is known of a client before its route is. Its token is verified when a route asks for a group that goes by it,
/// and once.
#[derive(Debug)]
pub struct RouteMembers<'a> {
    groups: &'a [Arc<Group>],
    caller: CallerFacts<'a>,
    token: Token<'a>,
}

impl<'a> RouteMembers<'a> {
    /// The client of the request that `caller` states; nothing where no route asks for groups.
    #[must_use]
    pub fn of(
        snapshot: &'a Snapshot,
        caller: impl FnOnce() -> CallerFacts<'a>,
    ) -> Option<Box<Self>> {
        if snapshot.route_groups.is_empty() {
            return None;
        }
        Some(Self::known(snapshot, caller()))
    }

    #[cold]
    #[inline(never)]
    fn known(snapshot: &'a Snapshot, caller: CallerFacts<'a>) -> Box<Self> {
        Box::new(Self {
            groups: &snapshot.route_groups,
            caller,
            token: Token::new(snapshot.tokens.as_deref(), caller.fields),
        })
    }

    /// Is there a token that would be verified if a route asked for a group that goes by it?
    #[must_use]
    pub fn have_token(&self) -> bool {
        self.groups.iter().any(|group| group.uses_token()) && self.token.is_there()
    }

    /// The same client without its token.
    pub(super) fn without_token(&self) -> Self {
        Self {
            token: self.token.unread(),
            ..*self
        }
    }

    /// Does one of the groups of these names go by a token?
    pub(super) fn depend_on_token(&self, names: &[Arc<str>]) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| group.uses_token() && names.contains(&group.name))
    }

    /// What the verification of the client's token has yielded, if a group has asked for it.
    pub(super) fn reading(&self) -> Option<TokenReading> {
        self.token.reading()
    }

    /// The cause for which the client's token claims nothing, if a group has asked it for a claim.
    #[must_use]
    pub fn why_not(&self) -> Option<TokenDoubt> {
        self.token.why_not()
    }

    /// An error where a group has asked for a claim of a token whose issuer's keys have not been read yet: its client
    /// may be a member or not.
    pub(super) fn are_known(&self) -> Result<(), RefusalCause> {
        match self.why_not() {
            Some(TokenDoubt::KeysUnread) => Err(RefusalCause::KeysUnread),
            _ => Ok(()),
        }
    }

    /// Is the client in one of the groups of these names? One whose token is not believed is in none.
    #[cold]
    pub(super) fn is_in(&self, names: &[Arc<str>]) -> bool {
        let (mut standing, mut room) = (Memberships::default(), Vec::new());
        let mut asked = self
            .groups
            .iter()
            .filter(|group| names.contains(&group.name));
        self.caller.read_unrouted(&self.token, |caller| {
            asked.any(|group| standing.is_in(group, caller, &mut room, None) == Ok(true))
        })
    }
}

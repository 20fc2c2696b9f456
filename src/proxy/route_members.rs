//! The client of a request that no route has taken yet, where routes ask for members of groups.

use super::request::Target;
use crate::admission::RefusalCause;
use crate::admission::destination::Destination;
use crate::key::cookie::Cookies;
use crate::key::token::{Token, TokenReading};
use crate::key::{Caller, Content, Group, Memberships, ShownCertificate, TokenDoubt};
use crate::route::PathPattern;
use crate::snapshot::Snapshot;
use http::request::Parts;
use std::net::IpAddr;
use std::sync::Arc;

/// What is known of a client before its route is. Its token is verified when a route asks for a group that goes by it,
/// and once.
#[derive(Debug)]
pub struct RouteMembers<'a> {
    groups: &'a [Arc<Group>],
    address: Option<IpAddr>,
    certificate: Option<ShownCertificate<'a>>,
    token: Token<'a>,
}

impl<'a> RouteMembers<'a> {
    /// The client of the request `parts`, with its address after trusted hops; nothing where no route asks for groups.
    #[must_use]
    pub fn of(
        snapshot: &'a Snapshot,
        parts: &'a Parts,
        address: Option<IpAddr>,
        certificate: impl FnOnce() -> Option<ShownCertificate<'a>>,
    ) -> Option<Box<Self>> {
        if snapshot.route_groups.is_empty() {
            return None;
        }
        Some(Self::known(snapshot, parts, address, certificate()))
    }

    #[cold]
    #[inline(never)]
    fn known(
        snapshot: &'a Snapshot,
        parts: &'a Parts,
        address: Option<IpAddr>,
        certificate: Option<ShownCertificate<'a>>,
    ) -> Box<Self> {
        Box::new(Self {
            groups: &snapshot.route_groups,
            address,
            certificate,
            token: Token::new(snapshot.tokens.as_deref(), &parts.headers),
        })
    }

    /// Is there a token that would be verified if a route asked for a group that goes by it?
    #[must_use]
    pub fn have_token(&self) -> bool {
        self.groups.iter().any(|group| group.goes_by_token()) && self.token.is_there()
    }

    /// The same client without its token.
    pub(super) fn without_token(&self) -> Self {
        Self {
            token: self.token.unread(),
            ..*self
        }
    }

    /// Does one of the groups of these names go by a token?
    pub(super) fn go_by_token(&self, names: &[Arc<str>]) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| group.goes_by_token() && names.contains(&group.name))
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
    pub(super) fn is_in(&self, names: &[Arc<str>], target: &Target, parts: &Parts) -> bool {
        let no_route = PathPattern::default();
        let caller = Caller {
            address: self.address,
            route: "",
            method: &parts.method,
            fields: &parts.headers,
            location: &Destination {
                authority: target.host(),
                path: parts.uri.path(),
                query: parts.uri.query(),
                pattern: &no_route,
            },
            cookies: &Cookies::of(&parts.headers),
            identity: &self.token,
            content: Content::Absent,
            certificate: self.certificate,
        };
        let (mut standing, mut room) = (Memberships::default(), Vec::new());
        let mut asked = self
            .groups
            .iter()
            .filter(|group| names.contains(&group.name));
        asked.any(|group| standing.is_in(group, &caller, &mut room, None) == Ok(true))
    }
}

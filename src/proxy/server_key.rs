//! The key that the server of a request is chosen by: read as the keys of limits are.

use super::exchange::Exchange;
use super::handshake_facts;
use super::request::Target;
use crate::admission::destination::Destination;
use crate::key::cookie::Cookies;
use crate::key::token::Token;
use crate::key::{Caller, KeyOutcome, KeyTemplate};
use crate::snapshot::Service;
use crate::upstream::rendezvous;
use http::request::Parts;

/// The hash of the request's key; nothing where the request has none, or several.
#[inline(never)]
pub(super) fn of(
    template: &KeyTemplate,
    service: &Service,
    target: &Target,
    parts: &Parts,
    exchange: &Exchange,
) -> Option<u64> {
    let token = Token::new(exchange.local.snapshot.tokens.as_deref(), &parts.headers);
    let caller = Caller {
        address: exchange.client,
        route: &service.name,
        method: &parts.method,
        fields: &parts.headers,
        location: &Destination {
            authority: target.host(),
            path: parts.uri.path(),
            query: parts.uri.query(),
            pattern: &service.path,
        },
        cookies: &Cookies::of(&parts.headers),
        identity: &token,
        certificate: exchange.tls.as_deref().and_then(handshake_facts::shown),
        content: exchange.content,
    };
    let mut key = Vec::with_capacity(64);
    match template.write(&caller, &mut key) {
        KeyOutcome::Key => Some(rendezvous::hash(&key)),
        _ => None,
    }
}

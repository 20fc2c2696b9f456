//! The client of a request whose route is known, for what reads it again behind its limits: the choice of a server, and
//! the fields that tell servers who it is.

use super::exchange::Exchange;
use super::handshake_facts;
use super::request::Target;
use crate::admission::destination::Destination;
use crate::key::cookie::Cookies;
use crate::key::token::Token;
use crate::key::{Caller, Identity};
use crate::snapshot::Service;
use http::request::Parts;

/// What `reader` makes of the client. Its token is not verified again where its limits have had it verified.
pub(super) fn read<R>(
    service: &Service,
    target: &Target,
    parts: &Parts,
    exchange: &Exchange,
    reader: impl FnOnce(&Caller<'_>, &Token<'_>) -> R,
) -> R {
    let token = Token::new(exchange.local.snapshot.tokens.as_deref(), &parts.headers)
        .knowing(exchange.token.clone());
    read_as(&token, service, target, parts, exchange, |caller| {
        reader(caller, &token)
    })
}

/// What `reader` makes of the client, of which `identity` is known.
pub(super) fn read_as<R>(
    identity: &dyn Identity,
    service: &Service,
    target: &Target,
    parts: &Parts,
    exchange: &Exchange,
    reader: impl FnOnce(&Caller<'_>) -> R,
) -> R {
    reader(&Caller {
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
        identity,
        content: exchange.content,
        certificate: exchange.tls.as_deref().and_then(handshake_facts::shown),
    })
}

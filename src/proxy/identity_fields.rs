//! The fields that tell a route's servers who its client is, written on the way to the server.

use super::exchange::Exchange;
use super::handshake_facts;
use super::request::Target;
use crate::admission::RefusalCause;
use crate::admission::destination::Destination;
use crate::key::cookie::Cookies;
use crate::key::token::Token;
use crate::key::{Caller, TokenDoubt};
use crate::snapshot::Service;
use http::HeaderValue;
use http::request::Parts;

/// Writes the fields of the client of a request to `service`. A field whose value is not known is not sent.
///
/// # Errors
/// A claim is to be told of a token whose issuer's keys have not been read yet.
#[cold]
#[inline(never)]
pub(super) fn write(
    service: &Service,
    target: &Target,
    parts: &mut Parts,
    exchange: &Exchange,
) -> Result<(), RefusalCause> {
    let Some(identity) = &service.identity else {
        return Ok(());
    };
    let token = Token::new(exchange.local.snapshot.tokens.as_deref(), &parts.headers)
        .knowing(exchange.token.clone());
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
        content: exchange.content,
        certificate: exchange.tls.as_deref().and_then(handshake_facts::shown),
    };
    let tiers: Vec<_> = exchange
        .plan
        .groups(service)
        .map(|(_, name)| name)
        .collect();
    let value = |field| {
        let mut value = identity.value(field, &caller, tiers.iter().copied())?;
        // It names a person: HPACK does not index it, and no dump shows it.
        value.set_sensitive(true);
        Some(value)
    };
    let values: Vec<Option<HeaderValue>> = identity.fields.iter().map(value).collect();
    if token.why_not() == Some(TokenDoubt::KeysUnread) {
        return Err(RefusalCause::KeysUnread);
    }
    for (field, value) in identity.fields.iter().zip(values) {
        if let Some(value) = value {
            parts.headers.insert(field.name.clone(), value);
        }
    }
    Ok(())
}

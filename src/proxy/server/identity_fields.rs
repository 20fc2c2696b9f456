//! The fields that identify a client to a route's servers, written when the server is known.

use crate::admission::RefusalCause;
use crate::intake::head::Target;
use crate::key::TokenDoubt;
use crate::proxy::exchange::Exchange;
use crate::proxy::server::known_caller;
use crate::snapshot::Service;
use http::HeaderValue;
use http::request::Parts;

/// Writes the fields of the client of a request to `service`. A field with an unknown value is not sent.
///
/// # Errors
/// If a claim is needed of a token whose issuer's keys have not been read yet.
#[cold]
#[inline(never)]
pub(in crate::proxy) fn write(
    service: &Service,
    target: &Target,
    parts: &mut Parts,
    exchange: &Exchange,
) -> Result<(), RefusalCause> {
    let identity = service.identity.as_ref();
    let Some(identity) = identity.filter(|identity| !identity.fields.is_empty()) else {
        return Ok(());
    };
    let tiers: Vec<_> = exchange
        .decided
        .plan
        .groups(service)
        .map(|(_, name)| name)
        .collect();
    let values = known_caller::read_caller(service, target, parts, exchange, |caller, token| {
        let value = |field| {
            let mut value = identity.value(field, caller, tiers.iter().copied())?;
            // The value names a person: HPACK does not index it, and no dump shows it.
            value.set_sensitive(true);
            Some(value)
        };
        let values: Vec<Option<HeaderValue>> = identity.fields.iter().map(value).collect();
        match token.why_not() {
            Some(TokenDoubt::KeysUnread) => Err(RefusalCause::KeysUnread),
            _ => Ok(values),
        }
    })?;
    for (field, value) in identity.fields.iter().zip(values) {
        if let Some(value) = value {
            parts.headers.insert(field.name.clone(), value);
        }
    }
    Ok(())
}

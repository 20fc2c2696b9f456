//! The key that chooses the server of a request: read like the keys of limits.

use crate::intake::head::Target;
use crate::key::{KeyOutcome, KeyTemplate};
use crate::proxy::exchange::Exchange;
use crate::proxy::server::known_caller;
use crate::snapshot::Service;
use crate::upstream::rendezvous;
use http::request::Parts;

/// The hash of the request's key; `None` if the request has none, or several.
#[inline(never)]
pub(in crate::proxy) fn server_key(
    template: &KeyTemplate,
    service: &Service,
    target: &Target,
    parts: &Parts,
    exchange: &Exchange,
) -> Option<u64> {
    known_caller::read_caller(service, target, parts, exchange, |caller, _| {
        let mut key = Vec::with_capacity(64);
        match template.write(caller, &mut key) {
            KeyOutcome::Key => Some(rendezvous::hash(&key)),
            _ => None,
        }
    })
}

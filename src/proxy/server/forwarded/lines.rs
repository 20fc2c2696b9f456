//! The gateway's own fields of a request as bytes: most requests get the same ones as the previous request, and have no
//! field that ours would replace.

use crate::listen::ForwardedFields;
use crate::proxy::answer::fields::X_REQUEST_ID;
use crate::proxy::server::forwarded::hops::via;
use crate::proxy::server::forwarded::{
    Origin, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_REAL_IP, is_of_proxies, known,
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::rc::Rc;

/// The usual length of all lines.
const USUAL: usize = 320;

/// Does the request have a field that ours would replace or follow? If not, ours can be written after its fields.
#[must_use]
pub fn has_ours(fields: &HeaderMap, origin: &Origin<'_>) -> bool {
    fields.keys().any(|name| {
        *name == header::VIA
            || *name == header::HOST && origin.has_target_host
            || is_of_proxies(name)
            || *name == X_REQUEST_ID
    })
}

/// The lines for an untrusted peer's request without any field of ours ([`has_ours`]); `None` if its fields must be
/// written one by one. They are in the order in which [`announce`](super::announce), [`add_via`](super::hops::add_via)
/// and the request's id would add them.
pub fn prepared(
    origin: &Origin<'_>,
    introduced: &mut Option<Rc<ForwardedFields>>,
) -> Option<Rc<ForwardedFields>> {
    if origin.trusted.is_some() || origin.host.is_none() {
        return None;
    }
    known(origin, introduced).map(Rc::clone)
}

/// The lines of an untrusted peer with this `address` and `element`.
pub(super) fn compose(
    origin: &Origin<'_>,
    address: &HeaderValue,
    element: &HeaderValue,
) -> Vec<u8> {
    let Some(host) = origin.host else {
        return Vec::new();
    };
    let mut lines = Vec::with_capacity(USUAL);
    let mut add = |name: &HeaderName, value: &[u8]| {
        for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
            lines.extend_from_slice(part);
        }
    };
    add(&X_FORWARDED_FOR, address.as_bytes());
    add(&X_REAL_IP, address.as_bytes());
    add(&header::FORWARDED, element.as_bytes());
    add(&X_FORWARDED_PROTO, origin.scheme.as_str().as_bytes());
    add(&X_FORWARDED_HOST, host.as_bytes());
    add(&header::VIA, via(origin.version).as_bytes());
    if origin.has_target_host {
        add(&header::HOST, host.as_bytes());
    }
    lines.extend_from_slice(X_REQUEST_ID.as_str().as_bytes());
    lines.extend_from_slice(b": ");
    lines.shrink_to_fit();
    lines
}

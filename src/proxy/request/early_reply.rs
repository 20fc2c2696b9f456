//! Answers to requests that are not forwarded.

use crate::proxy::Reply;
use crate::proxy::answer::{reply, static_reply};
use crate::proxy::bodies::body::Body;
use crate::proxy::exchange::Exchange;
use crate::proxy::request::authority_challenge;
use crate::snapshot::StaticReply;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};

/// The gateway's own answer to `OPTIONS *`, and to a request that may not be forwarded further.
#[cold]
#[inline(never)]
pub(in crate::proxy) fn reply_here() -> Reply {
    Reply::Response(reply::empty().map(Body::from_bytes))
}

/// The answer to an authority that checks whether we control a host.
#[cold]
#[inline(never)]
pub(in crate::proxy) fn challenged(text: &str, parts: &Parts, exchange: &mut Exchange) -> Reply {
    exchange.challenged();
    Reply::Response(authority_challenge::answer(text, &parts.method).map(Body::from_bytes))
}

/// The answer of a listener that redirects its requests to `https` (RFC 9110 section 15.4.9: with the same method and
/// body), at the address `there`.
#[cold]
#[inline(never)]
pub(in crate::proxy) fn redirected(there: HeaderValue, exchange: &mut Exchange) -> Reply {
    let mut answer = Response::new(Bytes::new());
    *answer.status_mut() = StatusCode::PERMANENT_REDIRECT;
    answer.headers_mut().insert(header::LOCATION, there);
    exchange.redirected();
    Reply::Response(exchange.spoken(answer).map(Body::from_bytes))
}

/// The answer of a route without an upstream.
#[inline(never)]
pub(in crate::proxy) fn answered_by_route(
    static_answer: &StaticReply,
    parts: &Parts,
    exchange: &mut Exchange,
) -> Reply {
    let answer = static_reply::answer(static_answer, &parts.method, &parts.uri);
    Reply::Response(exchange.spoken(answer).map(Body::from_bytes))
}

//! Answers to requests that are not forwarded.

use super::body::Body;
use super::error::ProxyError;
use super::exchange::Exchange;
use super::request::Target;
use super::{Reply, authority_challenge, https_redirect, reply, static_reply};
use crate::snapshot::StaticReply;
use http::request::Parts;

/// The gateway's own answer to `OPTIONS *`, and to a request that may travel no further.
#[cold]
#[inline(never)]
pub(super) fn reply_here() -> Reply {
    Reply::Response(reply::empty().map(Body::own))
}

/// The answer to an authority that looks whether a host is ours.
#[cold]
#[inline(never)]
pub(super) fn challenged(text: &str, parts: &Parts, exchange: &mut Exchange) -> Reply {
    exchange.challenged();
    Reply::Response(authority_challenge::answer(text, &parts.method).map(Body::own))
}

/// The answer of a listener that sends its requests on to `https`.
#[cold]
#[inline(never)]
pub(super) fn redirected(
    target: &Target,
    parts: &Parts,
    exchange: &mut Exchange,
) -> Result<Reply, ProxyError> {
    let answer = https_redirect::answer(target, &parts.uri)?;
    exchange.redirected();
    Ok(Reply::Response(exchange.spoken(answer).map(Body::own)))
}

/// The answer of a route that has no upstream.
#[inline(never)]
pub(super) fn answered_by_route(
    own: &StaticReply,
    parts: &Parts,
    exchange: &mut Exchange,
) -> Reply {
    let answer = static_reply::answer(own, &parts.method, &parts.uri);
    Reply::Response(exchange.spoken(answer).map(Body::own))
}

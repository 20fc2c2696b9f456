//! Answers to requests that are not forwarded.

use super::body::Body;
use super::error::ProxyError;
use super::exchange::Exchange;
use super::request::Target;
use super::{Reply, authority_challenge, https_redirect, reply, static_reply};
use crate::snapshot::StaticReply;
use http::request::Parts;
use hyper::body::Incoming;
use std::mem;

/// The gateway's own answer to `OPTIONS *`, and to a request that may travel no further.
#[cold]
#[inline(never)]
pub(super) fn reply_here() -> Reply {
    Reply::Response(reply::empty().map(Body::own))
}

/// The answer to an authority that looks whether a host is ours.
#[cold]
#[inline(never)]
pub(super) fn challenged(
    text: &str,
    incoming: Incoming,
    parts: &Parts,
    exchange: &mut Exchange,
) -> Reply {
    exchange.let_go(incoming, parts);
    exchange.challenged();
    Reply::Response(authority_challenge::answer(text, &parts.method).map(Body::own))
}

/// The answer of a listener that sends its requests on to `https`.
#[cold]
#[inline(never)]
pub(super) fn redirected(
    target: &Target,
    incoming: Incoming,
    parts: &mut Parts,
    exchange: &mut Exchange,
) -> Result<Reply, ProxyError> {
    match https_redirect::answer(target, &parts.uri) {
        Ok(answer) => {
            exchange.let_go(incoming, parts);
            exchange.redirected();
            Ok(Reply::Response(exchange.spoken(answer).map(Body::own)))
        }
        Err(refused) => Err(turned_away(refused, incoming, parts, exchange)),
    }
}

/// The answer of a route that has no upstream.
#[inline(never)]
pub(super) fn answered_by_route(
    own: &StaticReply,
    incoming: Incoming,
    parts: &Parts,
    exchange: &mut Exchange,
) -> Reply {
    let answer = static_reply::answer(own, &parts.method, &parts.uri);
    exchange.let_go(incoming, parts);
    Reply::Response(exchange.spoken(answer).map(Body::own))
}

/// A request is not forwarded: a little of its body is read, and its fields' room is left to the answer.
#[inline(never)]
pub(super) fn turned_away(
    refused: ProxyError,
    incoming: Incoming,
    parts: &mut Parts,
    exchange: &mut Exchange,
) -> ProxyError {
    exchange.let_go(incoming, parts);
    exchange.leave(mem::take(&mut parts.headers));
    refused
}

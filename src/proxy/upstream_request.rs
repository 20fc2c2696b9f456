//! The head of a request on its way upstream: hop-by-hop fields removed first, ours added afterwards.

use super::error::ProxyError;
use super::exchange::Exchange;
use super::forwarded::{self, BelievedFields, Origin};
use super::request::{BadRequest, Target};
use super::{hop, request_id};
use crate::listen::Peer;
use crate::route::Template;
use crate::upstream::Server;
use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Uri, header};
use std::mem;

/// The number of fields that the gateway adds.
const OURS: usize = 9;

/// The usual growth of a path that is rewritten.
const ROOM: usize = 64;

/// The request to send, without its body: in origin form, with hop-by-hop fields removed and ours added.
///
/// # Errors
/// When the request has come through this gateway too often.
pub fn head(
    target: &Target,
    parts: &mut Parts,
    websocket: bool,
    peer: &Peer,
    exchange: &Exchange,
) -> Result<Request<()>, ProxyError> {
    let fields = &mut parts.headers;
    if forwarded::is_loop(fields) {
        return Err(ProxyError::Loop);
    }
    // The room for our fields is reserved at once; growing field by field would move all of them twice.
    fields.reserve(OURS);
    hop::strip_request(fields);
    if websocket {
        hop::mark_websocket(fields);
    }
    let address = peer.address.ip();
    let trust = &exchange.local.snapshot.trust;
    let believed = BelievedFields::of(trust, address, fields);
    let named_scheme = target.scheme().filter(|_| believed.is_some());
    let origin = Origin {
        peer: address,
        client: exchange.client,
        believed,
        host: target.authority(),
        scheme: named_scheme.unwrap_or(peer.scheme),
    };
    forwarded::announce(fields, &origin, &mut peer.forwarded_fields.borrow_mut());
    forwarded::add_via(fields, parts.version);
    if let Some(granted) = exchange.granted() {
        fields.insert(hop::GRANTED, HeaderValue::from(granted));
    }
    if let Some(host) = target.own_authority() {
        fields.insert(header::HOST, host.clone());
    }
    if target.authority().is_none()
        && let Some(upstream) = exchange.service().and_then(|service| service.upstream)
    {
        // HTTP/1.0 may name no host, HTTP/1.1 must (RFC 9112, section 3.2): the upstream's own host takes its place.
        let upstream = &exchange.local.snapshot.upstreams[upstream];
        let own = upstream.servers.first().map(Server::authority);
        if let Some(Ok(own)) = own.map(HeaderValue::try_from) {
            fields.insert(header::HOST, own);
        }
    }
    fields.insert(request_id::X_REQUEST_ID, exchange.id.clone());
    if let Some(service) = exchange.service() {
        if let Some(changes) = &service.request_fields {
            changes.apply(fields);
        }
        if let Some(rewrite) = &service.rewrite {
            parts.uri = rewritten(&parts.uri, rewrite)?;
        }
    }
    let mut request = Request::new(());
    *request.method_mut() = mem::take(&mut parts.method);
    *request.uri_mut() = mem::take(&mut parts.uri);
    *request.headers_mut() = mem::take(&mut parts.headers);
    Ok(request)
}

/// The target that replaces `uri`, a path in forwarded form; its query stays.
fn rewritten(uri: &Uri, rewrite: &Template) -> Result<Uri, ProxyError> {
    let mut text = String::with_capacity(uri.path().len() + ROOM);
    rewrite.fill(uri.path(), &mut text);
    if let Some(query) = uri.query() {
        text.push('?');
        text.push_str(query);
    }
    // The path that was read and the template in the file are both checked: the result can be too long at worst.
    let target = PathAndQuery::from_maybe_shared(Bytes::from(text));
    target
        .map(Uri::from)
        .map_err(|_| BadRequest::UriTooLong.into())
}

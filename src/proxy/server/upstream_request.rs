//! The head of a forwarded request: hop-by-hop fields removed first, ours added afterwards.

use crate::client::spelled;
use crate::intake::head::{BadRequest, Target};
use crate::listen::{ForwardedFields, Peer};
use crate::proxy::answer::fields::X_REQUEST_ID;
use crate::proxy::error::ProxyError;
use crate::proxy::exchange::Exchange;
use crate::proxy::server::forwarded::{Origin, TrustedFields, hops, lines};
use crate::proxy::server::{forwarded, hop, identity_fields};
use crate::route::Template;
use crate::snapshot::HostChange;
use crate::telemetry::excerpt;
use crate::telemetry::log::Throttles;
use crate::upstream::ServerHost;
use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header};
use std::mem;
use std::rc::Rc;
use std::time::Duration;

/// The number of fields that the gateway adds.
const OURS: usize = 9;

/// The field for the certificate of a client (RFC 9440 section 2.2).
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
/// The field for its intermediates (RFC 9440 section 2.3).
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");

/// Most bytes of an offer in the log.
const MOST_TOLD: usize = 64;

/// The usual growth of a path that is rewritten.
const ROOM: usize = 64;

/// A head to send.
#[derive(Debug)]
pub struct OnwardHead {
    /// The request without its body, in origin form, with hop-by-hop fields removed.
    pub request: Request<()>,
    /// Our fields, which are written after the request's as bytes; `None` if they are among the request's.
    pub forwarded: Option<Rc<ForwardedFields>>,
}

/// The head to send: hop-by-hop fields are removed, and ours added.
///
/// # Errors
/// If the request has come through this gateway too often.
pub fn head(
    target: &Target,
    parts: &mut Parts,
    websocket: bool,
    peer: &Peer,
    exchange: &Exchange,
) -> Result<OnwardHead, ProxyError> {
    let service = exchange.service();
    let host = service.and_then(|service| service.host_change.as_ref());
    let origin = origin(target, parts, host.is_some(), exchange);
    let fields = &mut parts.headers;
    let has_ours = lines::has_ours(fields, &origin);
    if has_ours && hops::is_loop(fields) {
        return Err(ProxyError::Loop);
    }
    if let Some(offer) = hop::strip_request(fields)
        && !websocket
    {
        warn_of_offer(&offer, exchange);
    }
    // Fields that are written earlier could be named in `Connection`, and be removed with it.
    if let Some(service) = service.filter(|service| service.identity.is_some()) {
        identity_fields::write(service, target, parts, exchange)?;
    }
    let fields = &mut parts.headers;
    let certificate = client_certificate(exchange);
    let is_usual = !has_ours
        && !websocket
        && certificate.is_none()
        && exchange.granted().is_none()
        && service.is_none_or(|service| service.request_fields.is_none());
    let mut introduced = peer.forwarded_fields.borrow_mut();
    let forwarded = is_usual
        .then(|| lines::prepared(&origin, &mut introduced))
        .flatten();
    if forwarded.is_none() {
        if let Some(certificate) = certificate {
            // The chain would belong to another certificate.
            fields.remove(CLIENT_CERT_CHAIN);
            fields.insert(CLIENT_CERT, certificate);
        }
        add_fields(fields, websocket, &origin, &mut introduced, exchange);
    } else if let Some(prefix) = service.and_then(|service| service.prefix.as_ref()) {
        fields.insert(forwarded::X_FORWARDED_PREFIX, prefix.clone());
    }
    if let Some(host) = host {
        name_host(host, fields);
    }
    if let Some(rewrite) = service.and_then(|service| service.rewrite.as_ref()) {
        parts.uri = rewritten(&parts.uri, rewrite)?;
    }
    let mut request = Request::new(());
    *request.method_mut() = mem::take(&mut parts.method);
    *request.uri_mut() = mem::take(&mut parts.uri);
    *request.headers_mut() = mem::take(&mut parts.headers);
    Ok(OnwardHead { request, forwarded })
}

/// The origin of a request, whose host is `changed` for the server.
#[inline]
fn origin<'a>(target: &'a Target, parts: &Parts, changed: bool, exchange: &Exchange) -> Origin<'a> {
    let peer = exchange.arrived.peer;
    let trust = &exchange.local.snapshot.trust;
    let trusted = if peer.is_unnamed {
        None
    } else {
        TrustedFields::of(trust, peer.address, &parts.headers)
    };
    let named_scheme = target.scheme().filter(|_| trusted.is_some());
    Origin {
        peer: peer.address,
        client: exchange.arrived.client,
        trusted,
        host: target.authority(),
        scheme: named_scheme.unwrap_or(peer.scheme),
        version: parts.version,
        // Another host is written in any case.
        has_target_host: !changed && target.forwarded_authority().is_some(),
    }
}

/// Logs, once a minute, an upgrade that a client has offered in vain. Most clients that offer HTTP/2 in this way
/// continue without it.
#[cold]
#[inline(never)]
fn warn_of_offer(offer: &HeaderValue, exchange: &Exchange) {
    static OFFERS: Throttles<2> = Throttles::every(Duration::from_secs(60));
    let client = spelled(exchange.arrived.client);
    let offer = offer.as_bytes();
    let is_h2c = offer.eq_ignore_ascii_case(b"h2c");
    let Some(more) = OFFERS.pass(usize::from(is_h2c)) else {
        return;
    };
    if is_h2c {
        tracing::info!(
            "{client} offers the upgrade `h2c`: the offer was removed, and the request was forwarded over HTTP/1.1{more}"
        );
    } else {
        let offer = excerpt(offer, MOST_TOLD);
        tracing::warn!(
            "{client} offers the upgrade `{offer}`: the offer was removed, and the request was forwarded without it; the only upgrade that passes is a WebSocket, by GET over HTTP/1.1{more}"
        );
    }
}

/// Names the host for all servers. Each server's own host is written when the server is known.
#[cold]
#[inline(never)]
fn name_host(change: &HostChange, fields: &mut HeaderMap) {
    if let ServerHost::Text(host) = &change.host {
        fields.insert(header::HOST, host.clone());
    }
}

/// The certificate that the client has shown, if the upstream gets it.
fn client_certificate(exchange: &Exchange) -> Option<HeaderValue> {
    let shown = exchange.arrived.tls.as_ref()?.client.as_ref()?;
    let upstream = exchange.service()?.upstream?;
    let upstream = &exchange.local.snapshot.upstreams[upstream];
    upstream.forward_client_cert.then(|| shown.field().clone())
}

/// Adds our fields one by one, if the request has such fields itself, or its upstream gets others.
#[cold]
#[inline(never)]
fn add_fields(
    fields: &mut HeaderMap,
    websocket: bool,
    origin: &Origin<'_>,
    introduced: &mut Option<Rc<ForwardedFields>>,
    exchange: &Exchange,
) {
    // The room for our fields is reserved at once; growing field by field would move all of them twice.
    fields.reserve(OURS);
    if websocket {
        hop::mark_websocket(fields);
    }
    forwarded::announce(fields, origin, introduced);
    hops::add_via(fields, origin.version);
    if let Some(granted) = exchange.granted() {
        fields.insert(hop::GRANTED, HeaderValue::from(granted));
    }
    let service = exchange.service();
    match origin.host {
        Some(host) if origin.has_target_host => drop(fields.insert(header::HOST, host.clone())),
        Some(_) => {}
        // HTTP/1.0 may name no host, HTTP/1.1 must (RFC 9112, section 3.2): the upstream's own host is used.
        None => {
            let upstream = service.and_then(|service| service.upstream);
            let upstream = upstream.map(|upstream| &exchange.local.snapshot.upstreams[upstream]);
            let server = upstream.and_then(|upstream| upstream.servers.first());
            if let Some(Ok(server)) =
                server.map(|server| HeaderValue::try_from(server.url.authority()))
            {
                fields.insert(header::HOST, server);
            }
        }
    }
    fields.insert(X_REQUEST_ID, exchange.arrived.id.clone());
    if let Some(prefix) = service.and_then(|service| service.prefix.as_ref()) {
        forwarded::add_prefix(fields, prefix);
    }
    if let Some(changes) = service.and_then(|service| service.request_fields.as_ref()) {
        changes.apply(fields);
    }
}

/// The target that replaces `uri`, a path in forwarded form; its query stays.
fn rewritten(uri: &Uri, rewrite: &Template) -> Result<Uri, ProxyError> {
    let mut text = String::with_capacity(uri.path().len() + ROOM);
    rewrite.fill(uri.path(), &mut text);
    if let Some(query) = uri.query() {
        text.push('?');
        text.push_str(query);
    }
    // The parsed path and the template in the file are both valid: the result can only be too long.
    let target = PathAndQuery::from_maybe_shared(Bytes::from(text));
    target
        .map(Uri::from)
        .map_err(|_| BadRequest::UriTooLong.into())
}

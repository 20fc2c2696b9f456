//! Caddy's access log, in JSON.

use super::super::Fault;
use super::super::json::{self, Value};
use super::super::request::{LogFormat, LoggedRequest, ProxyFields};
use super::super::{fields, instant};
use super::{into_bytes, text};
use crate::clock::Timestamp;
use crate::key::address::read_address;

/// Nothing where it is not Caddy's: an access line has a `request` with a `uri`.
pub(super) fn read(line: &[u8]) -> Result<Option<LoggedRequest<'_>>, Fault> {
    let (mut asked, mut ts, mut duration, mut status) = (None, None, 0, 0);
    json::members(line, |name, value| {
        match (name.plain(), value) {
            (Some(b"request"), Value::Object(object)) => asked = Some(object),
            (Some(b"ts"), Value::Number(digits)) => ts = instant::read(digits),
            (Some(b"ts"), Value::Text(text)) => ts = instant::read(text.read()?.as_bytes()),
            (Some(b"duration"), value) => duration = fields::span(value, 6).unwrap_or(0),
            (Some(b"status"), Value::Number(digits)) => {
                status = instant::decimal(digits, 0).unwrap_or(0);
            }
            _ => {}
        }
        Ok(())
    })?;
    let Some(asked) = asked else {
        return Ok(None);
    };
    let mut request = LoggedRequest {
        format: LogFormat::Caddy,
        duration,
        status: u16::try_from(status).unwrap_or(0),
        ..LoggedRequest::at(Timestamp::default())
    };
    let mut proxy_fields = ProxyFields::default();
    // `client_ip` is the client as Caddy itself finds it; older Caddys log only the peer, with its port.
    let (mut client, mut peer) = (None, None);
    json::members(asked, |name, value| {
        match (name.plain(), value) {
            (Some(b"client_ip"), value) => client = text(value)?,
            (Some(b"remote_ip" | b"remote_addr"), value) => peer = text(value)?,
            (Some(b"method"), value) => {
                request.method = text(value)?.map_or(request.method.clone(), into_bytes);
            }
            (Some(b"host"), value) => {
                request.host = text(value)?.map(into_bytes).unwrap_or_default()
            }
            (Some(b"uri"), Value::Text(uri)) => {
                request.target = uri.bytes()?;
                request.names_path = true;
            }
            (Some(b"headers"), Value::Object(object)) => request.headers = object,
            (Some(b"tls"), Value::Object(_)) => proxy_fields.is_https = true,
            _ => {}
        }
        Ok(())
    })?;
    if !request.names_path {
        return Ok(None);
    }
    if let Some(client) = client.or(peer) {
        request.client = Some(read_address(&client).ok_or(Fault::BadClient)?);
    }
    // The line is of the request's end.
    let end = ts.ok_or(Fault::BadTime)?.micros();
    request.ts = Timestamp::from_micros(end.saturating_sub(duration));
    request.proxy_fields = Some(Box::new(proxy_fields));
    Ok(Some(request))
}

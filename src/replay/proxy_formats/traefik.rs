//! Traefik's access log, in JSON.

use super::super::Fault;
use super::super::json::{self, Value};
use super::super::request::{LogFormat, LoggedRequest, ProxyFields};
use super::super::{fields, instant};
use super::{into_bytes, text};
use crate::clock::Timestamp;
use std::borrow::Cow;

/// Nothing where it is not Traefik's: an access line has a `RequestPath`.
pub(super) fn read(line: &[u8]) -> Result<Option<LoggedRequest<'_>>, Fault> {
    let mut request = LoggedRequest {
        format: LogFormat::Traefik,
        ..LoggedRequest::at(Timestamp::default())
    };
    let mut proxy_fields = ProxyFields::default();
    // `ClientHost` has what came in `X-Forwarded-For`, where Traefik believes it.
    let (mut client, mut peer) = (None, None);
    let (mut began, mut ended) = (None, None);
    json::members(line, |name, value| {
        let name = name.bytes()?;
        match &*name {
            b"ClientHost" => client = text(value)?,
            b"ClientAddr" => peer = text(value)?,
            b"RequestHost" => request.host = text(value)?.map(into_bytes).unwrap_or_default(),
            b"RequestMethod" => {
                request.method = text(value)?.map_or(request.method.clone(), into_bytes);
            }
            b"RequestPath" => {
                if let Some(path) = text(value)? {
                    request.target = into_bytes(path);
                    request.names_path = true;
                }
            }
            b"RequestScheme" => proxy_fields.is_https = text(value)?.as_deref() == Some("https"),
            b"StartUTC" => began = time(value)?,
            b"StartLocal" => began = began.or(time(value)?),
            b"time" => ended = time(value)?,
            b"Duration" => request.duration = fields::span(value, 0).unwrap_or(0) / 1_000,
            b"DownstreamStatus" => {
                let status = fields::span(value, 0).unwrap_or(0);
                request.status = u16::try_from(status).unwrap_or(0);
            }
            _ => {
                if let Cow::Borrowed(name) = name
                    && let Some(field) = name.strip_prefix(b"request_")
                    && let Ok(field) = str::from_utf8(field)
                {
                    proxy_fields.fields.push((Cow::Borrowed(field), value));
                }
            }
        }
        Ok(())
    })?;
    if !request.names_path || client.is_none() && peer.is_none() {
        return Ok(None);
    }
    request.ts = began.or(ended).ok_or(Fault::NoTime)?;
    request.proxy_fields = Some(Box::new(proxy_fields));
    if let Some(list) = client.or(peer) {
        request.put_client_list(list)?;
    }
    Ok(Some(request))
}

fn time(value: Value<'_>) -> Result<Option<Timestamp>, Fault> {
    Ok(text(value)?.and_then(|text| instant::read(text.as_bytes())))
}

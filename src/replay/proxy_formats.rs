//! Lines of other servers' logs, recognised by their shapes: text here, objects by their members.

mod alb;
mod caddy;
mod envoy;
mod haproxy;
mod prefix;
mod traefik;

use super::address;
use super::apache_format;
use super::fields::Mapping;
use super::json::{self, Value};
use super::line::{Fault, LoggedRequest, ProxyFields};
use super::line_layout::LineLayout;
use crate::key::address::read_address;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::borrow::Cow;
use std::net::IpAddr;

/// Prefixes that are looked behind: of compose, of its time, of syslog.
const DEEPEST: usize = 3;

/// A line of text that is no plain combined log, for `fault`.
#[cold]
pub(super) fn read<'a>(
    request: &mut LoggedRequest<'a>,
    line: &'a str,
    fault: Fault,
    line_layout: &mut LineLayout,
    mapping: Option<&Mapping>,
) -> Result<(), Fault> {
    let (mut line, mut fault) = (line, fault);
    for _ in 0..DEEPEST {
        if let Some(read) = of_proxy(line) {
            *request = read?;
            return Ok(());
        }
        let Some(rest) = prefix::strip(line) else {
            return Err(fault);
        };
        line = rest;
        if line.starts_with('{') {
            return request.read(line.as_bytes(), line_layout, mapping);
        }
        match apache_format::read(line) {
            Ok(read) => {
                *request = read;
                return Ok(());
            }
            Err(other) => fault = other,
        }
    }
    Err(fault)
}

/// Nothing where it has the shape of none.
fn of_proxy(line: &str) -> Option<Result<LoggedRequest<'_>, Fault>> {
    envoy::read(line)
        .or_else(|| alb::read(line))
        .or_else(|| haproxy::read(line))
        .or_else(|| behind_a_host(line))
        .or_else(|| behind_a_list(line))
}

/// Apache's `vhost_combined`: the host, then the line.
fn behind_a_host(line: &str) -> Option<Result<LoggedRequest<'_>, Fault>> {
    let (host, rest) = line.split_once(' ')?;
    let (client, _) = rest.split_once(' ')?;
    let (name, port) = host.rsplit_once(':')?;
    let is_host =
        !name.is_empty() && !port.is_empty() && port.bytes().all(|at| at.is_ascii_digit());
    if !is_host || address::read(client).is_err() {
        return None;
    }
    Some(apache_format::read(rest).map(|mut request| {
        request.host = Cow::Borrowed(host.as_bytes());
        request
    }))
}

/// A list of addresses where the client should be, as Traefik and many a `LogFormat` write it.
fn behind_a_list(line: &str) -> Option<Result<LoggedRequest<'_>, Fault>> {
    let (list, _) = line.split_once(" - ")?;
    let (before, last) = list.rsplit_once(',')?;
    address::read(last.trim_ascii()).ok()?;
    let rest = line.get(before.len() + 1..)?.trim_ascii_start();
    Some(apache_format::read(rest).map(|mut request| {
        let proxy_fields = request.proxy_fields.get_or_insert_default();
        proxy_fields.forwarded_for = Some(Cow::Borrowed(before));
        request
    }))
}

/// An object with no client and no path of ours in it, of which `request` has what there is of ours; `timed` says whether
/// that is a time.
#[cold]
pub(super) fn read_object<'a>(
    request: &mut LoggedRequest<'a>,
    line: &'a [u8],
    timed: bool,
) -> Result<(), Fault> {
    if let Some(read) = caddy::read(line)? {
        *request = read;
        return Ok(());
    }
    if let Some(read) = traefik::read(line)? {
        *request = read;
        return Ok(());
    }
    if !timed {
        return Err(Fault::NoTime);
    }
    // A line with a cost, or with the key of a limit, was written for a replay.
    let mut says = !request.keys.is_empty() || !request.costs.is_empty() || request.cost.is_some();
    if !request.headers.is_empty() {
        json::members(request.headers, |_, _| {
            says = true;
            Ok(())
        })?;
    }
    if says { Ok(()) } else { Err(Fault::Nameless) }
}

/// The fields of a line that is not ours into `fields`. What a log has instead of a secret is none.
pub(super) fn fields(
    request: &LoggedRequest<'_>,
    proxy_fields: &ProxyFields<'_>,
    fields: &mut HeaderMap,
) -> Result<(), Fault> {
    let mut add = |name: &[u8], value: &str| {
        let value = value.trim_ascii();
        let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name),
            HeaderValue::from_bytes(value.as_bytes()),
        ) else {
            return;
        };
        if value != "REDACTED" && value != "[REDACTED]" {
            fields.append(name, value);
        }
    };
    let mut take = |name: &[u8], value: Value<'_>| match value {
        Value::Text(text) => text.read().map(|text| add(name, &text)),
        Value::Number(digits) => {
            add(name, str::from_utf8(digits).unwrap_or_default());
            Ok(())
        }
        Value::List(list) => json::entries(list, |value| match value {
            Value::Text(text) => text.read().map(|text| add(name, &text)),
            _ => Ok(()),
        }),
        Value::Null | Value::Bool(_) | Value::Object(_) => Ok(()),
    };
    if !request.headers.is_empty() {
        json::members(request.headers, |name, value| take(&name.bytes()?, value))?;
    }
    for (name, value) in &proxy_fields.fields {
        take(name.as_bytes(), *value)?;
    }
    if let Some(agent) = &request.user_agent
        && !fields.contains_key(header::USER_AGENT)
        && let Ok(value) = HeaderValue::from_str(agent)
    {
        fields.insert(header::USER_AGENT, value);
    }
    if let Some(list) = &proxy_fields.forwarded_for
        && !fields.contains_key("x-forwarded-for")
        && let Ok(value) = HeaderValue::from_str(list)
    {
        fields.insert("x-forwarded-for", value);
    }
    Ok(())
}

/// Is it a list of addresses, as `X-Forwarded-For` is one? The right end decides: a client may have written the left.
pub(super) fn leads_back(list: &str) -> bool {
    let last = list.rsplit(',').next().unwrap_or_default();
    read_address(last).is_some()
}

/// The right end of a list of addresses, which is the peer of the server that wrote it, and what stands before.
fn chain(list: &str) -> Option<(IpAddr, Option<&str>)> {
    match list.rsplit_once(',') {
        Some((before, last)) => Some((read_address(last)?, Some(before))),
        None => Some((read_address(list)?, None)),
    }
}

/// Takes the client of `request` from `list`. A `-` is no client.
pub(super) fn put_chain<'a>(
    request: &mut LoggedRequest<'a>,
    list: Cow<'a, str>,
) -> Result<(), Fault> {
    if matches!(list.trim_ascii(), "" | "-" | "unknown") {
        return Ok(());
    }
    let (peer, before) = chain(&list).ok_or(Fault::BadClient)?;
    request.client = Some(peer);
    let before = before.map(str::len);
    if let Some(length) = before {
        let proxy_fields = request.proxy_fields.get_or_insert_default();
        proxy_fields.forwarded_for = Some(match list {
            Cow::Borrowed(list) => Cow::Borrowed(&list[..length]),
            Cow::Owned(mut list) => {
                list.truncate(length);
                Cow::Owned(list)
            }
        });
    }
    Ok(())
}

/// `203.0.113.9:33317`, `2001:db8::1:33317` or `[2001:db8::1]:33317`: an address and a port.
fn with_port(text: &str) -> Option<IpAddr> {
    let (address, port) = text.rsplit_once(':')?;
    if port.is_empty() || !port.bytes().all(|at| at.is_ascii_digit()) {
        return None;
    }
    let inside = address
        .strip_prefix('[')
        .and_then(|at| at.strip_suffix(']'));
    address::read(inside.unwrap_or(address)).ok()
}

/// A text of an object; nothing for what is none, and for `-`.
fn text(value: Value<'_>) -> Result<Option<Cow<'_, str>>, Fault> {
    match value {
        Value::Text(text) => Ok(Some(text.read()?).filter(|text| !matches!(&**text, "" | "-"))),
        _ => Ok(None),
    }
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

#[cfg(test)]
mod tests;

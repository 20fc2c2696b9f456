//! Lines of other servers' logs, recognised by their shapes: text here, objects by their members.

mod alb;
mod caddy;
mod envoy;
mod haproxy;
mod prefix;
mod traefik;

use super::json::{self, Value};
use super::request::LoggedRequest;
use super::{Fault, address, apache_format};
use std::borrow::Cow;
use std::net::IpAddr;

pub(super) use prefix::strip as strip_prefix;

/// Nothing where it has the shape of none.
pub(super) fn read(line: &str) -> Option<Result<LoggedRequest<'_>, Fault>> {
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

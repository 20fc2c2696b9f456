//! Lines of other servers' logs, recognised by their shapes.

mod alb;
mod envoy;
mod haproxy;
mod prefix;

use super::request::LoggedRequest;
use super::{Fault, address, apache_format};
use std::borrow::Cow;
use std::net::IpAddr;

pub(super) use prefix::strip as strip_prefix;

/// Reads a line of another server's log; `None` if the line has the shape of no known log.
pub(super) fn read_proxy_format<'a>(
    request: &mut LoggedRequest<'a>,
    line: &'a str,
) -> Option<Result<(), Fault>> {
    let formats = [
        envoy::read_envoy,
        alb::read_alb,
        haproxy::read_haproxy,
        behind_a_host,
        behind_a_list,
    ];
    formats.into_iter().find_map(|read| read(request, line))
}

/// Reads Apache's `vhost_combined`: the host, then a combined line.
fn behind_a_host<'a>(request: &mut LoggedRequest<'a>, line: &'a str) -> Option<Result<(), Fault>> {
    let (host, rest) = line.split_once(' ')?;
    let (client, _) = rest.split_once(' ')?;
    let (name, port) = host.rsplit_once(':')?;
    let is_host =
        !name.is_empty() && !port.is_empty() && port.bytes().all(|at| at.is_ascii_digit());
    if !is_host || address::parse_address(client).is_err() {
        return None;
    }
    request.host = Cow::Borrowed(host);
    Some(apache_format::read_apache(request, rest))
}

/// Reads a line with a list of addresses in place of the client, as Traefik and many a `LogFormat` write it.
fn behind_a_list<'a>(request: &mut LoggedRequest<'a>, line: &'a str) -> Option<Result<(), Fault>> {
    let (list, _) = line.split_once(" - ")?;
    let (before, last) = list.rsplit_once(',')?;
    address::parse_address(last.trim_ascii()).ok()?;
    let rest = line.get(before.len() + 1..)?.trim_ascii_start();
    let read = apache_format::read_apache(request, rest);
    let proxy_fields = request.proxy_fields.get_or_insert_default();
    proxy_fields.forwarded_for = Some(Cow::Borrowed(before));
    Some(read)
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
    address::parse_address(inside.unwrap_or(address)).ok()
}

#[cfg(test)]
mod tests;

//! HAProxy's `option httplog`, with or without syslog's head before it.

use super::with_port;
use crate::replay::apache_format::{quoted, take_request_line};
use crate::replay::request::{LogFormat, LoggedRequest};
use crate::replay::{Fault, instant};

/// `203.0.113.9:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0
/// {1wt.eu} {} "GET /index.html HTTP/1.1"`
pub(super) fn read_haproxy<'a>(
    request: &mut LoggedRequest<'a>,
    line: &'a str,
) -> Option<Result<(), Fault>> {
    // Syslog's tag may have brackets, too.
    let mut peers = line.match_indices(" [").filter_map(|(at, _)| {
        let peer = line[..at].rsplit(' ').next().unwrap_or_default();
        let address = with_port(peer);
        let is_peer = address.is_some() || peer.starts_with("unix:");
        is_peer.then_some((address, &line[at + 2..]))
    });
    let (peer, rest) = peers.next()?;
    let (time, mut rest) = rest.split_once("] ")?;
    let time = instant::haproxy(time)?;
    let (head, _) = rest.split_once('"')?;
    let mut words = head.split_ascii_whitespace();
    let times = words.nth(2).filter(|times| times.contains('/'))?;
    let status = words.next()?;
    let total = times.rsplit('/').next().unwrap_or_default();
    let total = total.trim_start_matches('+').parse::<u32>().unwrap_or(0);
    let asked = quoted(&mut rest)?;
    request.ts = Some(time);
    request.client = peer;
    request.put_status(Some(status));
    request.duration = u64::from(total) * 1_000;
    request.format = LogFormat::Haproxy;
    let proxy_fields = request.proxy_fields.get_or_insert_default();
    proxy_fields.has_nameless_fields = head.contains('{');
    Some(take_request_line(request, asked.into()))
}

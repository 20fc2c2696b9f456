//! HAProxy's `option httplog`, with or without what syslog puts in front.

use super::super::Fault;
use super::super::apache_format::{asked, quoted};
use super::super::instant;
use super::super::request::{LogFormat, LoggedRequest, ProxyFields};
use super::with_port;

/// `203.0.113.9:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0
/// {1wt.eu} {} "GET /index.html HTTP/1.1"`
pub(super) fn read(line: &str) -> Option<Result<LoggedRequest<'_>, Fault>> {
    let mut from = 0;
    // Syslog's tag may have brackets, too.
    while let Some(found) = line[from..].find(" [") {
        let at = from + found;
        from = at + 2;
        let peer = line[..at].rsplit(' ').next().unwrap_or_default();
        let peer = match (peer.starts_with("unix:"), with_port(peer)) {
            (false, None) => continue,
            (_, peer) => peer,
        };
        let (time, rest) = line[from..].split_once("] ")?;
        let mut request = LoggedRequest::at(instant::haproxy(time)?);
        request.client = peer;
        return take(rest, request);
    }
    None
}

fn take<'a>(
    line: &'a str,
    mut request: LoggedRequest<'a>,
) -> Option<Result<LoggedRequest<'a>, Fault>> {
    let (head, _) = line.split_once('"')?;
    let mut words = head.split_ascii_whitespace();
    let times = words.nth(2).filter(|times| times.contains('/'))?;
    let status = words.next()?;
    let total = times.rsplit('/').next().unwrap_or_default();
    let total = total.trim_start_matches('+').parse::<u32>().unwrap_or(0);
    let mut rest = line;
    match asked(quoted(&mut rest)?) {
        Ok(asked) => (request.method, request.target) = asked,
        Err(fault) => return Some(Err(fault)),
    }
    request.status = status.parse().unwrap_or(0);
    request.duration = u64::from(total) * 1_000;
    request.names_path = true;
    request.format = LogFormat::Haproxy;
    request.proxy_fields = Some(Box::new(ProxyFields {
        has_nameless_fields: head.contains('{'),
        ..ProxyFields::default()
    }));
    Some(Ok(request))
}

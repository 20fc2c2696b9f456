//! Envoy's default log, and what Istio makes of it.

use super::super::Fault;
use super::super::apache_format::{asked, quoted, split, worded};
use super::super::instant;
use super::super::request::{LogFormat, LoggedRequest, ProxyFields};
use super::with_port;
use std::borrow::Cow;

/// `[TIME] "METHOD PATH PROTOCOL" CODE FLAGS RECEIVED SENT DURATION SERVICE_TIME "X-FORWARDED-FOR" "USER-AGENT"
/// "X-REQUEST-ID" "AUTHORITY" "UPSTREAM"`. Istio has more words behind the flags, and the peer behind the upstream.
pub(super) fn read(line: &str) -> Option<Result<LoggedRequest<'_>, Fault>> {
    let (time, rest) = split(line.strip_prefix('[')?, b']')?;
    if time.as_bytes().get(10) != Some(&b'T') || !rest.starts_with(" \"") {
        return None;
    }
    Some(take(time, rest))
}

fn take<'a>(time: &str, line: &'a str) -> Result<LoggedRequest<'a>, Fault> {
    let mut rest = line;
    let (method, target) = asked(quoted(&mut rest).ok_or(Fault::Unknown)?)?;
    let (words, _) = split(rest, b'"').ok_or(Fault::Unknown)?;
    let status = words.split_ascii_whitespace().next();
    let mut numbers = words;
    // Istio says between quotes why a connection to the upstream failed.
    if words.split_ascii_whitespace().count() < 6 {
        quoted(&mut rest).ok_or(Fault::Unknown)?;
        (numbers, _) = split(rest, b'"').ok_or(Fault::Unknown)?;
    }
    let took = numbers.split_ascii_whitespace().rev().nth(1);
    let mut request = LoggedRequest {
        method,
        target,
        names_path: true,
        format: LogFormat::Envoy,
        status: status.and_then(|status| status.parse().ok()).unwrap_or(0),
        duration: took
            .and_then(|ms| ms.parse::<u32>().ok())
            .map_or(0, |ms| u64::from(ms) * 1_000),
        proxy_fields: Some(Box::default()),
        ..LoggedRequest::at(instant::read(time.as_bytes()).ok_or(Fault::BadTime)?)
    };
    let list = quoted(&mut rest).ok_or(Fault::Unknown)?;
    let is_said = |text: &&str| *text != "-";
    request.user_agent = quoted(&mut rest).filter(is_said).map(worded);
    let _id = quoted(&mut rest);
    let host = quoted(&mut rest).filter(is_said).unwrap_or_default();
    request.host = Cow::Borrowed(host.as_bytes());
    let _upstream = quoted(&mut rest);
    // Cluster, our end towards it, our end towards the client, the client's.
    match rest.split_ascii_whitespace().nth(3).and_then(with_port) {
        Some(peer) => {
            request.client = Some(peer);
            request.proxy_fields = Some(Box::new(ProxyFields {
                forwarded_for: Some(list).filter(is_said).map(worded),
                ..ProxyFields::default()
            }));
        }
        None => request.put_client_list(worded(list))?,
    }
    Ok(request)
}

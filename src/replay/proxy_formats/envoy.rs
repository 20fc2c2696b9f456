//! Envoy's default log, and Istio's variant of it.

use super::with_port;
use crate::replay::apache_format::{quoted, said, split, take_request_line, worded};
use crate::replay::request::{LogFormat, LoggedRequest};
use crate::replay::{Fault, instant};

/// `[TIME] "METHOD PATH PROTOCOL" CODE FLAGS RECEIVED SENT DURATION SERVICE_TIME "X-FORWARDED-FOR" "USER-AGENT"
/// "X-REQUEST-ID" "AUTHORITY" "UPSTREAM"`. Istio has more words after the flags, and the peer after the upstream.
pub(super) fn read_envoy<'a>(
    request: &mut LoggedRequest<'a>,
    line: &'a str,
) -> Option<Result<(), Fault>> {
    let (time, rest) = split(line.strip_prefix('[')?, b']')?;
    if time.as_bytes().get(10) != Some(&b'T') || !rest.starts_with(" \"") {
        return None;
    }
    Some(take_fields(request, time, rest))
}

fn take_fields<'a>(
    request: &mut LoggedRequest<'a>,
    time: &str,
    line: &'a str,
) -> Result<(), Fault> {
    let mut rest = line;
    let asked = quoted(&mut rest).ok_or(Fault::Unknown)?;
    take_request_line(request, asked.into())?;
    let (words, _) = split(rest, b'"').ok_or(Fault::Unknown)?;
    let mut numbers = words;
    // Istio has the cause of a failed connection to the upstream here, between quotes.
    if words.split_ascii_whitespace().count() < 6 {
        quoted(&mut rest).ok_or(Fault::Unknown)?;
        (numbers, _) = split(rest, b'"').ok_or(Fault::Unknown)?;
    }
    let took = numbers.split_ascii_whitespace().rev().nth(1);
    let took = took.and_then(|ms| ms.parse::<u32>().ok());
    request.ts = Some(instant::read_instant(time).ok_or(Fault::BadTime)?);
    request.put_status(words.split_ascii_whitespace().next());
    request.duration = took.map_or(0, |ms| u64::from(ms) * 1_000);
    request.format = LogFormat::Envoy;
    let list = quoted(&mut rest).ok_or(Fault::Unknown)?;
    request.user_agent = said(&mut rest);
    let _id = quoted(&mut rest);
    request.host = said(&mut rest).unwrap_or_default();
    let _upstream = quoted(&mut rest);
    let proxy_fields = request.proxy_fields.get_or_insert_default();
    // The words are the cluster, Envoy's address towards the upstream, Envoy's address towards the client, the client's
    // address.
    match rest.split_ascii_whitespace().nth(3).and_then(with_port) {
        Some(peer) => {
            request.client = Some(peer);
            proxy_fields.forwarded_for = Some(list).filter(|list| *list != "-").map(worded);
        }
        None => request.put_client_list(worded(list))?,
    }
    Ok(())
}

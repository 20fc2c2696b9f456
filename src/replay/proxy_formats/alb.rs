//! The log of an application load balancer of AWS.

use super::with_port;
use crate::clock::Timestamp;
use crate::replay::apache_format::{quoted, said, take_request_line};
use crate::replay::request::{LogFormat, LoggedRequest};
use crate::replay::{Fault, instant};

const KINDS: [&str; 6] = ["http", "https", "h2", "grpcs", "ws", "wss"];

/// `https 2026-11-20T17:48:50.123456Z app/lb/50dc6c495c0c9188 203.0.113.9:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57
/// "GET https://www.example.com:443/ HTTP/1.1" "curl/7.46.0" ..`
pub(super) fn read_alb<'a>(
    request: &mut LoggedRequest<'a>,
    line: &'a str,
) -> Option<Result<(), Fault>> {
    let (kind, rest) = line.split_once(' ')?;
    let (time, rest) = rest.split_once(' ')?;
    let is_one = KINDS.contains(&kind) && time.as_bytes().get(10) == Some(&b'T');
    is_one.then(|| {
        let end = instant::read_instant(time).ok_or(Fault::BadTime)?;
        take_fields(request, kind, end, rest)
    })
}

fn take_fields<'a>(
    request: &mut LoggedRequest<'a>,
    kind: &str,
    end: Timestamp,
    line: &'a str,
) -> Result<(), Fault> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let client = words.next().ok_or(Fault::Unknown)?;
    // The durations until the request was forwarded, until the answer arrived, and until the answer was sent; -1 for a
    // step that never happened.
    let took = (words.by_ref().skip(1).take(3))
        .filter_map(|seconds| instant::decimal(seconds, 6))
        .sum();
    request.put_status(words.next());
    let mut rest = line;
    let asked = quoted(&mut rest).ok_or(Fault::Unknown)?;
    take_request_line(request, asked.into())?;
    request.user_agent = said(&mut rest);
    // The line of a WebSocket begins with the time of its end; the time of its beginning is a later word.
    let began = match kind {
        "ws" | "wss" => rest
            .split_ascii_whitespace()
            .find_map(|word| instant::read_instant(word).filter(|_| word.contains('T'))),
        _ => None,
    };
    let began = began
        .unwrap_or_else(|| Timestamp::from_micros(end.micros().saturating_sub(took)))
        .min(end);
    request.client = match client {
        "-" => None,
        client => Some(with_port(client).ok_or(Fault::BadClient)?),
    };
    request.ts = Some(began);
    request.duration = end.since(began);
    request.format = LogFormat::Alb;
    request.proxy_fields = Some(Box::default());
    Ok(())
}

//! `explain --live`: asks the running gateway's admin listener what is left on the counters of a request.

use super::request::{AppliedLimit, Explanation, KeyResult};
use crate::admin::PEEK;
use crate::limit::concurrency::HINT;
use crate::limit::rate::{Interval, Span};
use crate::limit::verdict::{VerdictOutcome, Wait};
use crate::limit::{Limit, Mode, Rule};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for the connection, and for each piece of the answer.
const WITHIN: Duration = Duration::from_secs(3);
/// No answer is longer.
const MOST: u64 = 1024 * 1024;

/// What the running gateway says of one counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CounterState {
    /// So many of so many, and the microseconds until it is as if unused.
    Units { remaining: u64, of: u64, reset: u64 },
    /// The gateway runs with a file that has no such limit.
    Unknown,
    /// It could not look.
    Failed(String),
}

/// What the request would get from a counter as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LiveVerdict {
    pub(super) outcome: VerdictOutcome,
    /// Is the wait of a refusal the one that the gateway would tell, and no upper bound?
    pub(super) is_exact: bool,
    /// Units it would be charged.
    pub(super) takes: u32,
}

/// Asks the gateway at `address`, and notes what it says beside each limit.
///
/// # Errors
/// Why there is no answer.
pub(super) fn ask(explanation: &mut Explanation, address: SocketAddr) -> io::Result<()> {
    let limits = explanation
        .routing
        .iter_mut()
        .flat_map(|routing| &mut routing.limits);
    let mut counted: Vec<(&mut AppliedLimit, Value)> = limits
        .filter_map(|held| {
            // The gateway is asked by name, and that is the limit's own.
            if held.limit.mode == Mode::Candidate {
                return None;
            }
            let KeyResult::Counted { raw, .. } = &held.key else {
                return None;
            };
            let counter = json!({
                "limit": &*held.limit.name,
                "window": held.limit.window.as_deref(),
                "group": held.limit.group.as_deref(),
                "key": hexadecimal(raw),
            });
            Some((held, counter))
        })
        .collect();
    let counters: Vec<&Value> = counted.iter().map(|(_, counter)| counter).collect();
    let answer = post(reachable(address), &json!({ "counters": counters }))?;
    let seen = answer["counters"].as_array();
    let seen = seen.ok_or_else(|| io::Error::other("an answer that is none"))?;
    for ((held, _), seen) in counted.iter_mut().zip(seen) {
        let left = left(seen);
        if let KeyResult::Counted { cost, .. } = &held.key {
            held.now = now(&held.limit, *cost, &left);
        }
        held.left = Some(left);
    }
    explanation.settle();
    Ok(())
}

/// What a request of `cost` gets where so much is left; nothing where that is not known.
///
/// The time until a counter is as if unused says how full a bucket is, and when a window ends.
fn now(limit: &Limit, cost: u32, left: &CounterState) -> Option<LiveVerdict> {
    let CounterState::Units {
        remaining,
        of,
        reset,
    } = *left
    else {
        return None;
    };
    let most = u32::try_from(remaining.max(1)).unwrap_or(u32::MAX);
    let takes = if limit.partial { cost.min(most) } else { cost };
    let fits = u64::from(takes) <= remaining;
    let (outcome, is_exact) = match &limit.rule {
        _ if takes == 0 => (VerdictOutcome::Admit { delay: 0 }, true),
        _ if u64::from(takes) > of => (VerdictOutcome::Refuse(Wait::Never), true),
        Rule::LeakyBucket(rule) => {
            let full = over((rule.interval, takes), reset, rule.capacity);
            let late = reset.saturating_sub(rule.latest.ceil());
            let outcome = match full.max(late) {
                0 => VerdictOutcome::Admit {
                    delay: reset.saturating_sub(rule.free.whole),
                },
                wait => VerdictOutcome::Refuse(Wait::Micros(wait)),
            };
            (outcome, true)
        }
        _ if fits => (VerdictOutcome::Admit { delay: 0 }, true),
        Rule::TokenBucket(rule) => {
            let wait = over((rule.interval, takes), reset, rule.capacity);
            (VerdictOutcome::Refuse(Wait::Micros(wait.max(1))), true)
        }
        Rule::FixedWindow(_) | Rule::ClockWindow(_) => {
            (VerdictOutcome::Refuse(Wait::Micros(reset)), true)
        }
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) => {
            (VerdictOutcome::Refuse(Wait::Micros(reset)), false)
        }
        Rule::Concurrency(_) => (VerdictOutcome::Refuse(Wait::Micros(HINT)), false),
    };
    let takes = match outcome {
        VerdictOutcome::Admit { .. } => takes,
        VerdictOutcome::Refuse(_) => 0,
    };
    Some(LiveVerdict {
        outcome,
        is_exact,
        takes,
    })
}

/// By how many microseconds a bucket that is empty in `reset` would be overfull with so many units more.
fn over((interval, units): (Interval, u32), reset: u64, capacity: Span) -> u64 {
    let level = Span {
        whole: reset,
        part: 0,
    };
    let next = interval.add(level, interval.times(u64::from(units)));
    interval.sub(next, capacity).map_or(0, |over| over.whole)
}

fn left(seen: &Value) -> CounterState {
    let number = |name: &str| seen[name].as_u64();
    match (number("remaining"), number("of"), number("reset_us")) {
        (Some(remaining), Some(of), Some(reset)) => CounterState::Units {
            remaining,
            of,
            reset,
        },
        _ if seen["known"] == false => CounterState::Unknown,
        _ => CounterState::Failed(seen["error"].as_str().unwrap_or("no word").to_owned()),
    }
}

/// Who listens on every address is asked on this machine's own.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing into a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn post(address: SocketAddr, body: &Value) -> io::Result<Value> {
    let mut stream = TcpStream::connect_timeout(&address, WITHIN)?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    let body = body.to_string();
    let request = format!(
        "POST {PEEK} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other("an answer that is no HTTP"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    match status {
        "200" => Ok(body),
        status => Err(io::Error::other(format!(
            "it answered {status}: {}",
            body["detail"]
                .as_str()
                .unwrap_or("is it the admin listener of a gateway?")
        ))),
    }
}

//! The members of a line of JSON: which of them a request is made of, and how each is read.

use super::super::json::{self, Value};
use super::super::line_layout::{LineLayout, MemberName};
use super::super::request::{LoggedRequest, number};
use super::super::{Fault, address, instant, proxy_formats};
use std::net::IpAddr;

/// More requests than one line can stand for.
const MOST_REPEATED: u64 = 1_000_000_000;

/// Reads a line that begins as an object does.
pub(super) fn read<'a>(
    request: &mut LoggedRequest<'a>,
    line: &'a [u8],
    line_layout: &mut LineLayout,
) -> Result<(), Fault> {
    let (mut at, mut timed) = (0, false);
    for index in 0.. {
        let known = line_layout.next(index, &line[at..]);
        let (value, end, member) = match known {
            Some((member, start)) => {
                let (value, end) = json::value_at(line, at + start)?;
                (value, end, member)
            }
            None => {
                let Some((name, start)) = json::member(line, at)? else {
                    break;
                };
                let (value, end) = json::value_at(line, start)?;
                let member = MemberName::named(name)?;
                line_layout.learn(index, &line[at..start], member);
                (value, end, member)
            }
        };
        at = end;
        match member {
            MemberName::Other => {}
            MemberName::Ts => {
                let ts = match value {
                    Value::Number(digits) => instant::read(digits),
                    Value::Text(text) => instant::read(text.read()?.as_bytes()),
                    _ => None,
                };
                request.ts = ts.ok_or(Fault::BadTime)?;
                timed = true;
            }
            member if value != Value::Null => take(request, member, value)?,
            _ => {}
        }
    }
    let is_named = request.client.is_some() || request.names_path;
    if timed && is_named {
        Ok(())
    } else {
        proxy_formats::read_object(request, line, timed)
    }
}

/// A text without escapes.
fn word(value: Value<'_>) -> &[u8] {
    match value {
        Value::Text(text) => text.plain().unwrap_or_default(),
        _ => b"",
    }
}

/// Takes from `value` what `member` says of a request.
fn take<'a>(
    request: &mut LoggedRequest<'a>,
    member: MemberName,
    value: Value<'a>,
) -> Result<(), Fault> {
    let text = |name: &'static str| match value {
        Value::Text(text) => text.read(),
        _ => Err(Fault::BadMember(name)),
    };
    let bytes = |name: &'static str| match value {
        Value::Text(text) => text.bytes(),
        _ => Err(Fault::BadMember(name)),
    };
    match member {
        MemberName::Client => request.client = Some(client(value)?),
        MemberName::Method => request.method = bytes("method")?,
        MemberName::Host => request.host = bytes("host")?,
        MemberName::Path => {
            request.target = bytes("path")?;
            request.names_path = true;
        }
        MemberName::UserAgent => request.user_agent = Some(text("user_agent")?),
        MemberName::Headers => match value {
            Value::Object(raw) => request.headers = raw,
            _ => return Err(Fault::BadMember("headers")),
        },
        MemberName::Keys => match value {
            Value::Object(raw) => keys(request, raw)?,
            _ => return Err(Fault::BadMember("keys")),
        },
        MemberName::Costs => match value {
            Value::Object(raw) => request.costs = raw,
            _ => return Err(Fault::BadMember("costs")),
        },
        MemberName::Groups => {
            if let Value::Object(raw) = value {
                request.groups = raw;
            }
        }
        // Logs of other tools may have other words in these members.
        MemberName::Status => request.status = number(value, 0, "status").unwrap_or(0),
        MemberName::Reason => request.reason = word(value),
        MemberName::Limit => request.limit = word(value),
        MemberName::Upstream => request.reached = true,
        MemberName::DelayMs => {
            request.was_held = number::<u64>(value, 3, "delay_ms").unwrap_or(0) > 0
        }
        MemberName::Cost => request.cost = Some(number(value, 0, "cost")?),
        MemberName::DurationMs => request.duration = number(value, 3, "duration_ms")?,
        MemberName::Repeated => {
            let more: u64 = number(value, 0, "repeated")?;
            if more >= MOST_REPEATED {
                return Err(Fault::BadMember("repeated"));
            }
            request.times = 1 + more;
        }
        MemberName::Ts | MemberName::Other => {}
    }
    Ok(())
}

fn client(value: Value<'_>) -> Result<IpAddr, Fault> {
    let Value::Text(text) = value else {
        return Err(Fault::BadClient);
    };
    address::read(&text.read()?)
}

/// Reads the keys once for all limits: every limit looks for its own.
fn keys<'a>(request: &mut LoggedRequest<'a>, raw: &'a [u8]) -> Result<(), Fault> {
    request.keys.clear();
    json::members(raw, |limit, key| {
        request.keys.push((limit, key));
        Ok(())
    })
}

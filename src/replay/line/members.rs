//! The members of our access log's lines, and how each is read.

use crate::client::UNIX;
use crate::replay::json::{self, Value};
use crate::replay::request::{LoggedRequest, number};
use crate::replay::{Fault, address, instant};
use std::borrow::Cow;

/// The most requests that one line can stand for.
const MOST_REPEATED: u64 = 1_000_000_000;

/// A member that describes a part of a request.
#[derive(Debug)]
pub(super) struct MemberReader {
    pub(super) name: &'static str,
    /// Stores the member's value in the request.
    pub(super) read: for<'a> fn(&mut LoggedRequest<'a>, Value<'a>) -> Result<(), Fault>,
}

const fn member(
    name: &'static str,
    read: for<'a> fn(&mut LoggedRequest<'a>, Value<'a>) -> Result<(), Fault>,
) -> MemberReader {
    MemberReader { name, read }
}

/// All members that describe a part of a request.
static MEMBERS: [MemberReader; 20] = [
    member("ts", |request, value| {
        instant::of(value).map(|ts| request.ts = Some(ts))
    }),
    member("client", |request, value| {
        let Value::Text(text) = value else {
            return Err(Fault::BadClient);
        };
        let text = text.read()?;
        if text != UNIX {
            request.client = Some(address::read(&text)?);
        }
        Ok(())
    }),
    member("method", |request, value| {
        request.put_method(&text(value, "method")?)
    }),
    member("host", |request, value| {
        text(value, "host").map(|host| request.host = host)
    }),
    member("path", |request, value| {
        text(value, "path").map(|path| request.put_target(path))
    }),
    member("user_agent", |request, value| {
        text(value, "user_agent").map(|agent| request.user_agent = Some(agent))
    }),
    member("headers", |request, value| {
        object(value, "headers").map(|headers| request.headers = headers)
    }),
    // The keys are read once for all limits; each limit looks for its own.
    member("keys", |request, value| {
        let keys = json::members(object(value, "keys")?);
        keys.collect::<Result<_, _>>()
            .map(|keys| request.keys = keys)
    }),
    member("costs", |request, value| {
        object(value, "costs").map(|costs| request.costs = costs)
    }),
    // Logs of other tools may have other values in these members.
    member("groups", |request, value| {
        request.groups = object(value, "groups").unwrap_or(request.groups);
        Ok(())
    }),
    member("status", |request, value| {
        request.status = number(value, 0, "status").unwrap_or(0);
        Ok(())
    }),
    member("grpc_status", |request, value| {
        request.grpc_status = number(value, 0, "grpc_status").ok();
        Ok(())
    }),
    member("reason", |request, value| {
        request.reason = word(value);
        Ok(())
    }),
    member("route", |request, value| {
        request.route = Some(word(value));
        Ok(())
    }),
    member("limit", |request, value| {
        request.limit = word(value);
        Ok(())
    }),
    member("upstream", |request, _| {
        request.reached = true;
        Ok(())
    }),
    member("delay_ms", |request, value| {
        request.was_held = number::<u64>(value, 3, "delay_ms").is_ok_and(|delay| delay > 0);
        Ok(())
    }),
    member("cost", |request, value| {
        number(value, 0, "cost").map(|cost| request.cost = Some(cost))
    }),
    member("duration_ms", |request, value| {
        number(value, 3, "duration_ms").map(|duration| request.duration = duration)
    }),
    member("repeated", |request, value| {
        let more: u64 = number(value, 0, "repeated")?;
        request.times = 1 + more;
        if more < MOST_REPEATED {
            Ok(())
        } else {
            Err(Fault::BadMember("repeated"))
        }
    }),
];

/// The member of this name, if it describes a part of a request.
pub(super) fn find(name: &str) -> Option<&'static MemberReader> {
    MEMBERS.iter().find(|member| member.name == name)
}

fn text<'a>(value: Value<'a>, name: &'static str) -> Result<Cow<'a, str>, Fault> {
    match value {
        Value::Text(text) => text.read(),
        _ => Err(Fault::BadMember(name)),
    }
}

fn object<'a>(value: Value<'a>, name: &'static str) -> Result<&'a str, Fault> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(Fault::BadMember(name)),
    }
}

/// The text of a string without escapes.
fn word(value: Value<'_>) -> &str {
    match value {
        Value::Text(text) => text.plain().unwrap_or_default(),
        _ => "",
    }
}

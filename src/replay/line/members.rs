//! The members of our access log's lines, and the reader of each.

use crate::client::UNIX;
use crate::key::GrpcStatus;
use crate::replay::json::{self, Value};
use crate::replay::request::{LoggedRequest, number};
use crate::replay::{Fault, address, instant};
use crate::telemetry::access_log::Reason;
use std::borrow::Cow;

/// The most requests that one line can represent.
const MOST_REPEATED: u64 = 1_000_000_000;

/// A member that describes a part of a request.
#[derive(Debug)]
pub(super) struct MemberReader {
    pub(super) name: &'static str,
    /// Stores the member's value in the request.
    pub(super) read: for<'a> fn(&mut LoggedRequest<'a>, Value<'a>) -> Result<(), Fault>,
}

/// Rows of readers: the name of a member, and what its value does to the request.
macro_rules! readers {
    ($request:ident, $value:ident: $($name:literal => $read:expr;)+) => {
        &[$(MemberReader {
            name: $name,
            read: |$request, $value| {
                $read;
                Ok(())
            },
        }),+]
    };
}

/// All members that describe a part of a request. An absent value, `null`, is not read.
static MEMBERS: &[MemberReader] = readers! { request, value:
    "ts" => request.ts = Some(instant::instant_of(value)?);
    "client" => {
        let Value::Text(text) = value else {
            return Err(Fault::BadClient);
        };
        let text = text.read()?;
        if text != UNIX {
            request.client = Some(address::parse_address(&text)?);
        }
    };
    "method" => request.put_method(&text_member(value, "method")?)?;
    "host" => request.host = text_member(value, "host")?;
    "path" => request.put_target(text_member(value, "path")?);
    "user_agent" => request.user_agent = Some(text_member(value, "user_agent")?);
    "headers" => request.headers = object(value, "headers")?;
    // The keys are parsed once for all limits; each limit looks up its own.
    "keys" => request.keys = json::members(object(value, "keys")?).collect::<Result<_, _>>()?;
    "costs" => request.costs = object(value, "costs")?;
    // Logs of other tools may have other values in these members.
    "groups" => request.groups = object(value, "groups").unwrap_or(request.groups);
    "customer" => request.customer = Cow::Borrowed(word(value));
    "status" => request.status = number(value, 0, "status").unwrap_or(0);
    "grpc_status" => request.grpc_status = number(value, 0, "grpc_status").ok().map(GrpcStatus);
    "reason" => request.reason = Reason::named(word(value));
    "route" => request.route = word(value);
    "limit" => request.limit = word(value);
    "upstream" => request.reached = value != Value::Null;
    "delay_ms" => request.was_held = number::<u64>(value, 3, "delay_ms").is_ok_and(|delay| delay > 0);
    "shadow" => if let Value::List(names) = value {
        request.would_refuse = names;
    };
    "tls" => request.is_encrypted = matches!(value, Value::Object(_));
    "cost" => request.cost = Some(number(value, 0, "cost")?);
    "duration_ms" => request.duration = number(value, 3, "duration_ms")?;
    "repeated" => {
        let more: u64 = number(value, 0, "repeated")?;
        request.times = 1 + more;
        if more >= MOST_REPEATED {
            return Err(Fault::BadMember("repeated"));
        }
    };
};

/// The member of this name, if it describes a part of a request.
pub(super) fn find(name: &str) -> Option<&'static MemberReader> {
    MEMBERS.iter().find(|member| member.name == name)
}

fn text_member<'a>(value: Value<'a>, name: &'static str) -> Result<Cow<'a, str>, Fault> {
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

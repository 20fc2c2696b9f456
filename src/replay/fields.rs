//! `--fields`: which members of a JSON log are the parts of a request.

use super::json::{self, JsonText, Value};
use super::request::{LogFormat, LoggedRequest};
use super::{Fault, apache_format, instant};
use crate::clock::Timestamp;
use http::HeaderName;
use std::borrow::Cow;
use std::cell::Cell;

/// What can be named, but for `header:NAME`.
const NAMES: [&str; 14] = [
    "ts",
    "client",
    "method",
    "host",
    "path",
    "request",
    "status",
    "cost",
    "duration",
    "duration_ms",
    "duration_us",
    "duration_ns",
    "user_agent",
    "referer",
];

/// Names that times have where none is named.
const TIMES: [&str; 6] = [
    "ts",
    "time",
    "timestamp",
    "@timestamp",
    "time_iso8601",
    "msec",
];

/// The one of the names that a word means.
pub type NearestName = fn(&str, &[&'static str]) -> Option<&'static str>;

/// Members by what they say.
#[derive(Debug, Clone)]
pub struct Mapping {
    entries: Vec<MappedMember>,
}

#[derive(Debug, Clone)]
struct MappedMember {
    says: MappedField,
    /// Names from the outside in, with dots between.
    member: Box<str>,
    /// As it was given.
    name: Box<str>,
    /// Some line has had it.
    was_seen: Cell<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MappedField {
    Ts,
    Client,
    Method,
    Host,
    Path,
    /// The request's first line.
    Request,
    Status,
    Cost,
    /// In units of a second's so many decimals.
    Duration(u32),
    Header(HeaderName),
}

impl Mapping {
    /// Reads `client=remote_addr,path=request_uri`, several times.
    ///
    /// `meant` finds the name that a misspelt one means.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub fn read_options(options: &[String], meant: NearestName) -> Result<Self, String> {
        let mut entries: Vec<MappedMember> = Vec::new();
        for pair in options.iter().flat_map(|option| option.split(',')) {
            let pair = pair.trim_ascii();
            let Some((name, member)) = pair.split_once('=') else {
                return Err(format!(
                    "`{pair}` is not NAME=MEMBER, for example client=remote_addr"
                ));
            };
            if member.is_empty() || member.split('.').any(str::is_empty) {
                return Err(format!("`{pair}` names no member of the log's lines"));
            }
            let says = says(name, meant)?;
            if entries.iter().any(|entry| entry.says.is_same_part(&says)) {
                return Err(format!("`{name}` is named twice"));
            }
            entries.push(MappedMember {
                says,
                member: member.into(),
                name: name.into(),
                was_seen: Cell::new(false),
            });
        }
        add_own_members(&mut entries);
        Ok(Self { entries })
    }

    /// Names with members that no line had.
    pub(super) fn unseen(&self) -> impl Iterator<Item = (&str, &str)> {
        let unseen = self.entries.iter().filter(|entry| !entry.was_seen.get());
        unseen.map(|entry| (&*entry.name, &*entry.member))
    }

    /// Reads a line that begins as an object does.
    pub(super) fn read<'a>(
        &self,
        request: &mut LoggedRequest<'a>,
        line: &'a [u8],
    ) -> Result<(), Fault> {
        let mut ts = None;
        request.format = LogFormat::Fields;
        let mut fields = Vec::new();
        for entry in &self.entries {
            let Some(value) = find(line, &entry.member)? else {
                continue;
            };
            entry.was_seen.set(true);
            match &entry.says {
                MappedField::Ts => ts = Some(time(value)?),
                MappedField::Header(name) => {
                    fields.push((Cow::Owned(name.as_str().to_owned()), value))
                }
                says => take(request, says, value)?,
            }
        }
        if let Some(Value::Object(object)) = find(line, "headers")? {
            request.headers = object;
        }
        let proxy_fields = request.proxy_fields.get_or_insert_default();
        proxy_fields.fields = fields;
        let is_timed = self
            .entries
            .iter()
            .any(|entry| entry.says == MappedField::Ts);
        if !is_timed {
            for name in TIMES {
                if let Some(value) = find(line, name)? {
                    ts = Some(time(value)?);
                    break;
                }
            }
        }
        request.ts = ts.ok_or(Fault::NoTime)?;
        let has_fields = request
            .proxy_fields
            .as_ref()
            .is_some_and(|proxy_fields| !proxy_fields.fields.is_empty());
        if request.client.is_some() || request.names_path || has_fields {
            Ok(())
        } else {
            Err(Fault::Nameless)
        }
    }
}

impl MappedField {
    /// Whether both are one part of a request, in whichever unit.
    fn is_same_part(&self, other: &Self) -> bool {
        self == other || matches!((self, other), (Self::Duration(_), Self::Duration(_)))
    }
}

/// Adds the members of our own log that say what no entry says.
fn add_own_members(entries: &mut Vec<MappedMember>) {
    for (name, says) in [
        ("client", MappedField::Client),
        ("method", MappedField::Method),
        ("host", MappedField::Host),
        ("path", MappedField::Path),
        ("status", MappedField::Status),
        ("cost", MappedField::Cost),
        ("duration_ms", MappedField::Duration(3)),
    ] {
        let is_in_line = matches!(says, MappedField::Method | MappedField::Path);
        let is_mapped = entries.iter().any(|entry| {
            entry.says.is_same_part(&says) || entry.says == MappedField::Request && is_in_line
        });
        if !is_mapped {
            entries.push(MappedMember {
                says,
                member: name.into(),
                name: Box::from(""),
                was_seen: Cell::new(true),
            });
        }
    }
}

fn says(name: &str, meant: NearestName) -> Result<MappedField, String> {
    Ok(match name {
        "ts" => MappedField::Ts,
        "client" => MappedField::Client,
        "method" => MappedField::Method,
        "host" => MappedField::Host,
        "path" => MappedField::Path,
        "request" => MappedField::Request,
        "status" => MappedField::Status,
        "cost" => MappedField::Cost,
        "duration" => MappedField::Duration(6),
        "duration_ms" => MappedField::Duration(3),
        "duration_us" => MappedField::Duration(0),
        "duration_ns" => MappedField::Duration(NANOS),
        "user_agent" => MappedField::Header(http::header::USER_AGENT),
        "referer" => MappedField::Header(http::header::REFERER),
        _ => {
            if let Some(field) = name.strip_prefix("header:") {
                let field = HeaderName::try_from(field);
                return field.map(MappedField::Header).map_err(|_| {
                    format!("`{name}` names no field: write, for example, header:x-api-key")
                });
            }
            let meant = meant(name, &NAMES);
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
            return Err(format!(
                "`{name}` is none of {}, header:NAME{meant}",
                NAMES.join(", ")
            ));
        }
    })
}

/// In place of the decimals: the unit is a thousandth of a microsecond.
const NANOS: u32 = u32::MAX;

fn take<'a>(
    request: &mut LoggedRequest<'a>,
    says: &MappedField,
    value: Value<'a>,
) -> Result<(), Fault> {
    match says {
        MappedField::Client => {
            if let Some(list) = text(value, "client")? {
                request.put_client_list(list)?;
            }
        }
        MappedField::Method => {
            request.method = text(value, "method")?.map_or(request.method.clone(), bytes);
        }
        MappedField::Host => request.host = text(value, "host")?.map(bytes).unwrap_or_default(),
        MappedField::Path => {
            if let Some(path) = text(value, "path")? {
                request.target = bytes(path);
                request.names_path = true;
            }
        }
        MappedField::Request => {
            let Some(line) = text(value, "request")? else {
                return Ok(());
            };
            let owned = |part: Cow<'_, [u8]>| Cow::Owned(part.into_owned());
            (request.method, request.target) = match line {
                Cow::Borrowed(line) => apache_format::asked(line)?,
                Cow::Owned(line) => apache_format::asked(&line)
                    .map(|(method, target)| (owned(method), owned(target)))?,
            };
            request.names_path = true;
        }
        MappedField::Status => {
            request.status = u16::try_from(span(value, 0).unwrap_or(0)).unwrap_or(0)
        }
        MappedField::Cost => {
            let cost = text(value, "cost")?.map(|cost| cost.parse());
            request.cost = cost.transpose().map_err(|_| Fault::BadMember("cost"))?;
        }
        MappedField::Duration(NANOS) => request.duration = span(value, 0).unwrap_or(0) / 1_000,
        MappedField::Duration(places) => request.duration = span(value, *places).unwrap_or(0),
        MappedField::Ts | MappedField::Header(_) => {}
    }
    Ok(())
}

/// How long something took: a number of units that have so many decimals of a microsecond, as a number or as text. A
/// text may have a unit of its own.
pub(super) fn span(value: Value<'_>, places: u32) -> Option<u64> {
    let text = match value {
        Value::Number(digits) => Cow::Borrowed(str::from_utf8(digits).ok()?),
        Value::Text(text) => text.read().ok()?,
        _ => return None,
    };
    let text = text.trim_ascii();
    let units = [("ns", 0), ("us", 0), ("µs", 0), ("ms", 3), ("s", 6)];
    for (unit, places) in units {
        if let Some(number) = text.strip_suffix(unit) {
            let number = number_of(number.trim_ascii_end(), places)?;
            return Some(if unit == "ns" { number / 1_000 } else { number });
        }
    }
    number_of(text, places)
}

fn number_of(text: &str, places: u32) -> Option<u64> {
    if let Some(number) = instant::decimal(text.as_bytes(), places) {
        return Some(number);
    }
    // `1e-05`, as some write it: no decision hangs on its last digit.
    let number: f64 = text.parse().ok()?;
    let micros = number * 10_f64.powi(i32::try_from(places).ok()?);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the bounds, and what is finer is dropped"
    )]
    (0.0..1e15).contains(&micros).then_some(micros as u64)
}

fn time(value: Value<'_>) -> Result<Timestamp, Fault> {
    let at = match value {
        Value::Number(digits) => instant::read(digits),
        Value::Text(text) => {
            let text = text.read()?;
            let text = text.trim_ascii();
            let inside = text.strip_prefix('[').and_then(|at| at.strip_suffix(']'));
            instant::read(inside.unwrap_or(text).as_bytes())
        }
        _ => None,
    };
    at.ok_or(Fault::BadTime)
}

/// A text or a number, or the first of a list; nothing for what is empty.
fn text<'a>(value: Value<'a>, name: &'static str) -> Result<Option<Cow<'a, str>>, Fault> {
    let read =
        |text: JsonText<'a>| Ok(Some(text.read()?).filter(|text| !matches!(&**text, "" | "-")));
    match value {
        Value::Null => Ok(None),
        Value::Text(text) => read(text),
        Value::Number(digits) => Ok(str::from_utf8(digits).ok().map(Cow::Borrowed)),
        Value::List(list) => {
            let mut first = None;
            json::entries(list, |value| {
                first = first.or(Some(value));
                Ok(())
            })?;
            match first {
                None => Ok(None),
                Some(Value::Text(text)) => read(text),
                Some(_) => Err(Fault::BadMember(name)),
            }
        }
        Value::Bool(_) | Value::Object(_) => Err(Fault::BadMember(name)),
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// The value of `member` in `object`: of that name, dots and all, or inside of what has its beginning as a name.
fn find<'a>(object: &'a [u8], member: &str) -> Result<Option<Value<'a>>, Fault> {
    let mut found = None;
    json::members(object, |name, value| {
        if name.is(member) {
            found = Some(value);
        } else if let (Value::Object(inner), true) = (value, member.contains('.'))
            && let Ok(name) = name.read()
            && let Some(rest) = member
                .strip_prefix(&*name)
                .and_then(|rest| rest.strip_prefix('.'))
        {
            found = find(inner, rest)?.or(found);
        }
        Ok(())
    })?;
    Ok(found)
}

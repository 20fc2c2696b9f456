//! The mapping from members of a JSON log to parts of a request. `--fields` gives the mapping of any log; the mappings
//! of Caddy's and Traefik's logs are built in.

use super::json::{self, JsonText, Value};
use super::mapped_names::{MappedLevel, MappedValues};
use super::request::{LogFormat, LoggedRequest};
use super::{Fault, apache_format, instant};
use crate::clock::Timestamp;
use http::{HeaderName, header};
use std::borrow::Cow;
use std::cell::Cell;

/// The names of `--fields`, except `header:NAME`.
const NAMES: [(&str, MemberPart); 14] = [
    ("ts", MemberPart::Beginning),
    ("client", MemberPart::Client),
    ("method", MemberPart::Method),
    ("host", MemberPart::Host),
    ("path", MemberPart::Path),
    ("request", MemberPart::RequestLine),
    ("status", MemberPart::Status),
    ("cost", MemberPart::Cost),
    ("duration", MemberPart::Duration(SECONDS)),
    ("duration_ms", MemberPart::Duration(MILLIS)),
    ("duration_us", MemberPart::Duration(MICROS)),
    ("duration_ns", MemberPart::Duration(NANOS)),
    ("user_agent", MemberPart::Field(header::USER_AGENT)),
    ("referer", MemberPart::Field(header::REFERER)),
];

/// Members for the parts that `--fields` does not name: those of our own log, and common names of times.
const UNMAPPED: [(&str, MemberPart); 14] = [
    ("client", MemberPart::Client),
    ("method", MemberPart::Method),
    ("host", MemberPart::Host),
    ("path", MemberPart::Path),
    ("status", MemberPart::Status),
    ("cost", MemberPart::Cost),
    ("duration_ms", MemberPart::Duration(MILLIS)),
    ("headers", MemberPart::Fields),
    ("ts", MemberPart::Beginning),
    ("time", MemberPart::Beginning),
    ("timestamp", MemberPart::Beginning),
    ("@timestamp", MemberPart::Beginning),
    ("time_iso8601", MemberPart::Beginning),
    ("msec", MemberPart::Beginning),
];

/// Caddy's access log. `client_ip` is the client as Caddy determines it; older Caddys log only the peer, with its port.
const CADDY: [(&str, MemberPart); 11] = [
    ("duration", MemberPart::Duration(SECONDS)),
    ("ts", MemberPart::End),
    ("status", MemberPart::Status),
    ("request.client_ip", MemberPart::Client),
    ("request.remote_ip", MemberPart::Client),
    ("request.remote_addr", MemberPart::Client),
    ("request.method", MemberPart::Method),
    ("request.host", MemberPart::Host),
    ("request.uri", MemberPart::Path),
    ("request.headers", MemberPart::Fields),
    ("request.tls", MemberPart::Https),
];

/// Traefik's access log. `ClientHost` is the value of `X-Forwarded-For` if Traefik trusts that field.
const TRAEFIK: [(&str, MemberPart); 12] = [
    ("StartUTC", MemberPart::Beginning),
    ("StartLocal", MemberPart::Beginning),
    ("time", MemberPart::Beginning),
    ("ClientHost", MemberPart::Client),
    ("ClientAddr", MemberPart::Client),
    ("RequestHost", MemberPart::Host),
    ("RequestMethod", MemberPart::Method),
    ("RequestPath", MemberPart::Path),
    ("RequestScheme", MemberPart::Https),
    ("Duration", MemberPart::Duration(NANOS)),
    ("DownstreamStatus", MemberPart::Status),
    ("request_", MemberPart::FieldsByPrefix),
];

/// A function that finds the name that a misspelt word probably means.
pub type NearestName = fn(&str, &[&'static str]) -> Option<&'static str>;

/// The members of a log, with the part of a request that each contains.
#[derive(Debug, Clone)]
pub struct Mapping {
    format: LogFormat,
    members: Vec<MappedMember>,
    /// The same members, by their names.
    names: MappedLevel,
}

#[derive(Debug, Clone)]
struct MappedMember {
    /// The names of the enclosing objects from the outside in, and the member's own, with dots between.
    path: Box<str>,
    /// The member's part of a request. Of several members with the same part, the first that a line has counts.
    part: MemberPart,
    /// The part's name in `--fields`; `None` for a member that the option does not name.
    name: Option<Box<str>>,
    /// Has any line had the member?
    was_seen: Cell<bool>,
}

/// A part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MemberPart {
    Beginning,
    /// The end of the request, which is its duration after the beginning.
    End,
    Client,
    Method,
    Host,
    Path,
    RequestLine,
    Status,
    Cost,
    Duration(TimeUnit),
    Field(HeaderName),
    /// An object of fields.
    Fields,
    /// Fields, each in a separate member; the mapped name is the prefix of the members' names.
    FieldsByPrefix,
    /// `https`, or anything about TLS.
    Https,
}

/// The unit of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimeUnit {
    /// The decimal places from the unit down to a microsecond.
    places: u32,
    /// The number of units in a microsecond.
    per_micro: u64,
}

const SECONDS: TimeUnit = unit(6, 1);
const MILLIS: TimeUnit = unit(3, 1);
const MICROS: TimeUnit = unit(0, 1);
const NANOS: TimeUnit = unit(0, 1_000);

const fn unit(places: u32, per_micro: u64) -> TimeUnit {
    TimeUnit { places, per_micro }
}

impl Mapping {
    /// Reads `client=remote_addr,path=request_uri`, several times.
    ///
    /// `meant` finds the probable name for a misspelt one.
    ///
    /// # Errors
    /// The mistake, as a sentence.
    pub fn read_options(options: &[String], meant: NearestName) -> Result<Self, String> {
        let mut members: Vec<MappedMember> = Vec::new();
        for pair in options.iter().flat_map(|option| option.split(',')) {
            let pair = pair.trim_ascii();
            let Some((name, path)) = pair.split_once('=') else {
                return Err(format!(
                    "`{pair}` is not NAME=MEMBER, for example client=remote_addr"
                ));
            };
            if path.is_empty() || path.split('.').any(str::is_empty) {
                return Err(format!("`{pair}` names no member of the log's lines"));
            }
            let part = MemberPart::named(name, meant)?;
            if members.iter().any(|member| member.part.is_like(&part)) {
                return Err(format!("`{name}` is named twice"));
            }
            members.push(MappedMember {
                path: path.into(),
                part,
                name: Some(name.into()),
                was_seen: Cell::new(false),
            });
        }
        let mut unmapped = Self::of(LogFormat::Fields, &UNMAPPED).members;
        unmapped.retain(|unread| {
            !members
                .iter()
                .any(|member| member.part.covers(&unread.part))
        });
        members.append(&mut unmapped);
        Ok(Self::new(LogFormat::Fields, members))
    }

    /// The mappings of servers whose logs are recognised by their members.
    pub(super) fn of_servers() -> [Self; 2] {
        [
            Self::of(LogFormat::Caddy, &CADDY),
            Self::of(LogFormat::Traefik, &TRAEFIK),
        ]
    }

    fn of(format: LogFormat, members: &[(&str, MemberPart)]) -> Self {
        let members = members.iter().map(|(path, part)| MappedMember {
            path: Box::from(*path),
            part: part.clone(),
            name: None,
            was_seen: Cell::new(false),
        });
        Self::new(format, members.collect())
    }

    fn new(format: LogFormat, members: Vec<MappedMember>) -> Self {
        let mut names = MappedLevel::default();
        for (at, member) in members.iter().enumerate() {
            names.add(&member.path, at, member.part == MemberPart::FieldsByPrefix);
        }
        Self {
            format,
            members,
            names,
        }
    }

    /// The members that `--fields` names and no line had, each after the name of its part.
    pub(super) fn unseen(&self) -> impl Iterator<Item = (&str, &str)> {
        let unseen = self.members.iter().filter(|member| !member.was_seen.get());
        unseen.filter_map(|member| Some((member.name.as_deref()?, &*member.path)))
    }

    /// Reads a line that begins like an object. Returns false if the line is not of this log: every line of a known log
    /// has a path.
    pub(super) fn read<'a>(
        &self,
        request: &mut LoggedRequest<'a>,
        line: &'a str,
    ) -> Result<bool, Fault> {
        let mut said = MappedValues {
            values: vec![None; self.members.len()],
            fields: Vec::new(),
        };
        let start = json::object_at(line, 0).ok_or(Fault::NotJson)?;
        let end = self.names.find(line, start, 1, &mut said)?;
        if !json::is_at_end(line, end) {
            return Err(Fault::NotJson);
        }
        let found = || {
            let values = self.members.iter().zip(&said.values);
            values.filter_map(|(member, value)| Some((member, (*value)?)))
        };
        if self.format != LogFormat::Fields
            && !found().any(|(member, _)| member.part == MemberPart::Path)
        {
            return Ok(false);
        }
        request.clear();
        request.format = self.format;
        request.proxy_fields = Some(Box::default());
        let mut taken = None;
        for (member, value) in found() {
            member.was_seen.set(true);
            if taken != Some(&member.part) {
                member.part.take(request, value)?;
                taken = Some(&member.part);
            }
        }
        request
            .proxy_fields
            .get_or_insert_default()
            .fields
            .append(&mut said.fields);
        Ok(true)
    }
}

impl MemberPart {
    fn named(name: &str, meant: NearestName) -> Result<Self, String> {
        if let Some((_, part)) = NAMES.into_iter().find(|(other, _)| *other == name) {
            return Ok(part);
        }
        if let Some(field) = name.strip_prefix("header:") {
            let field = HeaderName::try_from(field);
            return field.map(Self::Field).map_err(|_| {
                format!("`{name}` names no field: write, for example, header:x-api-key")
            });
        }
        let names = NAMES.map(|(name, _)| name);
        let meant = meant(name, &names);
        let meant = meant.map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
        Err(format!(
            "`{name}` is none of {}, header:NAME{meant}",
            names.join(", ")
        ))
    }

    /// Are the two the same part of a request, in any unit?
    fn is_like(&self, other: &Self) -> bool {
        self == other || matches!((self, other), (Self::Duration(_), Self::Duration(_)))
    }

    /// Does a line with this part have `other`, too?
    fn covers(&self, other: &Self) -> bool {
        let is_in_line = matches!(other, Self::Method | Self::Path);
        self.is_like(other) || (*self == Self::RequestLine && is_in_line)
    }

    fn take<'a>(&self, request: &mut LoggedRequest<'a>, value: Value<'a>) -> Result<(), Fault> {
        match self {
            Self::Beginning => request.ts = Some(instant::instant_of(value)?),
            Self::End => {
                let end = instant::instant_of(value)?.micros();
                let start = end.saturating_sub(request.duration);
                request.ts = Some(Timestamp::from_micros(start));
            }
            Self::Client => {
                if let Some(list) = text_member(value, "client")? {
                    request.put_client_list(list)?;
                }
            }
            Self::Method => {
                if let Some(method) = text_member(value, "method")? {
                    request.put_method(&method)?;
                }
            }
            Self::Host => request.host = text_member(value, "host")?.unwrap_or_default(),
            Self::Path => {
                if let Some(path) = text_member(value, "path")? {
                    request.put_target(path);
                }
            }
            Self::RequestLine => {
                if let Some(line) = text_member(value, "request")? {
                    apache_format::take_request_line(request, line)?;
                }
            }
            Self::Status => {
                let status = span(value, MICROS).unwrap_or(0);
                request.status = u16::try_from(status).unwrap_or(0);
            }
            Self::Cost => {
                let cost = text_member(value, "cost")?.map(|cost| cost.parse());
                request.cost = cost.transpose().map_err(|_| Fault::BadMember("cost"))?;
            }
            Self::Duration(unit) => request.duration = span(value, *unit).unwrap_or(0),
            Self::Field(name) => {
                let proxy_fields = request.proxy_fields.get_or_insert_default();
                proxy_fields.fields.push((name.clone(), value));
            }
            Self::Fields => {
                if let Value::Object(object) = value {
                    request.headers = object;
                }
            }
            Self::FieldsByPrefix => {}
            Self::Https => {
                let is_https = match value {
                    Value::Text(scheme) => scheme.is("https"),
                    _ => matches!(value, Value::Object(_)),
                };
                request.proxy_fields.get_or_insert_default().is_https = is_https;
            }
        }
        Ok(())
    }
}

/// Reads a duration, a number or a text, in microseconds. A text may have a unit of its own.
fn span(value: Value<'_>, unit: TimeUnit) -> Option<u64> {
    const UNITS: [(&str, TimeUnit); 5] = [
        ("ns", NANOS),
        ("us", MICROS),
        ("µs", MICROS),
        ("ms", MILLIS),
        ("s", SECONDS),
    ];
    let text = match value {
        Value::Number(digits) => Cow::Borrowed(digits),
        Value::Text(text) => text.read().ok()?,
        _ => return None,
    };
    let text = text.trim_ascii();
    let split = UNITS.iter().find_map(|(name, unit)| {
        let number = text.strip_suffix(name)?;
        Some((number.trim_ascii_end(), *unit))
    });
    let (number, TimeUnit { places, per_micro }) = split.unwrap_or((text, unit));
    if let Some(number) = instant::decimal(number, places) {
        return Some(number / per_micro);
    }
    // Some servers write `1e-05`. A float is accurate enough: no decision depends on the last digit of a duration.
    let number: f64 = number.parse().ok()?;
    let number = number * 10_f64.powi(i32::try_from(places).ok()?);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the bounds, and what is finer is dropped"
    )]
    (0.0..1e15)
        .contains(&number)
        .then_some(number as u64 / per_micro)
}

/// A text or a number, or the first of a list; `None` if the value is empty.
fn text_member<'a>(value: Value<'a>, name: &'static str) -> Result<Option<Cow<'a, str>>, Fault> {
    let read =
        |text: JsonText<'a>| Ok(Some(text.read()?).filter(|text| !matches!(&**text, "" | "-")));
    match value {
        Value::Null => Ok(None),
        Value::Text(text) => read(text),
        Value::Number(digits) => Ok(Some(Cow::Borrowed(digits))),
        Value::List(list) => match json::entries(list).next().transpose()? {
            None => Ok(None),
            Some(Value::Text(text)) => read(text),
            Some(_) => Err(Fault::BadMember(name)),
        },
        Value::Bool(_) | Value::Object(_) => Err(Fault::BadMember(name)),
    }
}

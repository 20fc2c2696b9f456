//! A logged request: what a replay knows of it, from whichever kind of line.

mod format;
mod limits;

pub use format::LogFormat;
pub(super) use format::ProxyFields;

use super::json::{self, JsonText, Value};
use super::{Fault, instant};
use crate::clock::Timestamp;
use crate::key::address::read_address;
use crate::limit::verdict::INLINE_LIMITS;
use http::{HeaderMap, Method, header};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::mem;
use std::net::IpAddr;

/// A request as its line has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoggedRequest<'a> {
    /// The instant of its head; nothing until the line has said it.
    pub(super) ts: Option<Timestamp>,
    /// The client's address.
    pub(super) client: Option<IpAddr>,
    /// `GET` where the line has none.
    pub(super) method: Method,
    /// Empty where the line has none.
    pub(super) host: Cow<'a, str>,
    /// Path, with or without a query; or a whole URI.
    pub(super) target: Cow<'a, str>,
    /// An object of fields, as it stands there.
    pub(super) headers: &'a str,
    /// Its fields, as the gateway would see them, once the line has been read.
    pub(super) fields: HeaderMap,
    /// Where a log has it outside of the fields.
    pub(super) user_agent: Option<Cow<'a, str>>,
    /// Where a log has it outside of the fields.
    pub(super) referer: Option<Cow<'a, str>>,
    /// Keys by limit, as the access log writes them.
    pub(super) keys: SmallVec<[(JsonText<'a>, Value<'a>); INLINE_LIMITS]>,
    /// An object of costs by limit, as the access log writes it.
    pub(super) costs: &'a str,
    /// An object of groups by limit, as the access log writes it.
    pub(super) groups: &'a str,
    /// What it takes from limits that read their cost from it.
    pub(super) cost: Option<u32>,
    /// How long it lasted, in microseconds.
    pub(super) duration: u64,
    /// How many requests the line stands for.
    pub(super) times: u64,
    /// The status of the answer; 0 where the line has none.
    pub(super) status: u16,
    /// The access log's word for why; empty where the line has none.
    pub(super) reason: &'a str,
    /// The limit that refused or held it; empty where the line names none.
    pub(super) limit: &'a str,
    /// It went on to a server.
    pub(super) reached: bool,
    /// Was it held before?
    pub(super) was_held: bool,
    /// The line says what was asked for.
    pub(super) names_path: bool,
    /// How the line is written.
    pub(super) format: LogFormat,
    /// What only other servers' logs have. With it, `client` is the peer of that server, and the client behind the peer is
    /// found as the gateway finds it.
    pub(super) proxy_fields: Option<Box<ProxyFields<'a>>>,
}

/// The parts of a request's target.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoggedTarget<'a> {
    /// Empty where the line has none.
    pub(super) host: &'a str,
    /// The path as it came.
    pub(super) path: &'a str,
    /// The query, if the line has one.
    pub(super) query: Option<&'a str>,
}

impl Default for LoggedRequest<'_> {
    /// A request of which nothing is known yet.
    fn default() -> Self {
        Self::with_room(HeaderMap::new())
    }
}

impl<'a> LoggedRequest<'a> {
    /// A request of which nothing is known yet. Its fields will stand in `fields`, which is empty.
    pub(super) fn with_room(fields: HeaderMap) -> Self {
        Self {
            ts: None,
            client: None,
            method: Method::GET,
            host: Cow::Borrowed(""),
            target: Cow::Borrowed("/"),
            headers: "{}",
            fields,
            user_agent: None,
            referer: None,
            keys: SmallVec::new(),
            costs: "{}",
            groups: "{}",
            cost: None,
            duration: 0,
            times: 1,
            status: 0,
            reason: "",
            limit: "",
            reached: false,
            was_held: false,
            names_path: false,
            format: LogFormat::Own,
            proxy_fields: None,
        }
    }

    /// Forgets all but the room of its fields.
    pub(super) fn clear(&mut self) {
        *self = Self::with_room(mem::take(&mut self.fields));
    }

    /// Does its line say more of a request than its time?
    pub(super) fn says_anything(&self) -> bool {
        let proxy_fields = self.proxy_fields.as_deref();
        self.client.is_some()
            || self.names_path
            || proxy_fields.is_some_and(|proxy| !proxy.fields.is_empty())
            || self.is_for_replay()
    }

    /// A line of ours with a cost, a field or the key of a limit was written for a replay.
    fn is_for_replay(&self) -> bool {
        let has_members = |object| json::members(object).next().is_some();
        let is_priced = self.cost.is_some() || has_members(self.costs);
        let is_keyed = !self.keys.is_empty() || has_members(self.headers);
        self.format == LogFormat::Own && (is_priced || is_keyed)
    }

    /// Takes the method.
    pub(super) fn put_method(&mut self, method: &str) -> Result<(), Fault> {
        self.method = read_method(method)?;
        Ok(())
    }

    /// Takes a status, where it is one.
    pub(super) fn put_status(&mut self, text: Option<&str>) {
        self.status = text.and_then(|status| status.parse().ok()).unwrap_or(0);
    }

    /// Takes path and query, or a whole URI.
    pub(super) fn put_target(&mut self, target: Cow<'a, str>) {
        self.target = target;
        self.names_path = true;
    }

    /// Is its end a server's error, for which limits may give back what they took? An answer that is the gateway's own
    /// word about itself is none.
    pub(super) fn failed(&self) -> bool {
        let own = ["store_down", "too_many_held", "busy", "draining"];
        (500..600).contains(&self.status) && !own.contains(&self.reason)
    }

    /// Did the client leave before anything was forwarded, or would it have, being held for `wait`?
    pub(super) fn left_within(&self, wait: u64) -> bool {
        let left = self.reason == "client_gone" && !self.reached;
        left && (wait > self.duration || !self.was_held)
    }

    /// Where it goes. The host in its target goes before the one beside it, and that before the field.
    pub(super) fn target(&self) -> LoggedTarget<'_> {
        let target = &*self.target;
        let end = target.bytes().position(|byte| matches!(byte, b'?' | b'#'));
        let (target, behind) = target.split_at(end.unwrap_or(target.len()));
        let field = || str::from_utf8(self.fields.get(header::HOST)?.as_bytes()).ok();
        let host = match &*self.host {
            "" => field().unwrap_or_default(),
            host => host,
        };
        let (host, path) = match whole_uri(target) {
            None => (host, target),
            Some(rest) => match rest.find('/') {
                Some(slash) => rest.split_at(slash),
                None => (rest, "/"),
            },
        };
        let query = behind.strip_prefix('?');
        LoggedTarget {
            host,
            path,
            query: query.and_then(|query| query.split('#').next()),
        }
    }

    /// Takes the client from a list of addresses. A `-` is no client.
    pub(super) fn put_client_list(&mut self, list: Cow<'a, str>) -> Result<(), Fault> {
        if matches!(list.trim_ascii(), "" | "-" | "unknown") {
            return Ok(());
        }
        let (peer, before) = chain(&list).ok_or(Fault::BadClient)?;
        self.client = Some(peer);
        let before = before.map(str::len);
        if let Some(length) = before {
            let proxy_fields = self.proxy_fields.get_or_insert_default();
            proxy_fields.forwarded_for = Some(match list {
                Cow::Borrowed(list) => Cow::Borrowed(&list[..length]),
                Cow::Owned(mut list) => {
                    list.truncate(length);
                    Cow::Owned(list)
                }
            });
        }
        Ok(())
    }
}

/// What stands behind the scheme of a whole URI.
#[inline]
fn whole_uri(target: &str) -> Option<&str> {
    if target.starts_with('/') {
        return None;
    }
    let rest = target.strip_prefix("http")?;
    rest.strip_prefix("://")
        .or_else(|| rest.strip_prefix("s://"))
}

/// The right end of a list of addresses, which is the peer of the server that wrote it, and what stands before.
fn chain(list: &str) -> Option<(IpAddr, Option<&str>)> {
    match list.rsplit_once(',') {
        Some((before, last)) => Some((read_address(last)?, Some(before))),
        None => Some((read_address(list)?, None)),
    }
}

/// A method of HTTP.
pub(super) fn read_method(text: &str) -> Result<Method, Fault> {
    Method::from_bytes(text.as_bytes()).map_err(|_| Fault::BadMember("method"))
}

/// A number without sign; whole where it has no `places`.
pub(super) fn number<T: TryFrom<u64>>(
    value: Value<'_>,
    places: u32,
    name: &'static str,
) -> Result<T, Fault> {
    let Value::Number(digits) = value else {
        return Err(Fault::BadMember(name));
    };
    let whole = places > 0 || !digits.contains('.');
    let number = instant::decimal(digits, places).filter(|_| whole);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or(Fault::BadMember(name))
}

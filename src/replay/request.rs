//! A logged request: its parts that a replay knows, from a line of any form.

mod format;
mod limits;

pub use format::LogFormat;
pub(super) use format::ProxyFields;

use super::json::{self, JsonText, Value};
use super::{Fault, instant};
use crate::admission::RequestEnd;
use crate::clock::Timestamp;
use crate::key::address::read_address;
use crate::key::{FinalStatus, GrpcStatus};
use crate::limit::verdict::INLINE_LIMITS;
use crate::telemetry::access_log::Reason;
use http::{HeaderMap, Method, header};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::mem;
use std::net::IpAddr;

/// A request with the parts that its line has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoggedRequest<'a> {
    /// The instant of the request's head; `None` until read.
    pub(super) ts: Option<Timestamp>,
    /// The client's address.
    pub(super) client: Option<IpAddr>,
    /// The method; `GET` where the line has none.
    pub(super) method: Method,
    /// The host; empty where the line has none.
    pub(super) host: Cow<'a, str>,
    /// The path, with or without a query; or a whole URI.
    pub(super) target: Cow<'a, str>,
    /// The object of fields, as the line has it.
    pub(super) headers: &'a str,
    /// The request's fields, as the gateway would see them, after the line has been read.
    pub(super) fields: HeaderMap,
    /// `User-Agent`, if the log has it outside of the fields.
    pub(super) user_agent: Option<Cow<'a, str>>,
    /// `Referer`, if the log has it outside of the fields.
    pub(super) referer: Option<Cow<'a, str>>,
    /// Keys by limit, as the access log writes them.
    pub(super) keys: SmallVec<[(JsonText<'a>, Value<'a>); INLINE_LIMITS]>,
    /// An object of costs by limit, as the access log writes it.
    pub(super) costs: &'a str,
    /// The name of the customer; empty if the line has none.
    pub(super) customer: Cow<'a, str>,
    /// An object of groups by limit, as the access log writes it.
    pub(super) groups: &'a str,
    /// The cost for limits that read it from the request or its response.
    pub(super) cost: Option<u64>,
    /// The duration of the request, in microseconds.
    pub(super) duration: u64,
    /// The number of requests that the line represents.
    pub(super) times: u64,
    /// The status of the answer; 0 where the line has none.
    pub(super) status: u16,
    /// The status of a gRPC call.
    pub(super) grpc_status: Option<GrpcStatus>,
    /// The cause of the answer, by the access log's word for it.
    pub(super) reason: Option<Reason>,
    /// The route of the request; empty if the line names none.
    pub(super) route: &'a str,
    /// The limit that refused or held the request; empty where the line names none.
    pub(super) limit: &'a str,
    /// Was the request forwarded to a server?
    pub(super) reached: bool,
    /// Was the request held, by the log?
    pub(super) was_held: bool,
    /// A list of the limits that only count and would have refused the request, as the access log writes it.
    pub(super) would_refuse: &'a str,
    /// Did the request come over TLS, by the access log?
    pub(super) is_encrypted: bool,
    /// Does the line have a path?
    pub(super) names_path: bool,
    /// The form of the line.
    pub(super) format: LogFormat,
    /// The parts that only other servers' logs have. With them, `client` is the peer of that server, and the client
    /// behind the peer is found as in the gateway.
    pub(super) proxy_fields: Option<Box<ProxyFields<'a>>>,
}

/// The parts of a request's target.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoggedTarget<'a> {
    /// The host; empty where the line has none.
    pub(super) host: &'a str,
    /// The path as the request had it.
    pub(super) path: &'a str,
    /// The query, if the line has one.
    pub(super) query: Option<&'a str>,
}

impl Default for LoggedRequest<'_> {
    /// A blank request.
    fn default() -> Self {
        Self::with_room(HeaderMap::new())
    }
}

impl<'a> LoggedRequest<'a> {
    /// A blank request. Its fields will be put into `fields`, which is empty.
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
            customer: Cow::Borrowed(""),
            groups: "{}",
            cost: None,
            duration: 0,
            times: 1,
            status: 0,
            grpc_status: None,
            reason: None,
            route: "",
            limit: "",
            reached: false,
            was_held: false,
            would_refuse: "[]",
            is_encrypted: false,
            names_path: false,
            format: LogFormat::Own,
            proxy_fields: None,
        }
    }

    /// Makes the request blank again, and keeps only the memory of its fields.
    pub(super) fn clear(&mut self) {
        *self = Self::with_room(mem::take(&mut self.fields));
    }

    /// Does the line have more about the request than its time?
    pub(super) fn says_anything(&self) -> bool {
        let proxy_fields = self.proxy_fields.as_deref();
        self.client.is_some()
            || self.names_path
            || proxy_fields.is_some_and(|proxy| !proxy.fields.is_empty())
            || self.is_for_replay()
    }

    /// Was the line written for a replay? Such a line is in the form of our log, and has a cost, a field or the key of
    /// a limit.
    fn is_for_replay(&self) -> bool {
        let has_members = |object| json::members(object).next().is_some();
        let is_priced = self.cost.is_some() || has_members(self.costs);
        let is_keyed = !self.keys.is_empty() || has_members(self.headers);
        self.format == LogFormat::Own && (is_priced || is_keyed)
    }

    /// Sets the method.
    pub(super) fn put_method(&mut self, method: &str) -> Result<(), Fault> {
        self.method = read_method(method)?;
        Ok(())
    }

    /// Sets the status, or 0 if the text is not one.
    pub(super) fn put_status(&mut self, text: Option<&str>) {
        self.status = text.and_then(|status| status.parse().ok()).unwrap_or(0);
    }

    /// Sets the target: path and query, or a whole URI.
    pub(super) fn put_target(&mut self, target: Cow<'a, str>) {
        self.target = target;
        self.names_path = true;
    }

    /// Did the request end with a server error, for which limits may refund it? A 5xx answer of the gateway for its own
    /// state is not a server error.
    pub(super) fn failed(&self) -> bool {
        let is_of_gateway = matches!(
            self.reason,
            Some(
                Reason::StoreDown
                    | Reason::KeysUnread
                    | Reason::TooManyHeld
                    | Reason::Busy
                    | Reason::Draining
                    | Reason::DeadlineExceeded
                    | Reason::ClientTimeout
                    | Reason::BadRequest
            )
        );
        let is_error = match self.grpc_status {
            Some(status) => status.is_server_error(),
            None => (500..600).contains(&self.status),
        };
        is_error && !is_of_gateway
    }

    /// The end of the request, by its line.
    pub(super) fn end(&self) -> RequestEnd {
        let status = FinalStatus {
            http: self.status,
            grpc: self.grpc_status,
        };
        match self.reason {
            // Refused by a limit, or ended by its client: there was no answer that counts.
            Some(
                Reason::LimitRefused
                | Reason::LimitBlocked
                | Reason::ClientGone
                | Reason::ClientTimeout
                | Reason::DeadlineExceeded,
            ) => RequestEnd::Kept,
            Some(Reason::MissingKey | Reason::UnknownKey | Reason::BadToken) => {
                RequestEnd::Guess(status)
            }
            _ if self.status < 200 => RequestEnd::Kept,
            _ if status.is_server_error() && !self.failed() => RequestEnd::OwnAnswer(status),
            _ => RequestEnd::Answered(status),
        }
    }

    /// Was the request answered, by the access log, before any limit was checked?
    pub(super) fn had_early_answer(&self) -> bool {
        let is_routed = !self.route.is_empty();
        match self.reason {
            Some(
                Reason::AcmeChallenge
                | Reason::Busy
                | Reason::CertificateRequired
                | Reason::Misdirected
                | Reason::ToHttps,
            ) => true,
            Some(
                Reason::BadRequest | Reason::ClientTimeout | Reason::KeysUnread | Reason::TooLarge,
            ) => !is_routed && self.limit.is_empty(),
            // `OPTIONS *`, and requests that could not be forwarded further.
            Some(Reason::Ok) => {
                let may_end_here = matches!(self.method, Method::OPTIONS | Method::TRACE);
                may_end_here && !is_routed && !self.reached && self.status == 204
            }
            _ => false,
        }
    }

    /// Would the client leave before the request is forwarded, if the request were held for `wait`? In the log the
    /// client left before that. A request that was held in the log counts as left only if `wait` is longer than its
    /// duration.
    pub(super) fn left_within(&self, wait: u64) -> bool {
        let left = self.reason == Some(Reason::ClientGone) && !self.reached;
        left && (wait > self.duration || !self.was_held)
    }

    /// The request's destination. A host in the target comes first, then the line's own `host`, then the field `Host`.
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

    /// Sets the client from a list of addresses. A `-` means no client.
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

/// The text after the scheme of a whole URI; `None` if the target is a path.
#[inline]
fn whole_uri(target: &str) -> Option<&str> {
    if target.starts_with('/') {
        return None;
    }
    let rest = target.strip_prefix("http")?;
    rest.strip_prefix("://")
        .or_else(|| rest.strip_prefix("s://"))
}

/// The right end of a list of addresses, and the list before it. The right end is the peer of the server that wrote the
/// list.
fn chain(list: &str) -> Option<(IpAddr, Option<&str>)> {
    match list.rsplit_once(',') {
        Some((before, last)) => Some((read_address(last)?, Some(before))),
        None => Some((read_address(list)?, None)),
    }
}

/// Reads an HTTP method.
pub(super) fn read_method(text: &str) -> Result<Method, Fault> {
    Method::from_bytes(text.as_bytes()).map_err(|_| Fault::BadMember("method"))
}

/// A number without sign, times ten to the power of `places`; if `places` is 0 it is whole.
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

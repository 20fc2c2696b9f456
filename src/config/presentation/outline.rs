//! A compiled file in a form that can be compared with another. `--diff` and a reload compare outlines.

use super::written::Written;
use crate::config::secrets::Secrets;
use crate::config::value::show_span;
use crate::key::client_ip::Field;
use crate::key::{Group, IdentityFields, KeyPart};
use crate::limit::Limit;
use crate::route::Rule as RouteRule;
use crate::snapshot::changes::Changes;
use crate::snapshot::errors::{ErrorBody, ErrorFormats};
use crate::snapshot::{AnswerTimeout, FieldStyle, HoldCaps, StaticReply};
use crate::tls::{ClientParts, ServedName, TlsVersion};
use crate::upstream::Upstream;
use crate::{admin, listen, store, telemetry};
use http::HeaderName;
use ipnet::{IpNet, Ipv6Net};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A compiled file in a form that can be compared with another.
#[derive(Debug)]
pub struct Outline {
    /// The settings that are read once.
    pub boot: Boot,
    /// Every identity, in the order of the file.
    pub identities: Vec<IdentityOutline>,
    /// The tokens that are believed.
    pub jwt: Option<TokenOutline>,
    /// Every group, in the order of the file.
    pub groups: Vec<Arc<Group>>,
    /// Every limit, in the order of the file.
    pub limits: Vec<Arc<Limit>>,
    /// The limits that every request is held to.
    pub defaults: Vec<Arc<str>>,
    /// Every upstream, in the order of the file.
    pub upstreams: Vec<UpstreamOutline>,
    /// Every route, in the order of the file.
    pub routes: Vec<RouteOutline>,
    /// The proxies that are believed on addresses.
    pub trust: Vec<IpNet>,
    /// The field that these proxies write, where it is named.
    pub trust_field: Option<Field>,
    /// The networks of translators beside the well-known one, each a /96.
    pub nat64: Vec<Ipv6Net>,
    /// The fields of responses that state limits.
    pub fields: FieldStyle,
    /// The form of errors.
    pub errors: ErrorFormats,
    /// The percentage by which the time to come back is spread.
    pub jitter: u8,
    /// Bounds on held requests.
    pub holds: HoldCaps,
    /// The time for which connections of clients are kept between requests.
    pub keep_alive: Duration,
    /// The file names that time, or the one of silence in its place.
    pub names_keep_alive: bool,
    /// What is written, whatever it means.
    pub(in crate::config) written: Arc<Written>,
}

/// The settings that are read once, at start. A reload can only report that such a setting has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The listening addresses and the bounds of connections.
    pub listen: listen::ListenSettings,
    /// Threads that serve requests; 0 is one for each core.
    pub workers: usize,
    /// The time that requests under way have to finish when the gateway stops.
    pub drain: Duration,
    /// The time after a signal to stop in which connections are still accepted.
    pub drain_delay: Duration,
    /// The admin listener, if there is one.
    pub admin: Option<admin::AdminSettings>,
    /// The store of the counters.
    pub store: store::StoreSettings,
    /// The settings of the log.
    pub log: telemetry::LogSettings,
    /// The secrets, which are stars in every text of the file that is shown.
    pub secrets: Arc<Secrets>,
}

/// An identity towards clients. No key is in it.
#[derive(Debug)]
pub struct IdentityOutline {
    /// The name of its table, or the address of the listener that has it alone.
    pub name: Arc<str>,
    /// The hosts that are written.
    pub hosts: Option<Vec<ServedName>>,
    /// Is it for clients that name no host?
    pub is_default: bool,
    /// The least version of TLS.
    pub least_version: TlsVersion,
    /// The protocols to choose from, by their names on the wire.
    pub alpn: Vec<&'static str>,
    /// What clients must show, in words.
    pub client: String,
    /// What its certificate is ordered from, in words; nothing where it is a file.
    pub order: Option<String>,
    /// SHA-256 of its certificate, if it is a file: one that is ordered is renewed without a change of the file.
    pub fingerprint: [u8; 32],
    /// The end of the certificate's life, in seconds since 1970.
    pub not_after: i64,
    /// The contents of the files of authorities and lists.
    pub check: Option<ClientParts>,
}

/// A limit of the file: one compiled limit for each of its rates.
#[derive(Debug, Clone, Copy)]
pub struct LimitOutline<'a> {
    /// The limits of its own rates, at least one.
    pub rates: &'a [Arc<Limit>],
    /// The limits of its candidate.
    pub candidate: &'a [Arc<Limit>],
    /// The form of its refusals, where the limit has one of its own.
    pub body: Option<&'a ErrorBody>,
}

impl LimitOutline<'_> {
    /// The limit of its first rate, which has all settings that are not a rate's.
    #[must_use]
    pub fn first(&self) -> &Limit {
        &self.rates[0]
    }
}

/// An upstream, with the names of its limits in place of the limits.
#[derive(Debug)]
pub struct UpstreamOutline {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// The limits in front of it.
    pub limits: Vec<Arc<str>>,
    /// The part of a request that its server is chosen by.
    pub hash: Option<KeyPart>,
}

/// A route, with names in place of its upstream and limits.
#[derive(Debug)]
pub struct RouteOutline {
    /// The rule by which the route recognises requests.
    pub rule: RouteRule,
    /// Whether its clients must show a certificate, in the word of the file.
    pub client_cert: Option<&'static str>,
    /// The name of its upstream.
    pub upstream: Option<Arc<str>>,
    /// The prefix of its paths that the upstream does not see.
    pub strip_prefix: Option<String>,
    /// The path that is forwarded instead.
    pub rewrite: Option<String>,
    /// The route's own answer.
    pub static_reply: Option<StaticReply>,
    /// The changes of a request's fields.
    pub request_headers: Option<Changes>,
    /// The fields by which its servers know its clients.
    pub identity: Option<Arc<IdentityFields>>,
    /// The changes of a response's fields.
    pub response_headers: Option<Changes>,
    /// The names of its own limits and of its upstream's.
    pub limits: Vec<Arc<str>>,
    /// The longest time that its servers may owe the head of the response.
    pub timeout: AnswerTimeout,
    /// The longest silence of its bodies and WebSockets, where it is not the server's.
    pub idle: Option<Duration>,
}

/// The tokens that are believed.
#[derive(Debug, Clone)]
pub struct TokenOutline {
    /// The algorithms that tokens may be signed with.
    pub algorithms: Vec<String>,
    /// The issuers that are believed.
    pub issuer: Vec<String>,
    /// The audiences that are accepted.
    pub audience: Vec<String>,
    /// The difference that clocks may have.
    pub leeway: Duration,
    /// Must a token have an `exp`?
    pub require_exp: bool,
    /// The field with the token.
    pub header: HeaderName,
    /// The files with the keys.
    pub files: Vec<String>,
    /// A digest of the keys in all files: keys that move to another file are no change.
    pub digest: [u8; 32],
}

/// The value of a key, for a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownValue {
    /// The text that may be shown.
    pub text: String,
    /// The whole value, where the text leaves a part out.
    pub whole: Option<String>,
}

/// A value that is shown as it is.
pub fn show(value: impl fmt::Display) -> Option<ShownValue> {
    Some(ShownValue {
        text: value.to_string(),
        whole: None,
    })
}

/// A list of values: `a+b`, or `none`.
pub fn show_list<T: fmt::Display>(items: &[T]) -> Option<ShownValue> {
    show(list(items))
}

/// A time.
pub fn show_time(time: Duration) -> Option<ShownValue> {
    show(time_text(time))
}

/// A time as the file writes it.
pub fn time_text(time: Duration) -> String {
    show_span(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// `a+b`, or `none`.
pub(in crate::config) fn list<T: fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".into();
    }
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    items.join("+")
}

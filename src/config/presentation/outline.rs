//! A compiled file in a form that can be compared with another. `--diff` and a reload compare outlines.

use super::written::Written;
use crate::clock;
use crate::config::secrets::Secrets;
use crate::config::value::show_span;
use crate::key::client_ip::NamingField;
use crate::key::{Group, IdentityFields, KeyPart};
use crate::limit::Limit;
use crate::route::Rule as RouteRule;
use crate::snapshot::changes::Changes;
use crate::snapshot::errors::{ErrorBody, ErrorFormats};
use crate::snapshot::{AnswerTimeout, HoldCaps, LimitFields, StaticReply};
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
    /// The rules of tokens that are trusted.
    pub jwt: Option<TokenOutline>,
    /// Every group, in the order of the file.
    pub groups: Vec<Arc<Group>>,
    /// Members of groups that are written as customers are.
    pub named_members: Vec<NamedLines>,
    /// Every limit, in the order of the file.
    pub limits: Vec<Arc<Limit>>,
    /// The limits that apply to every request.
    pub defaults: Vec<Arc<str>>,
    /// Every upstream, in the order of the file.
    pub upstreams: Vec<UpstreamOutline>,
    /// Every route, in the order of the file.
    pub routes: Vec<RouteOutline>,
    /// The proxies whose statements about client addresses are trusted.
    pub trust: Vec<IpNet>,
    /// The field that these proxies write, if the file names the field.
    pub trust_field: Option<NamingField>,
    /// The networks of translators in addition to the well-known one, each a /96.
    pub nat64: Vec<Ipv6Net>,
    /// The fields of responses that state limits.
    pub fields: LimitFields,
    /// The form of errors.
    pub errors: ErrorFormats,
    /// The percentage by which `Retry-After` is spread.
    pub jitter: u8,
    /// Bounds on held requests.
    pub holds: HoldCaps,
    /// The time for which client connections are kept between requests.
    pub keep_alive: Duration,
    /// The file sets the keep-alive time, or the idle time from which it is derived.
    pub names_keep_alive: bool,
    /// The written keys and values, independent of their meaning.
    pub(in crate::config) written: Arc<Written>,
}

/// The settings that are read once, at start. A reload can only report that such a setting has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The listening addresses and the bounds of connections.
    pub listen: listen::ListenSettings,
    /// The number of threads that serve requests; 0 means one for each core.
    pub workers: usize,
    /// The time for requests under way to finish when the gateway stops.
    pub drain: Duration,
    /// The time after a stop signal during which connections are still accepted.
    pub drain_delay: Duration,
    /// The admin listener, if there is one.
    pub admin: Option<admin::AdminSettings>,
    /// The store of the counters.
    pub store: store::StoreSettings,
    /// The settings of the log.
    pub log: telemetry::LogSettings,
    /// The secrets, which stars replace in every shown text of the file.
    pub secrets: Arc<Secrets>,
}

/// Members of a group that have a name in front of a digest, as customers have. Each is one literal value, which no
/// client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedLines {
    /// The name of the group.
    pub group: Arc<str>,
    /// The place of the first of them, in words.
    pub place: String,
    /// Their number.
    pub many: usize,
}

/// An identity that listeners show to clients. The outline contains no private key.
#[derive(Debug)]
pub struct IdentityOutline {
    /// The name of its table, or the address of the one listener that has the identity.
    pub name: Arc<str>,
    /// The hosts that the file names.
    pub hosts: Option<Vec<ServedName>>,
    /// Is it for clients that send no server name?
    pub is_default: bool,
    /// The lowest version of TLS.
    pub least_version: TlsVersion,
    /// The application protocols that can be negotiated, by their names on the wire.
    pub alpn: Vec<&'static str>,
    /// The certificates that clients must show, in words.
    pub client: String,
    /// The source of an ordered certificate, in words; `None` if the certificate is a file.
    pub order: Option<String>,
    /// SHA-256 of its certificate, if the certificate is a file: an ordered certificate is renewed without a change of
    /// the file.
    pub fingerprint: [u8; 32],
    /// The end of the certificate's validity, in seconds since 1970.
    pub not_after: i64,
    /// The contents of the files of authorities and of revocation lists.
    pub check: Option<ClientParts>,
}

/// A limit of the file: one compiled limit for each of its rates.
#[derive(Debug, Clone, Copy)]
pub struct LimitOutline<'a> {
    /// The limits of its own rates; there is at least one rate.
    pub rates: &'a [Arc<Limit>],
    /// The limits of its candidate.
    pub candidate: &'a [Arc<Limit>],
    /// The form of its refusals, if the limit sets a form.
    pub body: Option<&'a ErrorBody>,
}

impl LimitOutline<'_> {
    /// The limit of its first rate, which has all settings that do not belong to a rate.
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
    /// The limits on requests to the upstream.
    pub limits: Vec<Arc<str>>,
    /// The part of a request by which its server is chosen.
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
    /// The path that replaces the request's path.
    pub rewrite: Option<String>,
    /// The route's static answer.
    pub static_reply: Option<StaticReply>,
    /// The changes of a request's fields.
    pub request_headers: Option<Changes>,
    /// The fields that name clients to its servers.
    pub identity: Option<Arc<IdentityFields>>,
    /// The changes of a response's fields.
    pub response_headers: Option<Changes>,
    /// The names of its own limits and of its upstream's limits.
    pub limits: Vec<Arc<str>>,
    /// The longest time that its servers may take to send the head of the response.
    pub timeout: AnswerTimeout,
    /// The longest idle time of its bodies and WebSockets, if it differs from the server's.
    pub idle: Option<Duration>,
}

/// The rules of tokens that are trusted.
#[derive(Debug, Clone)]
pub struct TokenOutline {
    /// The accepted signature algorithms of tokens.
    pub algorithms: Vec<String>,
    /// The issuers that are trusted.
    pub issuer: Vec<String>,
    /// The audiences that are accepted.
    pub audience: Vec<String>,
    /// The tolerated difference between clocks.
    pub leeway: Duration,
    /// Must a token have an `exp`?
    pub require_exp: bool,
    /// The field with the token.
    pub header: HeaderName,
    /// The files with the keys.
    pub files: Vec<String>,
    /// A digest of the keys in all files: a key that moves to another file causes no change.
    pub digest: [u8; 32],
}

/// The value of a key, for a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownValue {
    /// The text that may be shown.
    pub text: String,
    /// The whole value, if the text leaves a part out.
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
    show_span(clock::micros(time))
}

/// `a+b`, or `none`.
pub(in crate::config) fn list<T: fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".into();
    }
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    items.join("+")
}

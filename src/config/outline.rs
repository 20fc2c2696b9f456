//! A compiled file in a form that can be compared with another: what `--diff` and a reload look at.

use super::masking::Secrets;
use super::value::show_span;
use crate::key::Group;
use crate::key::client_ip::Field;
use crate::limit::Limit;
use crate::route::Rule as RouteRule;
use crate::snapshot::changes::Changes;
use crate::snapshot::errors::{ErrorBody, ErrorFormats};
use crate::snapshot::{FieldStyle, HoldCaps, StaticReply};
use crate::upstream::Upstream;
use crate::{admin, listen, store, telemetry};
use http::HeaderName;
use ipnet::IpNet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A compiled file in a form that can be compared with another.
#[derive(Debug)]
pub struct Outline {
    /// What is read once.
    pub boot: Boot,
    /// Which tokens are believed.
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
    /// Which field they write, where that is known.
    pub trust_field: Option<Field>,
    /// Which fields responses carry.
    pub fields: FieldStyle,
    /// What errors look like.
    pub errors: ErrorFormats,
    /// By how many percent the time to come back is spread.
    pub jitter: u8,
    /// Bounds on held requests.
    pub holds: HoldCaps,
}

/// The settings that are read once, at start. A reload can only say that they have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// Where requests come in.
    pub listen: listen::ListenSettings,
    /// Threads that serve them; 0 is one for each core.
    pub workers: usize,
    /// How long requests under way may take to finish at the end.
    pub drain: Duration,
    /// The admin listener, if there is one.
    pub admin: Option<admin::AdminSettings>,
    /// Where counters live.
    pub store: store::StoreSettings,
    /// What is logged.
    pub log: telemetry::LogSettings,
    /// What is shown as stars wherever a text of the file is shown.
    pub secrets: Arc<Secrets>,
}

/// A limit: one for each of its rates.
#[derive(Debug, Clone, Copy)]
pub struct LimitOutline<'a> {
    /// The limits of its own rates, at least one.
    pub rates: &'a [Arc<Limit>],
    /// Those of its candidate.
    pub candidate: &'a [Arc<Limit>],
    /// What its refusals look like, where it says so itself.
    pub body: Option<&'a ErrorBody>,
}

impl LimitOutline<'_> {
    /// The limit of its first rate, which has all settings that are not a rate's.
    #[must_use]
    pub fn first(&self) -> &Limit {
        &self.rates[0]
    }
}

/// An upstream, the names of its limits still names.
#[derive(Debug)]
pub struct UpstreamOutline {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// The limits in front of it.
    pub limits: Vec<Arc<str>>,
}

/// A route, its names still names.
#[derive(Debug)]
pub struct RouteOutline {
    /// What it recognises.
    pub rule: RouteRule,
    /// Where it leads.
    pub upstream: Option<Arc<str>>,
    /// What its paths begin with and the upstream does not see.
    pub strip_prefix: Option<String>,
    /// The path that is forwarded instead.
    pub rewrite: Option<String>,
    /// What it answers itself.
    pub own: Option<StaticReply>,
    /// What becomes of a request's fields.
    pub request_headers: Option<Changes>,
    /// What becomes of a response's fields.
    pub response_headers: Option<Changes>,
    /// Its limits and its upstream's.
    pub limits: Vec<Arc<str>>,
    /// From forwarding to the head of the response.
    pub timeout: Duration,
}

/// Which tokens are believed.
#[derive(Debug, Clone)]
pub struct TokenOutline {
    /// How they may be signed.
    pub algorithms: Vec<String>,
    /// The issuers that are believed.
    pub issuer: Vec<String>,
    /// For whom they may be.
    pub audience: Vec<String>,
    /// How far clocks may differ.
    pub leeway: Duration,
    /// Must a token say when it ends?
    pub require_exp: bool,
    /// The field with the token.
    pub header: HeaderName,
    /// The files with the keys.
    pub files: Vec<String>,
    /// A digest of what the files hold: keys that move to another file are no change.
    pub digest: [u8; 32],
}

/// The value of a key, for a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownValue {
    /// What may be shown of it.
    pub text: String,
    /// All of it, where the text leaves something out.
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
    show(show_span(
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
    ))
}

/// `a+b`, or `none`.
pub(super) fn list<T: fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".into();
    }
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    items.join("+")
}

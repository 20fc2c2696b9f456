//! The forms of lines, and the parts of requests that only lines of other servers have.

use crate::replay::json::Value;
use http::HeaderName;
use std::borrow::Cow;

/// Parts of a request that only lines of other servers have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::replay) struct ProxyFields<'a> {
    /// The list of addresses with which the request reached that server, in the form of `X-Forwarded-For`.
    pub(in crate::replay) forwarded_for: Option<Cow<'a, str>>,
    /// Fields that are logged one by one.
    pub(in crate::replay) fields: Vec<(HeaderName, Value<'a>)>,
    /// Did the request use TLS?
    pub(in crate::replay) is_https: bool,
    /// Does the line have fields without their names?
    pub(in crate::replay) has_nameless_fields: bool,
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// JSON with the members of our access log, or some of them.
    #[default]
    Own,
    /// JSON whose members `--fields` names.
    Fields,
    /// The common log of Apache and nginx.
    Common,
    /// The combined log of Apache and nginx.
    Combined,
    /// nginx's `main`: the combined log, and the addresses of the request's hops.
    Main,
    /// Caddy's JSON.
    Caddy,
    /// Traefik's JSON.
    Traefik,
    /// Traefik's common log.
    TraefikText,
    /// Envoy's default text, or Istio's.
    Envoy,
    /// HAProxy's `option httplog`.
    Haproxy,
    /// The log of an application load balancer of AWS.
    Alb,
}

impl LogFormat {
    /// All forms in the order of their numbers, each with its names for programs and for people.
    const NAMES: [(Self, &str, &str); 11] = [
        (Self::Own, "json", "our JSON"),
        (Self::Fields, "fields", "JSON by --fields"),
        (Self::Common, "common", "common log"),
        (Self::Combined, "combined", "combined log"),
        (Self::Main, "nginx-main", "nginx's main log"),
        (Self::Caddy, "caddy", "Caddy's JSON"),
        (Self::Traefik, "traefik", "Traefik's JSON"),
        (Self::TraefikText, "traefik-common", "Traefik's common log"),
        (Self::Envoy, "envoy", "Envoy's log"),
        (Self::Haproxy, "haproxy", "HAProxy's httplog"),
        (Self::Alb, "alb", "ALB log"),
    ];

    /// The number of forms.
    pub(in crate::replay) const COUNT: usize = Self::NAMES.len();

    /// All forms, in the order of their numbers.
    pub(in crate::replay) fn all() -> impl Iterator<Item = Self> {
        Self::NAMES.into_iter().map(|(format, ..)| format)
    }

    /// The form's name in a report for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// The form's name for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        Self::NAMES[self as usize].2
    }
}

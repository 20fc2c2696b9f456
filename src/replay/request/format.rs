//! How lines are written, and what only lines of other servers have.

use super::super::json::Value;
use http::HeaderName;
use std::borrow::Cow;

/// Parts of a request that lines of other servers have in ways of their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::replay) struct ProxyFields<'a> {
    /// The list of addresses that reached that server.
    pub(in crate::replay) forwarded_for: Option<Cow<'a, str>>,
    /// Fields that are written one by one.
    pub(in crate::replay) fields: Vec<(HeaderName, Value<'a>)>,
    /// It came by TLS.
    pub(in crate::replay) is_https: bool,
    /// The line has fields without their names.
    pub(in crate::replay) has_nameless_fields: bool,
}

/// How a line is written.
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
    /// nginx's `main`: the combined log and the addresses a request came through.
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
    /// A load balancer's of AWS.
    Alb,
}

impl LogFormat {
    /// Every form there is, in the order of their numbers, with its names for programs and for people.
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

    /// How many forms there are.
    pub(in crate::replay) const COUNT: usize = Self::NAMES.len();

    /// Every form there is, in the order of their numbers.
    pub(in crate::replay) fn all() -> impl Iterator<Item = Self> {
        Self::NAMES.into_iter().map(|(format, ..)| format)
    }

    /// Its name in a report for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// Its name for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        Self::NAMES[self as usize].2
    }
}

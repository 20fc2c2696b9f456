//! The snapshot: the compiled whole that a request lives and dies under.

pub mod changes;
pub mod errors;

use crate::key::client_ip::Trust;
use crate::key::token::Verifier;
use crate::limit::Limit;
use crate::route::{PathPattern, Table, Template};
use crate::upstream::Upstream;
use bytes::Bytes;
use changes::Changes;
use errors::ErrorFormats;
use http::{HeaderValue, StatusCode};
use std::sync::Arc;
use std::time::Duration;

/// Everything a reload swaps, as one.
#[derive(Debug)]
pub struct Snapshot {
    /// Which reading of the file this is; 1 at start.
    pub generation: u64,
    /// Recognises requests; its indices are positions in `services`.
    pub table: Table,
    /// What each route leads to; behind them [`Snapshot::unrouted`].
    pub services: Vec<Service>,
    /// Position of the limits that hold where no route matches, if there are any.
    pub unrouted: Option<usize>,
    /// All upstreams; `Service::upstream` is a position here.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Which peers are believed about the client's address.
    pub trust: Trust,
    /// Which tokens are believed, if any.
    pub tokens: Option<Arc<Verifier>>,
    /// Which limit fields responses carry.
    pub fields: FieldStyle,
    /// What answers of the gateway's own look like.
    pub errors: ErrorFormats,
    /// By how much of itself the time to come back may be spread, in percent.
    pub jitter: u8,
    /// May a field ask the upstream for another method than the request's? Not where a route or a limit looks at that.
    pub other_methods: bool,
    /// Bounds on held requests.
    pub holds: HoldCaps,
}

impl Snapshot {
    /// The limits of all routes, a limit as often as there are routes that have it; without their tiers.
    pub fn limits(&self) -> impl Iterator<Item = &Arc<Limit>> {
        self.services.iter().flat_map(|service| &service.limits)
    }
}

/// What a route leads to.
#[derive(Debug, Default)]
pub struct Service {
    /// The route's name; empty for what no route matches.
    pub name: Arc<str>,
    /// Paths it is for.
    pub path: PathPattern,
    /// Position in [`Snapshot::upstreams`]; none for what no route matches.
    pub upstream: Option<usize>,
    /// What it answers itself, where it has no upstream.
    pub own: Option<StaticReply>,
    /// What is forwarded instead of the path that was matched, if not that.
    pub rewrite: Option<Template>,
    /// What becomes of its requests' fields.
    pub request_fields: Option<Changes>,
    /// What becomes of its answers' fields.
    pub response_fields: Option<Changes>,
    /// Its limits, the route's first, then its upstream's, each once: one decision.
    pub limits: Vec<Arc<Limit>>,
    /// Does one of them tell repeats by what their bodies begin with?
    pub compares_bodies: bool,
    /// From forwarding to the head of the response; beyond it 504.
    pub timeout: Duration,
}

impl Service {
    /// Does anything become of its requests? What no route matches has limits alone.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.upstream.is_some() || self.own.is_some()
    }

    /// The route's name, if it is one's.
    #[must_use]
    pub fn route(&self) -> Option<&str> {
        Some(&*self.name).filter(|name| !name.is_empty())
    }
}

/// What a route answers itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaticReply {
    /// It leads elsewhere; the query goes along.
    Redirect {
        /// Where to.
        to: Template,
        /// The status of the redirect.
        status: StatusCode,
    },
    /// Always the same.
    Respond {
        /// Its status.
        status: StatusCode,
        /// Its body; none for HEAD.
        body: Bytes,
        /// What the body is.
        content_type: Option<HeaderValue>,
    },
}

/// Which limit fields responses carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldStyle {
    /// The draft's and the older ones.
    Both,
    /// `RateLimit` and `RateLimit-Policy`.
    Standard,
    /// `X-RateLimit-*`.
    Legacy,
    /// Neither; a refusal still says when to come back.
    None,
}

/// How many requests may be held back at once in this gateway, beside each limit's own queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldCaps {
    /// In all.
    pub total: usize,
    /// From one peer address.
    pub per_client: usize,
}

impl Default for HoldCaps {
    fn default() -> Self {
        Self {
            total: 10_000,
            per_client: 1_000,
        }
    }
}

//! The snapshot: the compiled whole that a request lives and dies under.
//!
//! ```text
//! changes       fields that a route changes
//! early_limits  limits before a token is verified
//! errors        the form of the gateway's own answers
//! ```

pub mod changes;
mod early_limits;
pub mod errors;

use crate::key::client_ip::Trust;
use crate::key::token::Verifier;
use crate::key::{Group, IdentityFields, KeyTemplate};
use crate::limit::Limit;
use crate::route::{PathBack, PathPattern, Table, Template};
use crate::tls::Offers;
use crate::upstream::{ServerHost, Upstream};
use bytes::Bytes;
use changes::Changes;
use errors::ErrorFormats;
use http::{HeaderValue, StatusCode};
use std::sync::Arc;
use std::time::Duration;

/// The parts that a reload swaps as one.
#[derive(Debug)]
pub struct Snapshot {
    /// The number of the reading of the file; 1 at start.
    pub generation: u64,
    /// Recognises requests; its indices are positions in `services`.
    pub table: Table,
    /// The services of the routes; behind them [`Snapshot::unrouted`].
    pub services: Vec<Service>,
    /// Position of the service with the limits that hold where no route matches, if there are any.
    pub unrouted: Option<usize>,
    /// All upstreams; `Service::upstream` is a position here.
    pub upstreams: Vec<Arc<Upstream>>,
    /// The key that the server of each upstream is chosen by, where one is.
    pub hash_keys: Vec<Option<KeyTemplate>>,
    /// The groups whose members routes ask for.
    pub route_groups: Vec<Arc<Group>>,
    /// The peers that are believed about the client's address.
    pub trust: Trust,
    /// The check of tokens, if any are believed.
    pub tokens: Option<Arc<Verifier>>,
    /// The limit fields of responses.
    pub fields: FieldStyle,
    /// The form of the gateway's own answers.
    pub errors: ErrorFormats,
    /// The percentage of itself by which the time to come back may be spread.
    pub jitter: u8,
    /// May a field ask the upstream for another method than the request's? Not where a route or a limit depends on the
    /// method.
    pub other_methods: bool,
    /// Bounds on held requests.
    pub holds: HoldCaps,
    /// What the listeners with TLS offer: the program fills it in, when it knows which of them run.
    pub offers: Offers,
}

impl Snapshot {
    /// The limits of all routes, each as often as routes have it, without their tiers.
    pub fn limits(&self) -> impl Iterator<Item = &Arc<Limit>> {
        self.services.iter().flat_map(|service| &service.limits)
    }
}

/// The treatment of a route's requests.
#[derive(Debug, Default)]
pub struct Service {
    /// The route's name; empty for requests that no route matches.
    pub name: Arc<str>,
    /// The paths of the route.
    pub path: PathPattern,
    /// Must the handshake of each request have shown a client's certificate that is believed?
    pub asks_certificate: bool,
    /// Position in [`Snapshot::upstreams`]; none for requests that no route matches.
    pub upstream: Option<usize>,
    /// The route's own answer, where it has no upstream.
    pub static_reply: Option<StaticReply>,
    /// The path that is forwarded instead of the matched one, if they differ.
    pub rewrite: Option<Template>,
    /// The beginning of its paths that its servers do not see, as they learn it.
    pub prefix: Option<HeaderValue>,
    /// The host that its servers are asked for, where that is not the client's.
    pub host_change: Option<HostChange>,
    /// The changes to the fields of its requests.
    pub request_fields: Option<Changes>,
    /// The fields by which its servers know its clients.
    pub identity: Option<Arc<IdentityFields>>,
    /// The changes to the fields of its answers.
    pub response_fields: Option<Changes>,
    /// Its limits, the route's first, then its upstream's, each once: one decision.
    pub limits: Vec<Arc<Limit>>,
    /// Positions of the limits that may refuse before a token is verified and the route is certain. Empty where no route
    /// asks for a group that goes by a token.
    pub early_limits: Box<[usize]>,
    /// Does one of its limits tell repeats by the beginning of their bodies?
    pub compares_bodies: bool,
    /// The longest time that a server may owe the head of the response, or its part in the request's body; beyond it 504.
    pub timeout: AnswerTimeout,
    /// The longest silence of its bodies and WebSockets, where the route has one of its own.
    pub idle: Option<Duration>,
}

impl Service {
    /// Is the request forwarded or answered here? The service for requests that no route matches has limits alone.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.upstream.is_some() || self.static_reply.is_some()
    }

    /// Do its requests go on to a server?
    #[inline]
    #[must_use]
    pub fn is_forwarded(&self) -> bool {
        self.static_reply.is_none() && self.upstream.is_some()
    }

    /// The route's name, if the service belongs to a route.
    #[must_use]
    pub fn route(&self) -> Option<&str> {
        Some(&*self.name).filter(|name| !name.is_empty())
    }
}

/// The longest time that a server may owe the head of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AnswerTimeout {
    /// The time that is written.
    Written(Duration),
    /// The time where none is written. Calls of gRPC have their own time, or the idle time, in its place.
    Unwritten(Duration),
    /// None: the idle time alone holds.
    #[default]
    Idle,
}

impl AnswerTimeout {
    /// The time, where the idle time does not stand in its place.
    #[inline]
    #[must_use]
    pub fn time(self) -> Option<Duration> {
        match self {
            Self::Written(time) | Self::Unwritten(time) => Some(time),
            Self::Idle => None,
        }
    }

    /// The time that is written.
    #[must_use]
    pub fn written(self) -> Option<Duration> {
        match self {
            Self::Written(time) => Some(time),
            Self::Unwritten(_) | Self::Idle => None,
        }
    }
}

/// A route's servers are asked for another host than the client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostChange {
    /// The host that they are asked for.
    pub host: ServerHost,
    /// The paths of addresses in their answers, where the route changes the path in a way that leads back.
    pub path_back: Option<PathBack>,
}

/// A route's own answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaticReply {
    /// The answer leads elsewhere; the query is kept.
    Redirect {
        /// The target of the redirect.
        to: Template,
        /// The status of the redirect.
        status: StatusCode,
    },
    /// The answer is always the same.
    Respond {
        /// The status of the answer.
        status: StatusCode,
        /// The body of the answer; none for HEAD.
        body: Bytes,
        /// The type of the body.
        content_type: Option<HeaderValue>,
    },
}

/// The limit fields of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldStyle {
    /// The draft's fields and the older ones.
    Both,
    /// `RateLimit` and `RateLimit-Policy`.
    Standard,
    /// `X-RateLimit-*`.
    Legacy,
    /// No limit fields; a refusal still has the time to come back.
    None,
}

/// The most requests that may be held back at once in this gateway, beside each limit's own queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldCaps {
    /// The most of all clients together.
    pub total: usize,
    /// The most from one peer address.
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

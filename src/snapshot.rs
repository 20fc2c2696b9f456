//! The snapshot: the compiled whole that a request uses from its beginning to its end.
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
use crate::key::{Customers, Group, IdentityFields, KeyTemplate};
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
    /// Matches requests; its indices are positions in `services`.
    pub table: Table,
    /// The services of the routes, followed by [`Snapshot::unrouted`].
    pub services: Vec<Service>,
    /// Position of the service with the limits for requests that no route matches, if there are any.
    pub unrouted: Option<usize>,
    /// All upstreams; `Service::upstream` is a position here.
    pub upstreams: Vec<Arc<Upstream>>,
    /// The key that chooses the server of each upstream, if it has one.
    pub hash_keys: Vec<Option<KeyTemplate>>,
    /// The groups that conditions of routes name.
    pub route_groups: Vec<Arc<Group>>,
    /// The customers that groups name, if any do.
    pub customers: Option<Arc<Customers>>,
    /// The peers that are trusted to report the client's address.
    pub trust: Trust,
    /// The verifier of tokens, if any are trusted.
    pub tokens: Option<Arc<Verifier>>,
    /// The limit fields of responses.
    pub fields: LimitFields,
    /// The form of the gateway's own answers.
    pub errors: ErrorFormats,
    /// The percentage by which the time to retry may be extended at random.
    pub jitter: u8,
    /// May a field ask the upstream for another method than the request's? False if a route or a limit depends on the
    /// method.
    pub other_methods: bool,
    /// Bounds on held requests.
    pub holds: HoldCaps,
    /// The offers of the listeners with TLS: the program adds them when it knows which listeners run.
    pub offers: Offers,
}

impl Snapshot {
    /// The limits of all routes, repeated for each route that has them, without their tiers.
    pub fn limits(&self) -> impl Iterator<Item = &Arc<Limit>> {
        self.services.iter().flat_map(|service| &service.limits)
    }

    /// The limit with the numbers of this name, if there is one.
    #[must_use]
    pub fn find_limit(&self, name: &NumbersName<'_>) -> Option<&Arc<Limit>> {
        let named = self.limits().filter(|limit| *limit.name == *name.limit);
        let mut all = named.flat_map(|limit| {
            let positions = (0..limit.tiers.len()).map(Some);
            let tiers = std::iter::once(None).chain(positions);
            tiers.filter_map(move |tier| match (name.customer, tier) {
                (Some(customer), tier) => {
                    let numbers = limit.customer_numbers.as_ref()?;
                    numbers.of_name(customer, tier)
                }
                (None, None) => Some(limit),
                (None, Some(tier)) => Some(&limit.tiers[tier].limit),
            })
        });
        all.find(|limit| {
            limit.window.as_deref() == name.window && limit.group.as_deref() == name.group
        })
    }
}

/// A limit, and whose numbers of it.
#[derive(Debug, Clone, Copy)]
pub struct NumbersName<'a> {
    /// The limit's name.
    pub limit: &'a str,
    /// The rate as written, if the limit is one rate of a list.
    pub window: Option<&'a str>,
    /// The group, if the numbers are those of a tier.
    pub group: Option<&'a str>,
    /// The customer with numbers of its own.
    pub customer: Option<&'a str>,
}

/// The treatment of a route's requests.
#[derive(Debug, Default)]
pub struct Service {
    /// The route's name; empty for requests that no route matches.
    pub name: Arc<str>,
    /// The paths of the route.
    pub path: PathPattern,
    /// Must the handshake of each request have shown a trusted client's certificate?
    pub asks_certificate: bool,
    /// Position in [`Snapshot::upstreams`]; `None` for requests that no route matches.
    pub upstream: Option<usize>,
    /// The route's own answer, if it has no upstream.
    pub static_reply: Option<StaticReply>,
    /// The path that is forwarded instead of the matched one, if they differ.
    pub rewrite: Option<Template>,
    /// The path prefix that its servers do not see, in the form that they receive in a field.
    pub prefix: Option<HeaderValue>,
    /// The host in requests to its servers, if it is not the client's.
    pub host_change: Option<HostChange>,
    /// The changes to the fields of its requests.
    pub request_fields: Option<Changes>,
    /// The fields that identify its clients to its servers.
    pub identity: Option<Arc<IdentityFields>>,
    /// The customers that groups name, if any do.
    pub customers: Option<Arc<Customers>>,
    /// What looks for the customer of its requests beside its limits.
    pub customer_use: CustomerUse,
    /// The changes to the fields of its answers.
    pub response_fields: Option<Changes>,
    /// Its limits, first the route's, then its upstream's, each once; they are decided together.
    pub limits: Vec<Arc<Limit>>,
    /// Positions of the limits that may refuse before a token is verified and the route is certain. Empty if no route
    /// has a condition about a group by token.
    pub early_limits: Box<[usize]>,
    /// Does one of its limits recognise repeats by the beginning of their bodies?
    pub compares_bodies: bool,
    /// Does one of its limits ask for the request's token? Also true if another part asks, and the service has limits.
    pub asks_token: bool,
    /// Is one of its limits in no field unless it refuses?
    pub hides_limits: bool,
    /// The longest time that a server may owe the head of the response, or its part in the request's body; beyond it 504.
    pub timeout: AnswerTimeout,
    /// The longest silence of its bodies and WebSockets, if the route sets one.
    pub idle: Option<Duration>,
}

impl Service {
    /// Is the request forwarded or answered here? False for the service for requests that no route matches, which has
    /// only limits.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.upstream.is_some() || self.static_reply.is_some()
    }

    /// Are its requests forwarded to a server?
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

/// What looks for the customer of a route's requests beside its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CustomerUse {
    /// Nothing does.
    #[default]
    Limits,
    /// The choice of a server.
    Choice,
    /// A field that tells servers the customer.
    Identity,
}

/// The longest time for which a server may delay the head of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AnswerTimeout {
    /// A time that the file states.
    Written(Duration),
    /// The default time. gRPC calls use their own timeout, or the idle time, instead.
    Unwritten(Duration),
    /// No time: only the idle time applies.
    #[default]
    Idle,
}

impl AnswerTimeout {
    /// The time, unless the idle time replaces it.
    #[inline]
    #[must_use]
    pub fn time(self) -> Option<Duration> {
        match self {
            Self::Written(time) | Self::Unwritten(time) => Some(time),
            Self::Idle => None,
        }
    }

    /// The time that the file states.
    #[must_use]
    pub fn written(self) -> Option<Duration> {
        match self {
            Self::Written(time) => Some(time),
            Self::Unwritten(_) | Self::Idle => None,
        }
    }
}

/// A change of the host in requests to a route's servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostChange {
    /// The host in these requests.
    pub host: ServerHost,
    /// The mapping of paths in their answers, if the route's change of the path can be reversed.
    pub path_back: Option<PathBack>,
}

/// A route's own answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaticReply {
    /// A redirect; the query is kept.
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
pub struct LimitFields {
    /// The fields that are written.
    pub style: FieldStyle,
    /// The meaning of `X-RateLimit-Reset`.
    pub reset: ResetForm,
}

/// The meaning of `X-RateLimit-Reset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetForm {
    /// The second since 1970 at which all units are available again.
    Unix,
    /// The seconds until then.
    Seconds,
}

/// The choice of limit fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldStyle {
    /// The fields of the draft and the older ones.
    Both,
    /// `RateLimit` and `RateLimit-Policy`.
    Standard,
    /// `X-RateLimit-*`.
    Legacy,
    /// No limit fields; a refusal still has the time to retry.
    None,
}

/// The most requests that may be held at once in this gateway, in addition to each limit's own queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldCaps {
    /// The most held requests of all clients together.
    pub total: usize,
    /// The most held requests of one client.
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

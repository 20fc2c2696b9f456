//! The explanation of a request: the data, which `request` fills in and `text` and `json` show.

use super::handshake::HandshakeOutlook;
use super::server_choice::ServerChoice;
use crate::intake::stripped_fields::StripCause;
use crate::key::client_ip::Walk;
use crate::key::{PriceError, TokenDoubt};
use crate::limit::Limit;
use crate::limit::verdict::{Verdict, VerdictOutcome};
use crate::proxy::error::ProxyError;
use http::{HeaderName, Method};
use serde::Serialize;
use std::net::IpAddr;
use std::sync::Arc;

/// The predicted outcome of a request.
#[derive(Debug)]
pub(super) struct Explanation {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) peer: Option<IpAddr>,
    pub(super) client: Walk,
    /// The unknown facts on which the explanation depends.
    pub(super) unknown: Vec<Unknown>,
    /// The outcome of the handshake, if the request uses TLS.
    pub(super) handshake: Option<HandshakeOutlook>,
    /// `None` if the gateway answers before it examines the path.
    pub(super) routing: Option<Routing>,
    pub(super) answer: ExpectedAnswer,
}

/// A fact about a request that only the running gateway or an issuer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unknown {
    /// The keys of tokens that their issuer publishes at a URL. The answer depends on them.
    KeysByUrl,
    /// The text that a certification authority requests while a certificate is being ordered.
    ChallengeText,
}

impl Unknown {
    /// The unknown fact, and how to find it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::KeysByUrl => {
                "the keys of the token's issuer, which are at a URL; --connect reads them"
            }
            Self::ChallengeText => {
                "whether a certificate is being ordered for the host: its authority then gets 200 here"
            }
        }
    }
}

/// The route that a request takes, and the limits on its way.
#[derive(Debug, Default)]
pub(super) struct Routing {
    pub(super) host: String,
    /// Did neither the request nor `--host` name a host?
    pub(super) host_assumed: bool,
    /// The path that routes are matched against.
    pub(super) matched: String,
    /// The path that the upstream gets, if one does.
    pub(super) forwarded: Option<String>,
    pub(super) route: Option<ChosenRoute>,
    pub(super) candidates: Vec<RouteCandidate>,
    pub(super) stripped: Vec<StrippedField>,
    pub(super) limits: Vec<AppliedLimit>,
    /// The host in requests to the servers, if it is not the client's.
    pub(super) asked_host: Option<String>,
    /// The server that the request goes to, if its key decides.
    pub(super) server: Option<ServerChoice>,
    /// The fields that identify the client to the servers; the value is `None` if unknown.
    pub(super) identity: Vec<(HeaderName, Option<String>)>,
    /// The limits that are checked before the token is verified, if the token decides which route matches.
    pub(super) before_token: Vec<Arc<str>>,
    /// The counters whose limits may refuse before the request's token is verified, if it has one.
    pub(super) early: Option<EarlyCounters>,
    /// The reason that the token claims nothing, where a limit asks for a claim.
    pub(super) token: Option<TokenDoubt>,
    /// The customer, where one is asked for and known.
    pub(super) customer: Option<ExplainedCustomer>,
}

/// The customer whose request it is.
#[derive(Debug)]
pub(super) struct ExplainedCustomer {
    pub(super) name: String,
    /// The groups that have the name, each with the place that names it: `pro-keys.txt:17`.
    pub(super) groups: Vec<(Arc<str>, Option<String>)>,
    /// Can a credential name the customer, rather than only a plan or a line of numbers?
    pub(super) has_credential: bool,
}

/// The counters that the gateway looks at before a token is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlyCounters {
    /// All are in its memory.
    All,
    /// The counters of limits that each gateway counts alone. The other counters are in Redis, which is not asked then.
    OfGateway,
}

/// The route that is taken.
#[derive(Debug)]
pub(super) struct ChosenRoute {
    pub(super) name: Arc<str>,
    pub(super) place: Option<String>,
    /// `None` if the route answers by itself.
    pub(super) upstream: Option<Arc<str>>,
    pub(super) servers: Vec<String>,
}

/// A route that nearly took the request.
#[derive(Debug)]
pub(super) struct RouteCandidate {
    pub(super) name: Arc<str>,
    pub(super) place: Option<String>,
    pub(super) why: String,
}

/// A field that the gateway drops before anything reads it, so that neither the gateway nor the upstream sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StrippedField {
    pub(super) name: HeaderName,
    pub(super) why: StripCause,
}

/// A limit that applies to the request.
#[derive(Debug)]
pub(super) struct AppliedLimit {
    /// The limit, or its tier for the client's group.
    pub(super) limit: Arc<Limit>,
    pub(super) place: Option<String>,
    pub(super) means: String,
    /// The key template as the file writes it.
    pub(super) by: String,
    /// The group whose tier applies, and the meaning of the tier.
    pub(super) tier: Option<(Arc<str>, String)>,
    /// The customer's own numbers, if they apply.
    pub(super) numbers: Option<ExplainedNumbers>,
    pub(super) key: KeyResult,
    /// The terms of its leases, if the counters are in Redis.
    pub(super) leased: Option<String>,
    /// The state of the counter in the running gateway, if it was requested.
    pub(super) state: Option<CounterState>,
    /// The verdict on the request in that state.
    pub(super) live: Option<LiveVerdict>,
}

/// The numbers of a single customer.
#[derive(Debug)]
pub(super) struct ExplainedNumbers {
    /// The customer.
    pub(super) customer: String,
    /// The line that has them: `own-month.txt:7`.
    pub(super) place: String,
    pub(super) means: String,
}

impl AppliedLimit {
    /// The key, if the limit decides on the request by it.
    pub(super) fn deciding(&self) -> Option<&CountedKey> {
        match &self.key {
            KeyResult::Counted(counted) if self.limit.mode.decides() => Some(counted),
            _ => None,
        }
    }
}

/// The result of a limit's key template for the request.
#[derive(Debug)]
pub(super) enum KeyResult {
    /// A key to count under.
    Counted(CountedKey),
    /// No key: the limit does not apply.
    Skipped,
    /// The limit exempts the request, or the group that the client is in.
    Exempt(Option<Arc<str>>),
    /// No key, because of a fault of this part of the template.
    Faulty(KeyFault, String),
}

/// The key of a counter, and the cost of the request there.
#[derive(Debug)]
pub(super) struct CountedKey {
    pub(super) key: String,
    /// The key in the form of the store.
    pub(super) raw: Vec<u8>,
    pub(super) cost: u64,
    pub(super) misquoted: Option<PriceError>,
    /// The verdict of an unused counter.
    pub(super) fresh: Verdict,
}

/// The fault of a part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyFault {
    /// The part is required, and absent.
    Absent,
    /// A group must know the part, and none does.
    Unknown,
    /// The part came several times, with different values.
    Ambiguous,
    /// The part cannot be read in one way only.
    Malformed,
    /// The request has credentials of different customers.
    DifferentCustomers,
    /// A claim of an untrusted token is the part.
    Untrusted,
    /// A token's claim is the part, and the keys of its issuer have not been read.
    KeysUnread,
    /// Another limit refuses the part as unknown, so that this limit is not checked.
    LeftOut,
}

impl KeyFault {
    /// Its name in JSON.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Unknown => "unknown",
            Self::Ambiguous => "ambiguous",
            Self::Malformed => "malformed",
            Self::DifferentCustomers => "different_customers",
            Self::Untrusted => "unbelieved",
            Self::KeysUnread => "keys_unread",
            Self::LeftOut => "left_out",
        }
    }
}

/// The answer that the request would get.
#[derive(Debug)]
pub(super) struct ExpectedAnswer {
    /// The gateway's own, or the route's; `None` if the upstream answers.
    pub(super) gateway_answer: Option<OwnAnswer>,
    /// The limits' result for the request, which comes first; `None` if the gateway answers independently of counters.
    pub(super) limits: Option<LimitOutlook>,
    /// The answer depends on unknown facts.
    pub(super) is_unknown: bool,
}

/// An answer that no upstream gives.
#[derive(Debug)]
pub(super) struct OwnAnswer {
    pub(super) status: u16,
    pub(super) reason: String,
    /// Is the cause something that the request lacks?
    pub(super) is_lack: bool,
}

impl ExpectedAnswer {
    /// The gateway's own answer, independent of counters.
    pub(super) fn gateway(status: u16, reason: String) -> Self {
        Self {
            gateway_answer: Some(OwnAnswer {
                status,
                reason,
                is_lack: false,
            }),
            limits: None,
            is_unknown: false,
        }
    }

    /// An answer that depends on unknown facts.
    pub(super) fn unknown(limits: Option<LimitOutlook>) -> Self {
        Self {
            gateway_answer: None,
            limits,
            is_unknown: true,
        }
    }

    /// The gateway's own answer to `error`.
    pub(super) fn refused(error: &ProxyError) -> Self {
        Self::gateway(error.status().as_u16(), error.to_string())
    }
}

/// The limits' result for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitOutlook {
    /// No limit applies.
    None,
    /// The counters were not read.
    Unasked,
    /// Every limit has room now, and the request is held for this number of microseconds.
    Room(u64),
}

/// The state of a counter in the running gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CounterState {
    /// The units left, the units in all, the microseconds until the counter is as if unused, and those until it has
    /// room for the request, if it has none and the gateway states them.
    Units {
        remaining: u64,
        of: u64,
        reset: u64,
        wait: Option<u64>,
    },
    /// The key is blocked, for this many microseconds more.
    Blocked { left: u64 },
    /// The gateway runs with a file that does not have this limit.
    Unknown,
    /// The gateway could not read the counter.
    Failed(String),
}

/// The verdict of a counter in its present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LiveVerdict {
    pub(super) outcome: VerdictOutcome,
    /// Is the wait of a refusal exact, rather than an upper bound?
    pub(super) is_exact: bool,
    /// The units that the request would be charged.
    pub(super) takes: u64,
}

//! The explanation of a request: its data, which `request` fills in and `text` and `json` show.

use super::candidates::RouteCandidate;
use super::handshake::HandshakeOutlook;
use super::server_choice::ServerChoice;
use super::stripped_fields::StrippedField;
use crate::key::PriceError;
use crate::key::TokenDoubt;
use crate::key::client_ip::Walk;
use crate::limit::Limit;
use crate::limit::verdict::{Verdict, VerdictOutcome};
use crate::proxy::error::ProxyError;
use http::{HeaderName, Method};
use std::net::IpAddr;
use std::sync::Arc;

/// What would become of a request.
#[derive(Debug)]
pub(super) struct Explanation {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) peer: Option<IpAddr>,
    pub(super) client: Walk,
    /// What the explanation hangs on and is not known here.
    pub(super) unknown: Vec<Unknown>,
    /// What comes of the handshake, where the request comes by TLS.
    pub(super) handshake: Option<HandshakeOutlook>,
    /// None where the gateway answers before it looks at the path.
    pub(super) routing: Option<Routing>,
    pub(super) answer: ExpectedAnswer,
}

/// What only the running gateway or an issuer could tell about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The keys of tokens that their issuer publishes at a URL. The answer hangs on them.
    KeysByUrl,
    /// The text that a certification authority looks for, while a certificate is being ordered.
    ChallengeText,
}

impl Unknown {
    /// Its name in JSON.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::KeysByUrl => "keys_by_url",
            Self::ChallengeText => "challenge_text",
        }
    }

    /// What is not known, and how it could be.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::KeysByUrl => {
                "the keys of the token's issuer, which stand at a URL; with --connect they are read"
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
    /// The host that the servers are asked for, where it is not the client's.
    pub(super) asked_host: Option<String>,
    /// The server that the request goes to, where its key decides.
    pub(super) server: Option<ServerChoice>,
    /// The fields by which the servers know the client; none where the value is not known.
    pub(super) identity: Vec<(HeaderName, Option<String>)>,
    /// The limits that are looked at before the token is verified, where it decides which route takes the request.
    pub(super) before_token: Vec<Arc<str>>,
    /// Limits that do not ask the token refuse before it is verified: their counters are here, so that it is known whether
    /// they do.
    pub(super) is_asked_early: bool,
    /// The reason that the token claims nothing, where a limit asks for a claim.
    pub(super) token: Option<TokenDoubt>,
}

/// The route that is taken.
#[derive(Debug)]
pub(super) struct ChosenRoute {
    pub(super) name: Arc<str>,
    pub(super) place: Option<String>,
    /// None where the route answers by itself.
    pub(super) upstream: Option<Arc<str>>,
    pub(super) servers: Vec<String>,
}

/// A limit that the request is held to.
#[derive(Debug)]
pub(super) struct AppliedLimit {
    /// The limit, or its tier for the client's group.
    pub(super) limit: Arc<Limit>,
    pub(super) place: Option<String>,
    pub(super) means: String,
    /// The key template as the file writes it.
    pub(super) by: String,
    /// The group whose tier holds, and the meaning of the tier.
    pub(super) tier: Option<(Arc<str>, String)>,
    pub(super) key: KeyResult,
    /// The terms of its leases, where the counters are in a Redis.
    pub(super) leased: Option<String>,
    /// The state of the counter in the running gateway, if that was asked.
    pub(super) state: Option<CounterState>,
    /// The verdict on the request from that state.
    pub(super) live: Option<LiveVerdict>,
}

impl AppliedLimit {
    /// The key, where the limit decides on the request by it.
    pub(super) fn deciding(&self) -> Option<&CountedKey> {
        match &self.key {
            KeyResult::Counted(counted) if self.limit.mode.decides() => Some(counted),
            _ => None,
        }
    }
}

/// What the key template of a limit makes of the request.
#[derive(Debug)]
pub(super) enum KeyResult {
    /// A key to count under.
    Counted(CountedKey),
    /// No key: the limit does not apply.
    Skipped,
    /// The limit exempts the request, or the group that the client is in.
    Exempt(Option<Arc<str>>),
    /// No key, for a fault of this part of the template.
    Faulty(KeyFault, String),
}

/// The key of a counter, and what the request takes from it.
#[derive(Debug)]
pub(super) struct CountedKey {
    pub(super) key: String,
    /// The key as the store has it.
    pub(super) raw: Vec<u8>,
    pub(super) cost: u32,
    pub(super) misquoted: Option<PriceError>,
    /// The verdict of an unused counter.
    pub(super) fresh: Verdict,
}

/// The fault of a part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyFault {
    /// The part is demanded, and absent.
    Absent,
    /// A group is to know the part, and none does.
    Unknown,
    /// The part came several times, with different values.
    Ambiguous,
    /// A token that is not believed claims the part.
    Untrusted,
    /// A token claims the part, and the keys of its issuer have not been read.
    KeysUnread,
    /// Another limit refuses the part as unknown, so that this one is not asked.
    LeftOut,
}

impl KeyFault {
    /// Its name in JSON.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Unknown => "unknown",
            Self::Ambiguous => "ambiguous",
            Self::Untrusted => "unbelieved",
            Self::KeysUnread => "keys_unread",
            Self::LeftOut => "left_out",
        }
    }
}

/// The answer that the request would get.
#[derive(Debug)]
pub(super) struct ExpectedAnswer {
    /// The gateway's own, or the route's; none where the upstream answers.
    pub(super) gateway_answer: Option<OwnAnswer>,
    /// What the limits make of the request first; none where the gateway answers whatever has been counted.
    pub(super) limits: Option<LimitOutlook>,
    /// The answer hangs on what is not known here.
    pub(super) is_unknown: bool,
}

/// An answer that no upstream gives.
#[derive(Debug)]
pub(super) struct OwnAnswer {
    pub(super) status: u16,
    pub(super) reason: String,
    /// Is it for something that the request lacks?
    pub(super) is_lack: bool,
}

impl ExpectedAnswer {
    /// The gateway's own, whatever has been counted.
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

    /// One that hangs on what is not known here.
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

/// What the limits make of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitOutlook {
    /// No limit applies.
    None,
    /// The counters were not read.
    Unasked,
    /// Every limit has room now, and the request is held for so many microseconds.
    Room(u64),
}

/// The state of a counter in the running gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CounterState {
    /// So many units left of so many, and the microseconds until the counter is as if unused.
    Units { remaining: u64, of: u64, reset: u64 },
    /// The gateway runs with a file that has no such limit.
    Unknown,
    /// The gateway could not read the counter.
    Failed(String),
}

/// What the request would get from a counter as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LiveVerdict {
    pub(super) outcome: VerdictOutcome,
    /// Is the wait of a refusal exact, and no upper bound?
    pub(super) is_exact: bool,
    /// The units that the request would be charged.
    pub(super) takes: u32,
}

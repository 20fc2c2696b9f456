//! The facts about a request at its end, in plain borrowed values.

use crate::telemetry::metrics::label::labels;
use crate::telemetry::metrics::{DecidedBy, EndedBy, Failure};
use std::net::IpAddr;
use std::time::Duration;

/// Whose numbers of a limit applied to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumbersOf<'a> {
    /// Those of the group of this name, or none, since its members are exempt.
    Group(&'a str),
    /// The customer's own.
    Customer,
}

/// One request that has ended. Untrusted values are bytes with any content; they are cut and escaped when written.
#[derive(Debug, Default, Clone, Copy)]
pub struct AccessRecord<'a> {
    /// The time at which the request's head arrived: microseconds since the Unix epoch.
    pub ts: u64,
    /// The value of `X-Request-Id`.
    pub request_id: &'a [u8],
    /// The client's address; `None` for the peer of a Unix socket that reports none.
    pub client: Option<IpAddr>,
    /// The name of the customer, where the request's limits, groups or fields ask for one.
    pub customer: Option<&'a str>,
    /// The address at the far end of the connection.
    pub peer: Option<IpAddr>,
    /// The request's method. Method, path and version are `None` if the bytes were not a request.
    pub method: Option<&'a str>,
    /// The host that the request named.
    pub host: Option<&'a [u8]>,
    /// The path as sent, without the query: queries carry secrets.
    pub path: Option<&'a [u8]>,
    /// The request's version of HTTP.
    pub proto: Option<http::Version>,
    /// The status of the answer; 499 when the client left before one.
    pub status: u16,
    /// The cause of that status.
    pub reason: Reason,
    /// The route that matched.
    pub route: Option<&'a str>,
    /// The limit that refused or held the request.
    pub limit: Option<&'a str>,
    /// The deciding rate of that limit, if the limit has several.
    pub window: Option<&'a str>,
    /// The limits that do not decide and would have refused the request.
    pub would_refuse: &'a [&'a str],
    /// The key and the units that each limit counted.
    pub charges: &'a [Charge<'a>],
    /// The limits with other numbers for the client than for most, or none: the name of each, and whose numbers.
    pub groups: &'a [(&'a str, NumbersOf<'a>)],
    /// The time for which the request was held.
    pub delay: Duration,
    /// The time from the request's head to the end of the answer.
    pub duration: Duration,
    /// The server that the request was sent to.
    pub upstream: Option<&'a str>,
    /// The time from forwarding to the head of the server's answer.
    pub upstream_time: Option<Duration>,
    /// The reason why there was no valid answer, in words, if so.
    pub upstream_fault: Option<&'a str>,
    /// The attempts to reach a server.
    pub call: CallRecord,
    /// The cause of the end of a WebSocket, or of an incomplete answer; `None` for a complete answer.
    pub ended_by: Option<EndedBy>,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// The request's `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// The decider; `None` if no decision was made.
    pub decided_by: Option<DecidedBy>,
    /// The time after which a refused request may be retried; `None` for admitted requests, and for requests that would
    /// never be admitted.
    pub retry_after: Option<Duration>,
    /// The units that the limit has left.
    pub remaining: Option<u64>,
    /// The status of a gRPC call, if the request is one; the inner value is `None` if the client got no status.
    pub grpc_status: Option<Option<u16>>,
    /// The handshake of the request's connection; `None` without TLS.
    pub tls: Option<TlsFacts<'a>>,
}

/// The facts about the handshake of a request's connection.
#[derive(Debug, Clone, Copy)]
pub struct TlsFacts<'a> {
    /// The version of TLS, such as `1.3`.
    pub version: &'a str,
    /// The name of the identity that the client was shown.
    pub identity: &'a str,
    /// An earlier session was resumed.
    pub is_resumed: bool,
    /// The host that the client named, if it is not the request's; the inner value is `None` if the client named none.
    pub other_sni: Option<Option<&'a str>>,
    /// The subject of the client's certificate, if the identity requests one; the inner value is `None` if none was
    /// shown.
    pub client_subject: Option<Option<&'a str>>,
}

/// The attempts of a request to reach a server.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CallRecord {
    /// The number of attempts to send it to a server.
    pub attempts: u32,
    /// The failure that caused a retry; `budget` if the retry budget prevented one.
    pub retry: Option<&'static str>,
    /// The time for opening a connection, if one was opened.
    pub connect: Option<Duration>,
    /// The time for which the request waited for a free server.
    pub queued: Option<Duration>,
}

/// One limit's share of a request.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'a> {
    /// The limit's name.
    pub limit: &'a str,
    /// The key of the counter, or a digest if the key is secret.
    pub key: &'a [u8],
    /// The request's cost at that limit.
    pub cost: u64,
}

/// Declares the reasons: each with its word for programs, and with words for a person at a terminal.
macro_rules! reasons {
    ($($(#[$about:meta])* $value:ident = $word:literal, $words:literal;)+) => {
        labels! {
            /// The cause of a client's answer.
            #[derive(Default)]
            pub enum Reason { $($(#[$about])* $value = $word,)+ }
        }

        impl Reason {
            /// The reason of this word in the access log.
            #[must_use]
            pub fn named(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$value),)+ _ => None }
            }

            /// The reason in words, for a person at a terminal.
            pub(super) const fn in_words(self) -> &'static str {
                match self { $(Self::$value => $words),+ }
            }
        }
    };
}

reasons! {
    /// No limit refused the request, and no fault occurred.
    #[default]
    Ok = "ok", "";
    /// The request repeats one that a limit has charged, and was free at that limit.
    Repeat = "repeat", "a repeat, free of charge";
    /// The request was held and then forwarded.
    LimitDelayed = "limit_delayed", "held back";
    /// The connection became a tunnel.
    Upgraded = "upgraded", "became a tunnel";
    /// The listener redirects all its requests to `https`.
    ToHttps = "to_https", "sent on to https";
    /// A certification authority looks whether a host is ours.
    AcmeChallenge = "acme_challenge", "an authority verifies that the host is ours";
    /// A limit refused the request.
    LimitRefused = "limit_refused", "over the limit";
    /// A limit refused the request, and its key is blocked from now on, or was before.
    LimitBlocked = "limit_blocked", "blocked";
    /// The store is unavailable, and the limit refuses requests then.
    StoreDown = "store_down", "the store is away";
    /// The gateway, or this client, already has the most held requests.
    TooManyHeld = "too_many_held", "too many requests are held back";
    /// No descriptor is left for a connection to the upstream.
    Busy = "busy", "no connection left for the upstream";
    /// The request lacks a part of a limit's key.
    MissingKey = "missing_key", "a part of a limit's key is missing";
    /// The key of the limit is in no group.
    UnknownKey = "unknown_key", "the key is in no group";
    /// The request's token is not trusted, and a limit or a group needs a claim of the token.
    BadToken = "bad_token", "the token is not trusted";
    /// The keys that would verify the request's token have not been read yet, and a limit or a group asks for a claim.
    KeysUnread = "keys_unread", "the keys of tokens have not been read yet";
    /// The request's host belongs on another connection.
    Misdirected = "misdirected", "the host belongs on another connection";
    /// The route requires a client's certificate, and the handshake showed no trusted one.
    CertificateRequired = "certificate_required", "no client certificate";
    /// No route matches.
    NoRoute = "no_route", "no route matches";
    /// The upstream has no server.
    NoServer = "no_server", "the upstream has no server";
    /// All servers have the most requests that they may have.
    ServerBusy = "server_busy", "all servers are busy";
    /// No server was available: all servers were tried nevertheless, or none if the file says so.
    NoneLeft = "none_left", "no server was available";
    /// There was no connection to the upstream.
    ConnectFailed = "connect_failed", "no connection to the upstream";
    /// The TLS handshake with the upstream failed.
    UpstreamTls = "upstream_tls", "no TLS with the upstream";
    /// The timeout of the gRPC call was over, or too short for the hold.
    DeadlineExceeded = "deadline_exceeded", "the call's deadline passed";
    /// The upstream did not answer in time.
    UpstreamTimeout = "upstream_timeout", "the upstream did not answer in time";
    /// The upstream ended the connection early.
    UpstreamReset = "upstream_reset", "the upstream broke off";
    /// The upstream's answer is not HTTP.
    UpstreamInvalid = "upstream_invalid", "the upstream did not answer in HTTP";
    /// The client left.
    ClientGone = "client_gone", "the client left";
    /// The client stopped sending.
    ClientTimeout = "client_timeout", "the client stopped sending";
    /// The client did not read its answer.
    ClientStalled = "client_stalled", "the client did not read the answer";
    /// The gateway does not accept such a request.
    BadRequest = "bad_request", "not a valid request";
    /// The request's head or body exceeds a bound.
    TooLarge = "too_large", "too large";
    /// The gateway is shutting down.
    Draining = "draining", "shutting down";
    /// The request was unfinished at the end of draining.
    DrainCut = "drain_cut", "cut by the shutdown";
    /// A fault of the gateway.
    Internal = "internal", "a fault of the gateway";
}

impl From<Failure> for Reason {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Connect => Self::ConnectFailed,
            Failure::Timeout => Self::UpstreamTimeout,
            Failure::Reset => Self::UpstreamReset,
            Failure::Protocol => Self::UpstreamInvalid,
            Failure::Tls => Self::UpstreamTls,
            Failure::NoServer => Self::NoServer,
            Failure::Busy => Self::ServerBusy,
            Failure::NoneLeft => Self::NoneLeft,
        }
    }
}

impl Reason {
    /// Is the upstream the cause? A person then wants to see the server.
    pub(super) const fn blames_server(self) -> bool {
        matches!(
            self,
            Self::ConnectFailed
                | Self::NoneLeft
                | Self::UpstreamTls
                | Self::UpstreamTimeout
                | Self::UpstreamReset
                | Self::UpstreamInvalid
        )
    }

    /// Did a limit refuse the request? Only such lines may be summarised.
    #[must_use]
    pub const fn refuses(self) -> bool {
        matches!(
            self,
            Self::LimitRefused
                | Self::LimitBlocked
                | Self::StoreDown
                | Self::TooManyHeld
                | Self::MissingKey
                | Self::UnknownKey
                | Self::BadToken
                | Self::KeysUnread
        )
    }
}

#[cfg(test)]
impl AccessRecord<'_> {
    /// An ordinary forwarded request, for tests to change.
    pub(super) fn sample() -> Self {
        Self {
            ts: 1_795_196_930_123_456,
            request_id: b"01930b7e",
            client: Some(IpAddr::from([203, 0, 113, 9])),
            customer: None,
            peer: Some(IpAddr::from([10, 0, 0, 4])),
            method: Some("GET"),
            host: Some(b"api.example.com"),
            path: Some(b"/v1/orders/42"),
            proto: Some(http::Version::HTTP_11),
            status: 200,
            reason: Reason::Ok,
            route: Some("orders"),
            limit: Some("per-key"),
            window: None,
            would_refuse: &[],
            charges: &[Charge {
                limit: "per-key",
                key: b"abc",
                cost: 2,
            }],
            groups: &[],
            delay: Duration::ZERO,
            duration: Duration::from_micros(3_150),
            upstream: Some("10.1.0.5:3000"),
            upstream_time: Some(Duration::from_micros(2_900)),
            upstream_fault: None,
            call: CallRecord {
                attempts: 1,
                ..CallRecord::default()
            },
            ended_by: None,
            bytes_in: 0,
            bytes_out: 212,
            user_agent: Some(b"curl/8.7"),
            decided_by: Some(DecidedBy::Store),
            retry_after: None,
            remaining: Some(19),
            grpc_status: None,
            tls: None,
        }
    }
}

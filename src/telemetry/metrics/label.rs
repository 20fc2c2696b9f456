//! The words that metrics use as label values: few, fixed, and never a client's.

mod combination;

pub(super) use combination::{CLASSES, Combination, class_position};

use std::borrow::Cow;
use std::fmt::Debug;

/// The route label of requests that no route matched.
pub const NO_ROUTE: &str = "none";

/// The label of a value outside the known ones.
pub(super) const OTHER: &str = "_OTHER";

/// A value of a small fixed set, used as a label; its cell is at the position `value as usize`.
pub(in crate::telemetry) trait Label: Copy + Debug + 'static {
    /// All values, in the order of their positions.
    const ALL: &'static [Self];

    /// The label's text.
    fn word(self) -> &'static str;
}

/// The words of all values, in the order of their positions.
pub(super) fn words<L: Label>() -> impl Iterator<Item = &'static str> {
    L::ALL.iter().map(|value| value.word())
}

/// All pairs of a value of `A` and a value of `B`.
pub(super) fn pairs<A: Label, B: Label>() -> impl Iterator<Item = (A, B)> {
    A::ALL.iter().flat_map(|a| B::ALL.iter().map(|b| (*a, *b)))
}

/// The labels of a sample, in the order of the text: names and values.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels(pub(super) Vec<(&'static str, Cow<'static, str>)>);

impl RefusedHead {
    /// The number of causes.
    pub const COUNT: usize = <Self as Label>::ALL.len();
}

impl Labels {
    /// One label, whose value is a name of the configuration.
    pub(super) fn of(label: &'static str, name: &str) -> Self {
        Self::default().and(label, name.to_owned())
    }

    /// These labels and one more.
    pub(super) fn and(mut self, label: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.0.push((label, value.into()));
        self
    }
}

/// Declares sets of values, each value with its word.
macro_rules! labels {
    ($($(#[$doc:meta])* pub enum $type:ident { $($(#[$about:meta])* $value:ident = $word:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $type { $($(#[$about])* $value),+ }

        impl $type {
            /// The word used in metrics and in the access log.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word),+ }
            }
        }

        impl $crate::telemetry::metrics::label::Label for $type {
            const ALL: &'static [Self] = &[$(Self::$value),+];

            fn word(self) -> &'static str {
                self.as_str()
            }
        }
    )+};
}

pub(in crate::telemetry) use labels;

labels! {
    /// The source of an answer.
    pub enum AnswerSource {
        /// The gateway: a refusal, an error, no route.
        Gateway = "gateway",
        /// The upstream.
        Upstream = "upstream",
    }

    /// The verdict of a limit.
    pub enum DecisionLabel {
        /// The request was admitted.
        Allow = "allow",
        /// The request was admitted after a wait.
        Delay = "delay",
        /// The request was not admitted now.
        Refuse = "refuse",
        /// The request was not admitted, and its key is blocked.
        Block = "block",
        /// The request was admitted free of charge: it has been charged before.
        Repeat = "repeat",
        /// The limit does not decide, and would have admitted the request.
        WouldAllow = "would_allow",
        /// The limit does not decide, and would have delayed the request.
        WouldDelay = "would_delay",
        /// The limit does not decide, and would have refused the request.
        WouldRefuse = "would_refuse",
        /// The limit does not decide, and could not count the request.
        Uncounted = "uncounted",
    }

    /// The cost of a request in its response.
    pub enum CostReport {
        /// The response had a number: the charge was settled.
        Number = "settled",
        /// The response had no cost: the charge stays at the estimate.
        Nothing = "silent",
        /// The response had a cost that cannot be read: the charge stays at the estimate.
        Unreadable = "unreadable",
        /// The client left before the cost was known: the charge is the highest possible cost.
        Left = "left",
        /// The response had no readable cost: the charge is the limit's `max`, by its `on_silent`.
        SilentMax = "silent_max",
    }

    /// What became of an operator's change.
    pub enum ChangeResult {
        /// It holds, by this gateway's word or another's.
        Done = "done",
        /// It was refused.
        Refused = "refused",
        /// The store has lost it.
        Lost = "lost",
        /// It has a kind or a form of another version of the program.
        Unknown = "unknown",
    }

    /// The end of an order for a certificate.
    pub enum OrderResult {
        /// A certificate was issued.
        Obtained = "obtained",
        /// The authority refused.
        Refused = "refused",
        /// The authority checked, and did not find that we control a name.
        NotOurs = "not_ours",
        /// The authority could not be reached, or took too long.
        Unreachable = "unreachable",
        /// This machine failed, for example at a file or a key.
        Failed = "failed",
    }

    /// The result of the lookup of a server name's addresses.
    pub enum Resolution {
        /// Addresses were found.
        Found = "ok",
        /// The name has no address.
        Empty = "empty",
        /// The lookup failed.
        Failed = "failed",
        /// The lookup took too long.
        Late = "late",
    }

    /// The end of a read of the keys that an issuer publishes.
    pub enum KeyFetch {
        /// The keys have changed.
        Changed = "changed",
        /// The keys have not changed.
        Same = "same",
        /// The keys could not be read, or cannot be used.
        Failed = "failed",
    }

    /// The end of a lookup of another gateway's challenge.
    pub enum Lookup {
        /// An answer was found.
        Found = "found",
        /// No answer was found.
        Missing = "missing",
        /// The store did not answer, or returned data that no gateway stores.
        Failed = "failed",
        /// No lookup was made: this second already had the most lookups.
        Refused = "refused",
    }

    /// The mode of a limit. The values are in the order of their words, like the samples of one limit.
    pub enum ModeLabel {
        /// The limit counts by other numbers than the deciding limit.
        Candidate = "candidate",
        /// The limit decides.
        Enforce = "enforce",
        /// The limit only counts.
        Shadow = "shadow",
    }

    /// The source of a decision.
    pub enum DecidedBy {
        /// The configured store decided.
        Store = "store",
        /// A cached refusal of the store decided.
        Remembered = "remembered",
        /// A permit decided, one of several that the store had granted at once.
        Lease = "lease",
        /// The memory of this gateway decided, while the store was unavailable.
        Local = "local",
        /// No counter decided: the store was unavailable and the limit admits all requests then.
        Open = "open",
        /// No counter decided: the store was unavailable and the limit refuses all requests then.
        Closed = "closed",
    }

    /// The fate of permits for several requests.
    pub enum Permits {
        /// The permits were charged in one call.
        Taken = "taken",
        /// The permits were not used, and were given back.
        Returned = "returned",
    }

    /// The redirection that a node of a cluster returned instead of an answer; no command was run.
    pub enum Redirect {
        /// The slot belongs to another node.
        Moved = "moved",
        /// The slot is being moved to another node.
        Ask = "ask",
    }

    /// The operation of a call to the store.
    pub enum Operation {
        /// The call decides requests.
        Decide = "decide",
        /// The call frees slots of limits on requests in flight.
        Release = "release",
        /// The call refunds charges.
        Refund = "refund",
        /// The call settles charges by the cost in the response.
        Settle = "settle",
    }

    /// The outcome of a call to the store.
    pub enum CallOutcome {
        /// The store answered without an error.
        Ok = "ok",
        /// The store did not answer in time; the operation may have happened.
        Timeout = "timeout",
        /// The store answered with an error.
        Error = "error",
        /// The store was known to be unavailable and was not called.
        Down = "down",
        /// The call was abandoned before it was sent, or without an answer.
        Lost = "lost",
    }

    /// The state of a connection when it was closed to make room for a new one.
    pub enum Eviction {
        /// The connection was between two requests.
        Idle = "idle",
        /// The connection had sent no byte yet.
        Silent = "silent",
        /// The connection had sent a part of a head.
        HalfHead = "half_head",
        /// The connection was between two requests, and its own client opened another one beyond the client's share.
        Own = "own",
    }

    /// Causes for which a new connection is rejected.
    pub enum Rejection {
        /// All connections have a current request.
        Full = "full",
        /// All connections that the client may have are taken.
        PerClient = "per_client",
        /// The system has no more descriptors; the connection waits to be accepted.
        Descriptors = "descriptors",
        /// The PROXY header in which a proxy must name the client is malformed or missing.
        ProxyHeader = "proxy_header",
        /// The bytes before the protocol were not complete in time.
        Late = "late",
    }

    /// Causes for which a trusted peer names no client.
    pub enum ClientUnnamed {
        /// The field has a text that its grammar does not allow.
        Malformed = "malformed",
        /// A hop hides the one before it.
        Unknown = "unknown",
        /// No field has an entry.
        Absent = "absent",
    }

    /// Causes for which a head is refused before it is a request.
    pub enum RefusedHead {
        /// The first line is not `METHOD TARGET HTTP/1.1`.
        Line = "line",
        /// The target has a byte that no target may have.
        Target = "target",
        /// A field has an invalid name or value, or is connection-specific in HTTP/2.
        Fields = "fields",
        /// `:method`, `:scheme` or `:path` is missing, or misplaced.
        PseudoFields = "pseudo_fields",
        /// The length of the body is not a number, or is wrong.
        Length = "length",
        /// The head is too large.
        TooLarge = "too_large",
        /// The head was not complete in time.
        Late = "late",
        /// The client requests a tunnel for another protocol (RFC 8441), which is not announced.
        ExtendedConnect = "extended_connect",
        /// The bytes of HTTP/2 cannot be decoded as fields (RFC 7541).
        Encoding = "encoding",
    }

    /// The end of a TLS handshake with a client.
    pub enum Handshake {
        /// The client and the gateway made a full handshake.
        Full = "full",
        /// An earlier session was resumed.
        Resumed = "resumed",
        /// The client did not continue in time.
        Timeout = "timeout",
        /// No identity answers for the host that the client named.
        NoName = "no_name",
        /// The client's certificate was missing or refused.
        ClientRefused = "client_refused",
        /// Too many of the client's certificates were refused recently, so that no further one was verified.
        ClientThrottled = "client_throttled",
        /// The two sides did not agree, the client violated the protocol or left, or it does not use TLS.
        Protocol = "protocol",
        /// A certification authority checked whether we control a host.
        Challenge = "challenge",
    }

    /// The kind of stream after the head of an answer.
    pub enum Flow {
        /// A WebSocket.
        Tunnel = "tunnel",
        /// An answer that was not complete.
        Stream = "stream",
    }

    /// The cause of the end of a WebSocket, or of an incomplete answer.
    pub enum EndedBy {
        /// The client: it left, or closed the connection.
        Client = "client",
        /// The server: it failed, or closed the connection.
        Server = "server",
        /// No bytes moved for too long.
        Idle = "idle",
        /// The client was slower than allowed.
        MinRate = "min_rate",
        /// The gateway stopped.
        Drain = "drain",
        /// The client's certificate is no longer trusted.
        Certificate = "certificate",
    }

    /// The end of a request that was to be retried.
    pub enum RetryResult {
        /// The last server answered.
        Answered = "answered",
        /// The last server failed too.
        Failed = "failed",
        /// The retry budget was spent: the request was not retried.
        Budget = "budget",
    }

    /// The end of a probe.
    pub enum ProbeResult {
        /// The server serves.
        Good = "good",
        /// The server does not serve.
        Bad = "bad",
    }

    /// The failure of an upstream at a request.
    pub enum Failure {
        /// There was no connection.
        Connect = "connect",
        /// There was no answer in time.
        Timeout = "timeout",
        /// The connection ended before the answer did.
        Reset = "reset",
        /// The answer was not HTTP.
        Protocol = "protocol",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The upstream has no server.
        NoServer = "no_server",
        /// All servers had the most requests that they may have.
        Busy = "server_busy",
        /// No server was available.
        NoneLeft = "none_left",
    }
}

impl DecisionLabel {
    /// Can a limit in this mode have this decision?
    pub(super) fn is_of(self, mode: ModeLabel) -> bool {
        let of_others = [Self::WouldAllow, Self::WouldDelay, Self::WouldRefuse];
        (mode == ModeLabel::Enforce) != (of_others.contains(&self) || self == Self::Uncounted)
    }
}

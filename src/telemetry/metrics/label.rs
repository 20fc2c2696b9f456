//! The words that metrics have as label values: few, fixed, and never a client's.

use http::Method;
use std::borrow::Cow;
use std::fmt::Debug;

/// The route label of requests that no route matched.
pub const NO_ROUTE: &str = "none";

/// The label of a value outside the known ones.
pub(super) const OTHER: &str = "_OTHER";

/// A value out of a small fixed set, used as a label; its cell stands at the position `value as usize`.
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
    /// How many causes there are.
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
        /// The request goes on.
        Allow = "allow",
        /// The request goes on after a wait.
        Delay = "delay",
        /// The request does not go on now.
        Refuse = "refuse",
        /// The request goes on, free of charge: it has been charged before.
        Repeat = "repeat",
        /// The limit does not decide, and would have let the request go on.
        WouldAllow = "would_allow",
        /// The limit does not decide, and would have held the request back.
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
        /// The response had no cost: the charge stays as it was estimated.
        Nothing = "silent",
        /// The response had a cost that cannot be read: the charge stays as it was estimated.
        Unreadable = "unreadable",
        /// The client left before a cost came: the charge is the most that it could have been.
        Left = "left",
    }

    /// The end of an order for a certificate.
    pub enum OrderResult {
        /// A certificate came.
        Obtained = "obtained",
        /// The authority refused.
        Refused = "refused",
        /// The authority looked, and did not find that a name is ours.
        NotOurs = "not_ours",
        /// The authority could not be spoken to, or took too long.
        Unreachable = "unreachable",
        /// This machine failed: a file, a key.
        Failed = "failed",
    }

    /// The answer to the question for the addresses of a server's name.
    pub enum Resolution {
        /// Addresses came.
        Found = "ok",
        /// The name has no address.
        Empty = "empty",
        /// The question failed.
        Failed = "failed",
        /// No answer came in time.
        Late = "late",
    }

    /// The end of a read of the keys that an issuer publishes.
    pub enum KeyFetch {
        /// There are other keys than before.
        Changed = "changed",
        /// The keys are those of before.
        Same = "same",
        /// They could not be read, or are of no use.
        Failed = "failed",
    }

    /// The end of a look for a challenge of another gateway.
    pub enum Lookup {
        /// An answer stood ready.
        Found = "found",
        /// None did.
        Missing = "missing",
        /// The store did not answer, or not with what a gateway put there.
        Failed = "failed",
        /// None was made: there were as many in this second as may be.
        Refused = "refused",
    }

    /// The mode of a limit. The values stand in the order of their words, as the samples of one limit do.
    pub enum ModeLabel {
        /// The limit counts by other numbers than the limit that decides.
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
        /// A refusal of the store that still held decided.
        Remembered = "remembered",
        /// A permit decided, one of several that the store had granted at once.
        Lease = "lease",
        /// The memory of this gateway decided, while the store is away.
        Local = "local",
        /// No counter decided: the store is away and the limit lets all requests through.
        Open = "open",
        /// No counter decided: the store is away and the limit lets no request through.
        Closed = "closed",
    }

    /// The fate of permits for several requests.
    pub enum Permits {
        /// The permits were charged in one call.
        Taken = "taken",
        /// The permits were not used, and went back.
        Returned = "returned",
    }

    /// The redirection that a node of a cluster sent in place of an answer; no command was run.
    pub enum Redirect {
        /// The slot has another home.
        Moved = "moved",
        /// The slot is on its way to another home.
        Ask = "ask",
    }

    /// The operation that was asked of the store.
    pub enum Operation {
        /// The call decides requests.
        Decide = "decide",
        /// The call frees slots of limits on what is in flight.
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
        /// The store was known to be away and was not asked.
        Down = "down",
        /// The call was given up before it was sent, or without an answer.
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
        /// The connection was between two requests, and its own client wanted another one beyond the client's share.
        Own = "own",
    }

    /// Causes for which a new connection is not taken.
    pub enum Rejection {
        /// All connections have a request under way.
        Full = "full",
        /// All connections that the client may have are taken.
        PerClient = "per_client",
        /// The system gives no more descriptors; the connection waits to be accepted.
        Descriptors = "descriptors",
        /// The header by which a proxy must name the client is bad or missing.
        ProxyHeader = "proxy_header",
        /// What comes before the protocol was not whole in time.
        Late = "late",
    }

    /// Causes for which a trusted peer names no client.
    pub enum ClientUnnamed {
        /// The field has a text that its grammar does not allow.
        Malformed = "malformed",
        /// A hop hides the one before it.
        Unknown = "unknown",
        /// No field says anything.
        Absent = "absent",
    }

    /// Causes for which a head is refused before it is a request.
    pub enum RefusedHead {
        /// The first line is not `METHOD TARGET HTTP/1.1`.
        Line = "line",
        /// The target has a byte that no target has.
        Target = "target",
        /// A field has a name or value that no field has, or is one of connections in HTTP/2.
        Fields = "fields",
        /// `:method`, `:scheme` or `:path` is missing, or out of place.
        PseudoFields = "pseudo_fields",
        /// The length of the body is no number, or another one than it can be.
        Length = "length",
        /// The head is too large.
        TooLarge = "too_large",
        /// The head did not come in time.
        Late = "late",
        /// The client asks for a tunnel for another protocol (RFC 8441), which is not announced.
        ExtendedConnect = "extended_connect",
        /// The bytes of HTTP/2 are no fields (RFC 7541).
        Encoding = "encoding",
    }

    /// The end of a handshake of TLS with a client.
    pub enum Handshake {
        /// The client and the gateway agreed anew.
        Full = "full",
        /// An earlier session was taken up again.
        Resumed = "resumed",
        /// The client did not go on in time.
        Timeout = "timeout",
        /// No identity answers for the host that the client named.
        NoName = "no_name",
        /// The client's certificate was missing or refused.
        ClientRefused = "client_refused",
        /// Too many of the client's certificates were refused lately, so that no further one was looked at.
        ClientThrottled = "client_throttled",
        /// The two sides did not agree, the client broke the protocol or left, or it does not speak TLS.
        Protocol = "protocol",
        /// A certification authority looked whether a host is ours.
        Challenge = "challenge",
    }

    /// What goes on behind the head of an answer.
    pub enum Flow {
        /// A WebSocket.
        Tunnel = "tunnel",
        /// An answer that did not come to its end.
        Stream = "stream",
    }

    /// The cause of the end of a WebSocket, or of an answer before its end.
    pub enum EndedBy {
        /// The client: it left, or closed.
        Client = "client",
        /// The server: it broke off, or closed.
        Server = "server",
        /// Nothing moved for too long.
        Idle = "idle",
        /// The client was slower than it may be.
        MinRate = "min_rate",
        /// The gateway stopped.
        Drain = "drain",
        /// The client's certificate is not believed any more.
        Certificate = "certificate",
    }

    /// The end of a request that was to be sent once more.
    pub enum RetryResult {
        /// The last server answered.
        Answered = "answered",
        /// The last server failed too.
        Failed = "failed",
        /// The budget was spent: it was not sent again.
        Budget = "budget",
    }

    /// The end of a probe.
    pub enum ProbeResult {
        /// The server serves.
        Good = "good",
        /// It does not.
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
        /// The handshake of TLS failed.
        Tls = "tls",
        /// There was no server to ask.
        NoServer = "no_server",
        /// All servers had as many requests as they take.
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

/// The methods of the standards. The position is the code; the next code is [`OTHER`].
static METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::CONNECT,
    Method::OPTIONS,
    Method::TRACE,
    Method::PATCH,
];

/// Method, status and source of a request, in four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Combination {
    /// The position among [`METHODS`].
    method: u8,
    /// The status, 0 where it was forgotten.
    status: u16,
    source: AnswerSource,
}

impl Combination {
    pub(super) fn new(method: &Method, status: u16, source: AnswerSource) -> Self {
        let known = METHODS.iter().position(|known| known == method);
        Self {
            method: known.unwrap_or(METHODS.len()) as u8,
            status,
            source,
        }
    }

    /// This combination without its status.
    pub(super) const fn any_status(self) -> Self {
        Self { status: 0, ..self }
    }

    pub(super) fn method(self) -> &'static str {
        let method = METHODS.get(usize::from(self.method));
        method.map_or(OTHER, Method::as_str)
    }

    /// The status in digits, or [`OTHER`].
    pub(super) fn code(self) -> Cow<'static, str> {
        match self.status {
            0 => OTHER.into(),
            status => status.to_string().into(),
        }
    }

    /// The status' first digit: `2xx`.
    pub(super) const fn class(self) -> &'static str {
        CLASSES[class_position(self.status)]
    }
}

/// A request's labels beside its route.
impl From<(Labels, Combination)> for Labels {
    fn from((route, seen): (Labels, Combination)) -> Self {
        route
            .and("method", seen.method())
            .and("code", seen.code())
            .and("source", seen.source.as_str())
    }
}

/// The classes of statuses, at the positions that [`class_position`] gives.
pub(super) const CLASSES: [&str; 6] = [OTHER, "1xx", "2xx", "3xx", "4xx", "5xx"];

pub(super) const fn class_position(status: u16) -> usize {
    match status / 100 {
        hundreds @ 1..=5 => hundreds as usize,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combination_gives_back_what_went_in() {
        for method in &METHODS {
            let seen = Combination::new(method, 429, AnswerSource::Gateway);
            assert_eq!(seen.method(), method.as_str());
            assert_eq!(seen.code(), "429");
            assert_eq!(seen.class(), "4xx");
            assert_eq!(seen.source.as_str(), "gateway");
        }
    }

    #[test]
    fn a_strange_method_and_a_strange_status_have_a_common_name() {
        let method = Method::from_bytes(b"BREW").unwrap();
        let seen = Combination::new(&method, 999, AnswerSource::Upstream);
        assert_eq!(seen.method(), "_OTHER");
        assert_eq!(seen.class(), "_OTHER");
        assert_eq!(seen.code(), "999");
        assert_eq!(seen.any_status().code(), "_OTHER");
        assert_eq!(seen.any_status().source.as_str(), "upstream");
    }
}

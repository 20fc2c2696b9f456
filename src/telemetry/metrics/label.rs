//! The words that metrics use as label values: few, fixed, and never a client's.

use http::Method;
use std::borrow::Cow;
use std::fmt::Debug;

/// Label of what matched no route.
pub const NO_ROUTE: &str = "none";

/// Label of what is outside the known values.
pub(super) const OTHER: &str = "_OTHER";

/// A value out of a small fixed set, used as a label; its cell stands at the position `value as usize`.
pub(in crate::telemetry) trait Label: Copy + Debug + 'static {
    /// All of them, in the order of their positions.
    const ALL: &'static [Self];

    /// The label's text.
    fn word(self) -> &'static str;
}

/// Every one of `a` with every one of `b`.
pub(super) fn pairs<A: Label, B: Label>() -> impl Iterator<Item = (A, B)> {
    A::ALL.iter().flat_map(|a| B::ALL.iter().map(|b| (*a, *b)))
}

/// The labels of a sample, in the order of the text: names and values.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels(pub(super) Vec<(&'static str, Cow<'static, str>)>);

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
    pub enum Decision {
        /// Go on.
        Allow = "allow",
        /// Go on after a wait.
        Delay = "delay",
        /// Not now.
        Refuse = "refuse",
        /// Go on, free of charge: it has been charged before.
        Repeat = "repeat",
        /// It does not decide, and would have let the request go on.
        WouldAllow = "would_allow",
        /// It does not decide, and would have held the request back.
        WouldDelay = "would_delay",
        /// It does not decide, and would have refused.
        WouldRefuse = "would_refuse",
        /// It does not decide, and could not be counted.
        Uncounted = "uncounted",
    }

    /// The cost of a request in its response.
    pub enum CostReport {
        /// A number: the charge was settled.
        Number = "settled",
        /// Nothing: the charge stays as it was estimated.
        Nothing = "silent",
        /// Something that cannot be read: the charge stays as it was estimated.
        Unreadable = "unreadable",
        /// Nothing before the client left: the charge is the most that it could have been.
        Left = "left",
    }

    /// Whether a limit decides. In the order of the words, as the samples of one limit come.
    pub enum Mode {
        /// It counts by other numbers than the limit that decides.
        Candidate = "candidate",
        /// It decides.
        Enforce = "enforce",
        /// It only counts.
        Shadow = "shadow",
    }

    /// What a decision comes from.
    pub enum DecidedBy {
        /// The configured store.
        Store = "store",
        /// A refusal of the store that still held.
        Remembered = "remembered",
        /// The store's, when several permits were taken at once.
        Lease = "lease",
        /// The memory of this gateway, while the store is away.
        Local = "local",
        /// No counter: the store is away and the limit lets everything through.
        Open = "open",
        /// No counter: the store is away and the limit lets nothing through.
        Closed = "closed",
    }

    /// What became of permits for several requests.
    pub enum Permits {
        /// They were charged in one call.
        Taken = "taken",
        /// They were not used, and went back.
        Returned = "returned",
    }

    /// What a node of a cluster answered instead of an answer; nothing was run.
    pub enum Redirect {
        /// The slot has another home.
        Moved = "moved",
        /// The slot is on its way to another home.
        Ask = "ask",
    }

    /// What was asked of the store.
    pub enum Operation {
        /// Decide requests.
        Decide = "decide",
        /// Free slots of what is in flight.
        Release = "release",
        /// Give charges back.
        Refund = "refund",
        /// Settle charges by the cost in the response.
        Settle = "settle",
    }

    /// How the store answered.
    pub enum CallOutcome {
        /// As it should.
        Ok = "ok",
        /// Not in time; what was asked may have happened.
        Timeout = "timeout",
        /// With an error.
        Error = "error",
        /// It was known to be away and was not asked.
        Down = "down",
        /// The call was given up before it was sent, or without an answer.
        Lost = "lost",
    }

    /// What a connection was doing when it was closed to make room for a new one.
    pub enum Eviction {
        /// It was between two requests.
        Idle = "idle",
        /// It had sent nothing yet.
        Silent = "silent",
        /// It had sent a part of a head.
        HalfHead = "half_head",
        /// It was between two requests, and its own client wanted another beyond its share.
        Own = "own",
    }

    /// Why a new connection was closed at once.
    pub enum Rejection {
        /// All connections have a request under way.
        Full = "full",
        /// All that its client may have are taken.
        PerClient = "per_client",
        /// The system gives no more descriptors; it waits to be accepted.
        Descriptors = "descriptors",
    }

    /// How an upstream failed a request.
    pub enum Failure {
        /// No connection.
        Connect = "connect",
        /// No answer in time.
        Timeout = "timeout",
        /// The connection ended before the answer did.
        Reset = "reset",
        /// The answer was not HTTP.
        Protocol = "protocol",
        /// There was no server to ask.
        NoServer = "no_server",
    }
}

impl Decision {
    /// Can a limit in this mode say so?
    pub(super) fn is_of(self, mode: Mode) -> bool {
        let of_others = [Self::WouldAllow, Self::WouldDelay, Self::WouldRefuse];
        (mode == Mode::Enforce) != (of_others.contains(&self) || self == Self::Uncounted)
    }
}

/// The methods of the standards; the position is the code, one beyond is [`OTHER`].
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
    /// 0 where it was forgotten.
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

//! The words that metrics use as label values: few, fixed, and never a client's.

/// Label of what matched no route.
pub const NO_ROUTE: &str = "none";

/// Label of what is outside the known values.
pub(super) const OTHER: &str = "_OTHER";

/// The nine methods of the standards, as labels; the position is the code, one beyond is [`OTHER`].
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

/// The source of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerSource {
    /// The gateway: a refusal, an error, no route.
    Gateway,
    /// The upstream.
    Upstream,
}

/// The verdict of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Go on.
    Allow,
    /// Go on after a wait.
    Delay,
    /// Not now.
    Refuse,
    /// Go on, free of charge: it has been charged before.
    Repeat,
    /// It does not decide, and would have let the request go on.
    WouldAllow,
    /// It does not decide, and would have held the request back.
    WouldDelay,
    /// It does not decide, and would have refused.
    WouldRefuse,
    /// It does not decide, and could not be counted.
    Uncounted,
}

impl Decision {
    /// Can a limit in this mode say so?
    pub(super) fn is_of(self, mode: Mode) -> bool {
        let of_others = [Self::WouldAllow, Self::WouldDelay, Self::WouldRefuse];
        (mode == Mode::Enforce) != (of_others.contains(&self) || self == Self::Uncounted)
    }
}

/// The cost of a request in its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostReport {
    /// A number: the charge was settled.
    Number,
    /// Nothing: the charge stays as it was estimated.
    Nothing,
    /// Something that cannot be read: the charge stays as it was estimated.
    Unreadable,
    /// Nothing before the client left: the charge is the most that it could have been.
    Left,
}

/// Whether a limit decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It decides.
    Enforce,
    /// It only counts.
    Shadow,
    /// It counts by other numbers than the limit that decides.
    Candidate,
}

/// What a decision comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedBy {
    /// The configured store.
    Store,
    /// A refusal of the store that still held.
    Remembered,
    /// The store's, when several permits were taken at once.
    Lease,
    /// The memory of this gateway, while the store is away.
    Local,
    /// No counter: the store is away and the limit lets everything through.
    Open,
    /// No counter: the store is away and the limit lets nothing through.
    Closed,
}

/// What became of permits for several requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permits {
    /// They were charged in one call.
    Taken,
    /// They were not used, and went back.
    Returned,
}

/// What a node of a cluster answered instead of an answer; nothing was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    /// The slot has another home.
    Moved,
    /// The slot is on its way to another home.
    Ask,
}

/// What was asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Decide requests.
    Decide,
    /// Free slots of what is in flight.
    Release,
    /// Give charges back.
    Refund,
    /// Settle charges by the cost in the response.
    Settle,
}

/// How the store answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// As it should.
    Ok,
    /// Not in time; what was asked may have happened.
    Timeout,
    /// With an error.
    Error,
    /// It was known to be away and was not asked.
    Down,
    /// The call was given up before it was sent, or without an answer.
    Lost,
}

/// What a connection was doing when it was closed to make room for a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// It was between two requests.
    Idle,
    /// It had sent nothing yet.
    Silent,
    /// It had sent a part of a head.
    HalfHead,
    /// It was between two requests, and its own client wanted another beyond its share.
    Own,
}

/// Why a new connection was closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// All connections have a request under way.
    Full,
    /// All that its client may have are taken.
    PerClient,
    /// The system gives no more descriptors; it waits to be accepted.
    Descriptors,
}

/// How an upstream failed a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection.
    Connect,
    /// No answer in time.
    Timeout,
    /// The connection ended before the answer did.
    Reset,
    /// The answer was not HTTP.
    Protocol,
    /// There was no server to ask.
    NoServer,
}

/// A value out of a small fixed set, used as a label and as a position.
pub(super) trait Label: Copy + 'static {
    /// All of them, in the order of `position`.
    const ALL: &'static [Self];

    /// The label's text.
    fn word(self) -> &'static str;

    /// Where in [`Self::ALL`] this one is.
    fn position(self) -> usize;
}

/// Every one of `a` with every one of `b`.
pub(super) fn pairs<A: Label, B: Label>(
    a: &'static [A],
    b: &'static [B],
) -> impl Iterator<Item = (A, B)> {
    a.iter().flat_map(|a| b.iter().map(|b| (*a, *b)))
}

macro_rules! label {
    ($type:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $type {
            /// The word used in metrics and in the access log.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl Label for $type {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn word(self) -> &'static str {
                self.as_str()
            }

            fn position(self) -> usize {
                self as usize
            }
        }
    };
}

label!(AnswerSource { Gateway = "gateway", Upstream = "upstream" });
label!(Decision {
    Allow = "allow",
    Delay = "delay",
    Refuse = "refuse",
    Repeat = "repeat",
    WouldAllow = "would_allow",
    WouldDelay = "would_delay",
    WouldRefuse = "would_refuse",
    Uncounted = "uncounted",
});
label!(CostReport {
    Number = "settled",
    Nothing = "silent",
    Unreadable = "unreadable",
    Left = "left",
});
label!(Mode {
    Enforce = "enforce",
    Shadow = "shadow",
    Candidate = "candidate",
});
label!(DecidedBy {
    Store = "store",
    Remembered = "remembered",
    Lease = "lease",
    Local = "local",
    Open = "open",
    Closed = "closed",
});
label!(Permits { Taken = "taken", Returned = "returned" });
label!(Redirect { Moved = "moved", Ask = "ask" });
label!(Operation {
    Decide = "decide",
    Release = "release",
    Refund = "refund",
    Settle = "settle",
});
label!(CallOutcome {
    Ok = "ok",
    Timeout = "timeout",
    Error = "error",
    Down = "down",
    Lost = "lost",
});
label!(Eviction {
    Idle = "idle",
    Silent = "silent",
    HalfHead = "half_head",
    Own = "own",
});
label!(Rejection {
    Full = "full",
    PerClient = "per_client",
    Descriptors = "descriptors",
});
label!(Failure {
    Connect = "connect",
    Timeout = "timeout",
    Reset = "reset",
    Protocol = "protocol",
    NoServer = "no_server",
});

/// Method, status and source of a request in one word, compared in one instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Combination(u32);

impl Combination {
    pub(super) fn new(method: &http::Method, status: u16, source: AnswerSource) -> Self {
        Self(method_code(method) << 24 | u32::from(status) << 8 | source as u32)
    }

    /// This combination without its status.
    pub(super) const fn any_status(self) -> Self {
        Self(self.0 & 0xff00_00ff)
    }

    pub(super) fn method(self) -> &'static str {
        METHODS
            .get((self.0 >> 24) as usize)
            .copied()
            .unwrap_or(OTHER)
    }

    /// The status in digits, or [`OTHER`] where it was forgotten.
    pub(super) fn code(self) -> String {
        match self.status() {
            0 => OTHER.to_owned(),
            status => status.to_string(),
        }
    }

    /// The status' first digit: `2xx`.
    pub(super) const fn class(self) -> &'static str {
        class(self.status())
    }

    pub(super) const fn source(self) -> &'static str {
        if self.0 & 0xff == AnswerSource::Upstream as u32 {
            AnswerSource::Upstream.as_str()
        } else {
            AnswerSource::Gateway.as_str()
        }
    }

    const fn status(self) -> u16 {
        (self.0 >> 8 & 0xffff) as u16
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

const fn class(status: u16) -> &'static str {
    CLASSES[class_position(status)]
}

fn method_code(method: &http::Method) -> u32 {
    let code = match *method {
        http::Method::GET => 0,
        http::Method::HEAD => 1,
        http::Method::POST => 2,
        http::Method::PUT => 3,
        http::Method::DELETE => 4,
        http::Method::CONNECT => 5,
        http::Method::OPTIONS => 6,
        http::Method::TRACE => 7,
        http::Method::PATCH => 8,
        _ => METHODS.len(),
    };
    u32::try_from(code).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combination_gives_back_what_went_in() {
        for (code, word) in METHODS.iter().enumerate() {
            let method = http::Method::from_bytes(word.as_bytes()).unwrap();
            assert_eq!(method_code(&method) as usize, code);
            let packed = Combination::new(&method, 429, AnswerSource::Gateway);
            assert_eq!(packed.method(), *word);
            assert_eq!(packed.code(), "429");
            assert_eq!(packed.class(), "4xx");
            assert_eq!(packed.source(), "gateway");
        }
    }

    #[test]
    fn a_strange_method_and_a_strange_status_have_a_common_name() {
        let method = http::Method::from_bytes(b"BREW").unwrap();
        let packed = Combination::new(&method, 999, AnswerSource::Upstream);
        assert_eq!(packed.method(), "_OTHER");
        assert_eq!(packed.class(), "_OTHER");
        assert_eq!(packed.code(), "999");
        assert_eq!(packed.any_status().code(), "_OTHER");
        assert_eq!(packed.any_status().source(), "upstream");
    }
}

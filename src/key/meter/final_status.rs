//! The status by which a request ends, and the statuses that a file names: one, a class, one of gRPC.

use super::grpc_status::GrpcStatus;
use std::fmt;

/// The lowest status of a final answer. Those below it are interim (RFC 9110, section 15.2).
const FIRST: u16 = 200;
/// The highest status of an answer (RFC 9110, section 15).
const LAST: u16 = 599;
/// The highest status of gRPC ("Status codes and their use in gRPC").
const LAST_OF_CALLS: u16 = 16;
/// The class of server errors.
const SERVER_ERROR: u16 = 5;
/// The status by which a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinalStatus {
    /// The status of the answer's head.
    pub http: u16,
    /// The status of the call, if the request is one of gRPC.
    pub grpc: Option<GrpcStatus>,
}

/// A status of the file, or a class of statuses. Smaller ones are more exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusPattern {
    /// `grpc-14`: a status of gRPC, 16 at most.
    Grpc(u16),
    /// `401`: a status from 200 to 599.
    Exact(u16),
    /// `4xx`: the statuses with this first digit, from 2 to 5.
    Class(u16),
}

/// Statuses of the file in a form that is looked up in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatusSet {
    /// A bit for each status from 200 on.
    exact: [u64; 7],
    /// A bit for each first digit.
    classes: u8,
    /// A bit for each status of gRPC.
    grpc: u32,
}

/// The cost of a request by its final status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCosts {
    /// The costs of the named statuses, most exact first.
    costs: Box<[(StatusPattern, u64)]>,
    /// The cost of all other statuses.
    otherwise: u64,
}

impl FinalStatus {
    /// The answer to a request that is no call of gRPC.
    #[must_use]
    pub const fn of(http: u16) -> Self {
        Self { http, grpc: None }
    }

    /// The answer to a call that ends with this status.
    #[must_use]
    pub const fn of_call(status: GrpcStatus) -> Self {
        Self {
            http: 200,
            grpc: Some(status),
        }
    }

    /// Did the server fail, or could none be reached?
    #[must_use]
    pub fn is_server_error(self) -> bool {
        self.grpc.is_some_and(GrpcStatus::is_server_error) || self.http / 100 == SERVER_ERROR
    }

    /// The status of the head as far as the head tells the outcome: a call that failed has 200 in its head, too.
    fn head(self) -> Option<u16> {
        let is_of_failed_call =
            self.http == 200 && self.grpc.is_some_and(|status| status != GrpcStatus::OK);
        (!is_of_failed_call).then_some(self.http)
    }

    /// Is this one of the statuses of `pattern`?
    #[must_use]
    pub fn fits(self, pattern: StatusPattern) -> bool {
        match pattern {
            StatusPattern::Grpc(status) => self.grpc == Some(GrpcStatus(status)),
            StatusPattern::Exact(status) => self.head() == Some(status),
            StatusPattern::Class(SERVER_ERROR) => self.is_server_error(),
            StatusPattern::Class(class) => self.head().is_some_and(|head| head / 100 == class),
        }
    }
}

impl StatusPattern {
    /// All server errors.
    pub const SERVER_ERRORS: Self = Self::Class(SERVER_ERROR);

    /// The pattern that the file writes as `text`: `401`, `4xx`, `grpc-14`.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        if let Some(status) = text.strip_prefix("grpc-") {
            let status = digits(status)?;
            return (status <= LAST_OF_CALLS).then_some(Self::Grpc(status));
        }
        if let Some(class) = text.strip_suffix("xx") {
            let class = digits(class)?;
            return (FIRST / 100..=LAST / 100)
                .contains(&class)
                .then_some(Self::Class(class));
        }
        let status = digits(text)?;
        (FIRST..=LAST)
            .contains(&status)
            .then_some(Self::Exact(status))
    }
}

/// A number in its one spelling.
fn digits(text: &str) -> Option<u16> {
    let number: u16 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

impl fmt::Display for StatusPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grpc(status) => write!(f, "grpc-{status}"),
            Self::Exact(status) => write!(f, "{status}"),
            Self::Class(class) => write!(f, "{class}xx"),
        }
    }
}

impl StatusSet {
    /// Adds a pattern.
    pub fn insert(&mut self, pattern: StatusPattern) {
        match pattern {
            StatusPattern::Grpc(status) => self.grpc |= 1 << status,
            StatusPattern::Class(class) => self.classes |= 1 << class,
            StatusPattern::Exact(status) => {
                let (word, bit) = place(status);
                if let Some(word) = self.exact.get_mut(word) {
                    *word |= bit;
                }
            }
        }
    }

    /// Has the set no pattern?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        let mut bits = self.classes as u64 | self.grpc as u64;
        let mut word = 0;
        while word < self.exact.len() {
            bits |= self.exact[word];
            word += 1;
        }
        bits == 0
    }

    /// Is `status` one of the set's?
    #[must_use]
    pub fn has(&self, status: FinalStatus) -> bool {
        let is_call = |grpc: GrpcStatus| self.grpc >> grpc.0.min(31) & 1 == 1;
        let is_exact = |head: u16| {
            let (word, bit) = place(head);
            head >= FIRST && self.exact.get(word).is_some_and(|word| word & bit != 0)
        };
        let is_class = |class: u16| self.classes >> class.min(7) & 1 == 1;
        let head = status.head();
        status.grpc.is_some_and(is_call)
            || head.is_some_and(|head| is_exact(head) || is_class(head / 100))
            || is_class(SERVER_ERROR) && status.is_server_error()
    }

    /// The patterns, most exact first.
    pub fn patterns(&self) -> impl Iterator<Item = StatusPattern> + '_ {
        let calls = (0..=LAST_OF_CALLS).filter(|status| self.grpc >> status & 1 == 1);
        let exact = (FIRST..=LAST).filter(|status| {
            let (word, bit) = place(*status);
            self.exact[word] & bit != 0
        });
        let classes = (FIRST / 100..=LAST / 100).filter(|class| self.classes >> class & 1 == 1);
        let exact = exact.map(StatusPattern::Exact);
        let calls = calls.map(StatusPattern::Grpc);
        calls.chain(exact).chain(classes.map(StatusPattern::Class))
    }
}

/// The word and the bit of a status.
const fn place(status: u16) -> (usize, u64) {
    let at = status.saturating_sub(FIRST);
    ((at / 64) as usize, 1 << (at % 64))
}

impl StatusCosts {
    /// These costs, and the cost of all other statuses.
    #[must_use]
    pub fn new(mut costs: Vec<(StatusPattern, u64)>, otherwise: u64) -> Self {
        costs.sort_unstable();
        Self {
            costs: costs.into(),
            otherwise,
        }
    }

    /// The cost of a request that ends by `status`: that of the exact status, else of its class, else of all others.
    #[must_use]
    pub fn of(&self, status: FinalStatus) -> u64 {
        let mut costs = self.costs.iter();
        let named = costs.find(|(pattern, _)| status.fits(*pattern));
        named.map_or(self.otherwise, |(_, cost)| *cost)
    }

    /// The greatest cost, which a request is charged until its status is known.
    #[must_use]
    pub fn greatest(&self) -> u64 {
        let costs = self.costs.iter().map(|(_, cost)| *cost);
        costs.fold(self.otherwise, u64::max)
    }
}

/// `1 after 401, 2 after 4xx, else 0`.
impl fmt::Display for StatusCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (pattern, cost) in &self.costs {
            write!(f, "{cost} after {pattern}, ")?;
        }
        write!(f, "else {}", self.otherwise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(grpc: u16) -> FinalStatus {
        FinalStatus::of_call(GrpcStatus(grpc))
    }

    #[test]
    fn a_pattern_has_one_spelling() {
        for text in ["200", "401", "599", "2xx", "5xx", "grpc-0", "grpc-16"] {
            assert_eq!(StatusPattern::of(text).unwrap().to_string(), text);
        }
        for text in [
            "", "199", "600", "1xx", "6xx", "4XX", "40x", "0401", "+401", "grpc-17", "grpc-",
            "grpc-014", "grpc14", "xx", "else", "70000",
        ] {
            assert_eq!(StatusPattern::of(text), None, "{text}");
        }
    }

    #[test]
    fn the_exact_status_counts_before_its_class_and_its_class_before_all_others() {
        let costs: Vec<_> = [
            ("4xx", 2),
            ("401", 1),
            ("5xx", 7),
            ("grpc-16", 3),
            ("2xx", 9),
        ]
        .map(|(text, cost)| (StatusPattern::of(text).unwrap(), cost))
        .into();
        let costs = StatusCosts::new(costs, 4);
        for (status, cost) in [
            (FinalStatus::of(401), 1),
            (FinalStatus::of(403), 2),
            (FinalStatus::of(200), 9),
            (FinalStatus::of(302), 4),
            (FinalStatus::of(502), 7),
            (call(16), 3),
            (call(14), 7),
            (call(0), 9),
            // A call that the client got wrong is neither a success nor a 4xx.
            (call(3), 4),
        ] {
            assert_eq!(costs.of(status), cost, "{status:?}");
        }
        assert_eq!(costs.greatest(), 9);
    }

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let mut set = StatusSet::default();
        assert!(set.is_empty());
        for text in ["599", "200", "4xx", "grpc-16"] {
            set.insert(StatusPattern::of(text).unwrap());
        }
        let all: Vec<_> = set.patterns().map(|one| one.to_string()).collect();
        assert_eq!(all, ["grpc-16", "200", "599", "4xx"]);
        for (status, has) in [
            (FinalStatus::of(200), true),
            (FinalStatus::of(599), true),
            (FinalStatus::of(598), false),
            (FinalStatus::of(418), true),
            (call(16), true),
            (call(0), true),
            (call(5), false),
        ] {
            assert_eq!(set.has(status), has, "{status:?}");
        }
    }
}

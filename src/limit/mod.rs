//! What a limit is: a named rule, by whom to count, how much, and what happens beyond.
//!
//! Every algorithm is a pure function of (state, now, cost) in integers. A store keeps the states; it decides all limits
//! of a request at once, and a request that one of them refuses is charged nowhere.

pub mod bucket;
pub mod fixed_window;
pub mod leaky_bucket;
pub mod rate;
pub mod token_bucket;
pub mod verdict;
pub mod wire;

use crate::clock::Timestamp;
use crate::key::KeyTemplate;
use bucket::BucketState;
use fixed_window::{FixedWindow, WindowState};
use leaky_bucket::LeakyBucket;
use rate::{Cost, Rate};
use std::fmt;
use std::sync::Arc;
use token_bucket::TokenBucket;
use verdict::{Measured, Verdict};

/// A limit as the file defines it, compiled.
#[derive(Debug)]
pub struct Limit {
    /// Its name: its identity across reloads, and what the wire shows.
    pub name: Arc<str>,
    /// Name and kind as a number: where its counters are filed in memory.
    pub id: LimitId,
    /// By whom it counts.
    pub by: KeyTemplate,
    /// N and P as written.
    pub rate: Rate,
    /// The algorithm with its numbers.
    pub rule: Rule,
    /// What one request takes.
    pub cost: Cost,
    /// The scripts' parameters at that cost.
    pub block: wire::Block,
}

impl Limit {
    /// Puts a limit together; everything that follows from the numbers is computed here, once.
    #[must_use]
    pub fn new(name: Arc<str>, by: KeyTemplate, rate: Rate, rule: Rule, cost: Cost) -> Self {
        let id = LimitId::of(&name, rule.kind());
        Self {
            name,
            id,
            by,
            rate,
            rule,
            cost,
            block: wire::block(&rule, cost),
        }
    }
}

/// Identity of a limit's counters: a hash of its name and [`Kind`], the same in every process and generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitId(pub u64);

impl LimitId {
    /// The identity of the counters of limit `name` under `kind`.
    #[must_use]
    pub fn of(name: &str, kind: Kind) -> Self {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = foldhash::quality::FixedState::with_seed(0x7011_6a7e).build_hasher();
        hasher.write(name.as_bytes());
        hasher.write_u8(0);
        hasher.write(kind.to_string().as_bytes());
        Self(hasher.finish())
    }
}

/// What a counter's meaning depends on beside the limit's name. Another kind starts afresh.
///
/// Written into every key: `tb`, `lb`, and `fw` with the window in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Token bucket: the instant at which it is full again means the same under any numbers.
    TokenBucket,
    /// Leaky bucket: likewise.
    LeakyBucket,
    /// Fixed window: a count means something only in its window.
    FixedWindow {
        /// Length in microseconds.
        window: u64,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenBucket => f.write_str("tb"),
            Self::LeakyBucket => f.write_str("lb"),
            Self::FixedWindow { window } => write!(f, "fw{window}"),
        }
    }
}

/// A limit's algorithm and numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Refilled continuously.
    TokenBucket(TokenBucket),
    /// Drained evenly; delays.
    LeakyBucket(LeakyBucket),
    /// Counts in windows.
    FixedWindow(FixedWindow),
}

/// The state of one counter, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Of either bucket.
    Bucket(BucketState),
    /// Of a window.
    Window(WindowState),
}

/// A state to store, and the instant from which it equals no state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// What to store.
    pub state: State,
    /// Until when it matters.
    pub ends: Timestamp,
}

/// What a refund presents: the state right after the charge it takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// State after the charge.
    pub state: State,
    /// What was charged.
    pub cost: Cost,
}

/// What follows from a refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refunded {
    /// Nothing may go back.
    Nothing,
    /// Something did, and this is what remains.
    Left(Change),
    /// Something did, and nothing remains.
    Gone,
}

impl Rule {
    /// Which counters the rule can go on with.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::TokenBucket(_) => Kind::TokenBucket,
            Self::LeakyBucket(_) => Kind::LeakyBucket,
            Self::FixedWindow(rule) => Kind::FixedWindow {
                window: rule.window,
            },
        }
    }

    /// Does admitting mean a place in a queue, which a leaving client gives back?
    #[must_use]
    pub fn queues(&self) -> bool {
        matches!(self, Self::LeakyBucket(rule) if rule.queue > 0)
    }

    /// Would `cost` be admitted at `now`? The change is to be stored when every limit of the request admits; a change
    /// beside a refusal mends an impossible state and is stored at once.
    #[must_use]
    pub fn check(
        &self,
        state: Option<State>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measured, Option<Change>) {
        match self {
            Self::TokenBucket(rule) => rule.check(state.and_then(State::bucket), now, cost),
            Self::LeakyBucket(rule) => rule.check(state.and_then(State::bucket), now, cost),
            Self::FixedWindow(rule) => rule.check(state.and_then(State::window), now, cost),
        }
    }

    /// Gives a store's measurement its meaning. `charged` is false when another limit of the request refused.
    #[must_use]
    pub fn verdict(&self, measured: Measured, cost: Cost, charged: bool) -> Verdict {
        match self {
            Self::TokenBucket(rule) => rule.verdict(measured, cost, charged),
            Self::LeakyBucket(rule) => rule.verdict(measured, cost, charged),
            Self::FixedWindow(rule) => rule.verdict(measured, cost, charged),
        }
    }

    /// The ticket of an admitted, charged request.
    #[must_use]
    pub fn ticket(&self, at: Timestamp, measured: Measured, cost: Cost) -> Ticket {
        let state = match self {
            Self::TokenBucket(TokenBucket { interval, .. })
            | Self::LeakyBucket(LeakyBucket { interval, .. }) => {
                State::Bucket(BucketState::at_level(at, measured.span, *interval))
            }
            Self::FixedWindow(rule) => State::Window(WindowState {
                start: at
                    .plus(measured.span.whole)
                    .micros()
                    .saturating_sub(rule.window),
                count: measured.span.part,
            }),
        };
        Ticket { state, cost }
    }

    /// Gives a ticket's charge back, as far as nobody counts on it.
    #[must_use]
    pub fn refund(&self, state: Option<State>, now: Timestamp, ticket: Ticket) -> Refunded {
        match (self, state, ticket.state) {
            (
                Self::TokenBucket(TokenBucket { interval, .. })
                | Self::LeakyBucket(LeakyBucket { interval, .. }),
                Some(State::Bucket(state)),
                State::Bucket(was),
            ) => {
                let charge = interval.times(u64::from(ticket.cost.units()));
                match bucket::refund(state, was, charge, now, *interval, self.queues()) {
                    None => Refunded::Nothing,
                    Some(left) if left == rate::Span::default() => Refunded::Gone,
                    Some(left) => {
                        let state = BucketState::at_level(now, left, *interval);
                        Refunded::Left(Change {
                            state: State::Bucket(state),
                            ends: state.ends(),
                        })
                    }
                }
            }
            (Self::FixedWindow(rule), Some(State::Window(state)), State::Window(was)) => {
                rule.refund(state, was, ticket.cost, now)
            }
            _ => Refunded::Nothing,
        }
    }
}

impl State {
    fn bucket(self) -> Option<BucketState> {
        match self {
            Self::Bucket(state) => Some(state),
            Self::Window(_) => None,
        }
    }

    fn window(self) -> Option<WindowState> {
        match self {
            Self::Window(state) => Some(state),
            Self::Bucket(_) => None,
        }
    }
}

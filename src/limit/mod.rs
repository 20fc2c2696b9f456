//! A limit is a named rule: the key to count by, the quota, and the treatment of requests beyond the quota.
//!
//! Every algorithm is a pure function of (state, now, cost) in integers. A store keeps the states. It decides all
//! limits of a request at once, and a request that one limit refuses is charged by none.
//!
//! In: (state, now, cost). Out: a verdict and the next state. Integers only: no requests, no async, no Redis.
//!
//! ```text
//! quota                  what a limit allows, and when that is there again
//! rate                   N per P, without a fraction lost
//! check                  one limit's decision about one request
//! check/blocking         a refused key is refused for a time
//! bucket                 the arithmetic of both buckets: one stored instant
//! bucket/numbers         the numbers that a bucket's state was written with
//! token_bucket           a token bucket
//! leaky_bucket           a leaky bucket: a queue that lets go at N per P
//! fixed_window           windows from the first request
//! clock_window           windows by the clock
//! calendar               windows of days and months in a time zone
//! sliding_window         the last P, in parts
//! sliding_log            the last P, exactly
//! concurrency            requests in flight
//! dedupe                 a repeat of a charge goes free
//! verdict                admit, delay or refuse
//! state                  states, changes of states, tickets of refunds
//! history                how far a bucket has drained since a charge
//! settlement             a cost that is known afterwards
//! refund                 charges that come back
//! refund_condition       the events after which they do
//! lease                  the rules that make leases exact
//! share                  what one of several gateways counts alone: a bucket's size gives way, not its rate
//! tier                   other numbers for a group, on counters of its own
//! tier/customer_numbers  other numbers for single customers
//! kind                   a counter's name beside its key
//! mode                   a limit decides, or only counts
//! on_down                what a limit does while the store is away
//! policy                 key, cost and mode, and the view of operators
//! response_policy        the view of clients
//! wire                   parameters as bytes for the scripts, and the forms of stored states
//! ```

pub mod bucket;
pub mod calendar;
mod check;
pub mod clock_window;
pub mod concurrency;
pub mod dedupe;
pub mod fixed_window;
pub mod history;
mod kind;
pub mod leaky_bucket;
mod lease;
mod mode;
mod on_down;
mod policy;
mod quota;
pub mod rate;
mod refund;
mod refund_condition;
mod response_policy;
mod settlement;
mod share;
pub mod sliding_log;
pub mod sliding_window;
mod state;
pub mod tier;
pub mod token_bucket;
pub mod verdict;
pub mod wire;

pub use bucket::{LONGEST_OF_LARGE, Numbers};
pub use check::blocking::{BlockCheck, BlockRule};
pub use kind::{LimitId, RuleKind, Scope, Unit};
pub use lease::{LeaseSetting, LeaseTerms};
pub use mode::Mode;
pub use on_down::OnDown;
pub use policy::Policy;
pub use refund_condition::RefundCondition;
pub use response_policy::{Preflights, ResponsePolicy};
pub use state::{
    BlockState, BucketState, Change, FOREVER, History, HistoryMark, HistoryState, LogState,
    LogUpdate, Mark, PartsState, RecordMark, RecordState, Refund, SlotUpdate, SlotsState, State,
    Ticket, Update, WindowState,
};
pub use verdict::BlockPhase;

use crate::clock::Timestamp;
use bucket::Bucket;
use clock_window::{Anchor, ClockWindow};
use concurrency::Concurrency;
use dedupe::Dedupe;
use fixed_window::FixedWindow;
use leaky_bucket::LeakyBucket;
use rate::{Cost, Rate};
use sliding_log::SlidingLog;
use sliding_window::SlidingWindow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use token_bucket::TokenBucket;
use verdict::{Measurement, Verdict};

/// A compiled limit: a counter that stores keep, and the counter's policy. Rooms that match, answer or report requests
/// read a limit as its policy; the fields here are for stores.
#[derive(Debug)]
pub struct Limit {
    policy: Arc<Policy>,
    /// N and P. Limits with the numbers of single customers share a policy, and differ here.
    pub rate: Rate,
    /// The name in logs and reports.
    shown: Arc<str>,
    /// The name that clients know.
    client_name: Arc<str>,
    /// The properties that the counters depend on.
    pub kind: RuleKind,
    /// Name and kind as a number, which names the counters in memory.
    pub id: LimitId,
    /// The algorithm with its numbers.
    pub rule: Rule,
    /// The units that the limit holds ([`Rule::quota`]), for its clients.
    pub quota: u64,
    /// The time in which the whole quota returns, in microseconds: the window, or the time in which an empty bucket
    /// fills.
    pub refill: u64,
    /// Is the remainder granted if not all units can be?
    pub partial: bool,
    /// The rule by which a repeated charge is recognised.
    pub dedupe: Option<Dedupe>,
    /// The rule by which a refusal blocks its key. A limit that does not decide blocks nothing.
    pub blocking: Option<BlockRule>,
    /// Does a state hold the history for refunds and settlements (`history`)?
    history: bool,
    /// The scripts' parameters at the policy's cost, if they do not change with time.
    pub block: wire::Block,
    variants: Variants,
}

/// The subject of the counter's charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChargeKind {
    /// Requests, as the policy describes.
    Request,
    /// Requests that other limits may refuse after this limit has charged them.
    Revocable,
    /// Costs of requests beyond the estimate.
    Overdraft,
    /// Permits for requests to come.
    Permits,
}

/// The counter with its charges for another subject. Each variant is created when first needed.
#[derive(Debug, Default)]
struct Variants {
    revocable: OnceLock<Option<Arc<Limit>>>,
    overdraft: OnceLock<Option<Arc<Limit>>>,
    lease: OnceLock<Option<LeaseTerms>>,
    of_any_number: OnceLock<Option<Arc<Limit>>>,
}

impl Deref for Limit {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.policy
    }
}

impl Limit {
    /// The limit of `policy` with `rule`. All derived fields are computed here, once.
    #[must_use]
    pub fn new(policy: Policy, rule: Rule) -> Self {
        let rate = policy.rate;
        Self::of_policy(Arc::new(policy), rate, rule)
    }

    fn of_policy(policy: Arc<Policy>, rate: Rate, rule: Rule) -> Self {
        let kind = policy.kind(&rule, rate);
        let rule = rule.with_room_for_debt(&policy, rate);
        Self::charged_for(ChargeKind::Request, policy, rate, kind, rule)
    }

    /// The limit with other numbers. `window` is the rate as written, if the limit is one rate of a list.
    #[must_use]
    pub fn with_numbers(&self, rate: Rate, rule: Rule, window: Option<Arc<str>>) -> Self {
        let policy = match window {
            None => Arc::clone(&self.policy),
            Some(_) => Arc::new(Policy {
                rate,
                window,
                ..Policy::clone(&self.policy)
            }),
        };
        Self::of_policy(policy, rate, rule)
    }

    /// The limit with a change of its policy.
    #[must_use]
    pub fn edited(&self, edit: impl FnOnce(&mut Policy)) -> Self {
        let mut policy = Policy {
            rate: self.rate,
            ..Policy::clone(&self.policy)
        };
        edit(&mut policy);
        Self::new(policy, self.rule.clone())
    }

    /// The counter of this kind, charged by `rule` for another subject.
    fn variant(&self, charge: ChargeKind, rule: Rule) -> Arc<Self> {
        let policy = Arc::clone(&self.policy);
        Arc::new(Self::charged_for(
            charge, policy, self.rate, self.kind, rule,
        ))
    }

    fn charged_for(
        charge: ChargeKind,
        policy: Arc<Policy>,
        rate: Rate,
        kind: RuleKind,
        rule: Rule,
    ) -> Self {
        use ChargeKind::{Overdraft, Permits, Request, Revocable};
        let mut limit = Self {
            shown: policy.shown(),
            client_name: policy.client_name(),
            kind,
            id: policy.id(kind),
            partial: policy.partial || matches!(charge, Overdraft | Permits),
            dedupe: match charge {
                Overdraft => Some(settlement::once()),
                _ => policy.dedupe.clone(),
            },
            blocking: match charge {
                Overdraft | Permits => None,
                Request | Revocable => policy.blocking.filter(|_| policy.mode.decides()),
            },
            history: rule.open_bucket().is_some() && (policy.may_correct() || charge == Revocable),
            quota: rule.quota(),
            refill: rule.refill(rate),
            block: wire::Block::new(),
            variants: Variants::default(),
            rate,
            policy,
            rule,
        };
        limit.block = limit.block_of(limit.cost, Timestamp::default());
        limit
    }

    /// The name in logs and reports: `per-key`, or `per-key:candidate` for a candidate.
    #[must_use]
    pub fn shown(&self) -> &Arc<str> {
        &self.shown
    }

    /// The name for clients. Several rates of one limit have different names.
    #[must_use]
    pub fn policy_name(&self) -> &Arc<str> {
        &self.client_name
    }

    /// Does an admitted request wait in a queue?
    #[must_use]
    pub fn holds_back(&self) -> bool {
        self.mode.decides() && self.rule.queues()
    }

    /// The number of calendar months in the window, if it has any.
    #[must_use]
    pub fn months(&self) -> Option<u32> {
        match self.kind {
            RuleKind::Calendar {
                unit: Unit::Month,
                many,
            } => Some(many),
            _ => None,
        }
    }
}

/// A limit's algorithm and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Refilled continuously.
    TokenBucket(TokenBucket),
    /// Drained evenly; delays.
    LeakyBucket(LeakyBucket),
    /// Counts in windows that start at a request.
    FixedWindow(FixedWindow),
    /// Counts in windows that start at times of the clock or the calendar.
    ClockWindow(ClockWindow),
    /// Counts in the parts of a window that moves with time.
    SlidingWindow(SlidingWindow),
    /// Remembers the instant of every grant.
    SlidingLog(SlidingLog),
    /// Counts requests in flight.
    Concurrency(Concurrency),
}

impl Rule {
    /// The kind of counters that the rule can use.
    #[must_use]
    pub fn kind(&self) -> RuleKind {
        match self {
            Self::TokenBucket(_) => RuleKind::TokenBucket,
            Self::LeakyBucket(_) => RuleKind::LeakyBucket,
            Self::FixedWindow(rule) => RuleKind::FixedWindow {
                window: rule.window,
            },
            Self::ClockWindow(rule) => match &rule.anchor {
                Anchor::Clock { window, .. } => RuleKind::FixedWindow { window: *window },
                Anchor::Calendar(calendar) => RuleKind::Calendar {
                    unit: calendar.unit,
                    many: calendar.many,
                },
            },
            Self::SlidingWindow(rule) => RuleKind::SlidingWindow {
                window: rule.window(),
            },
            Self::SlidingLog(rule) => RuleKind::SlidingLog {
                window: rule.window,
            },
            Self::Concurrency(_) => RuleKind::Concurrency,
        }
    }

    /// The bucket, if the algorithm has one.
    #[must_use]
    pub fn bucket(&self) -> Option<&Bucket> {
        match self {
            Self::TokenBucket(rule) => Some(&rule.bucket),
            Self::LeakyBucket(rule) => Some(&rule.bucket),
            _ => None,
        }
    }

    fn bucket_mut(&mut self) -> Option<&mut Bucket> {
        match self {
            Self::TokenBucket(rule) => Some(&mut rule.bucket),
            Self::LeakyBucket(rule) => Some(&mut rule.bucket),
            _ => None,
        }
    }

    /// The bucket, if no request waits in it for a turn.
    #[must_use]
    pub fn open_bucket(&self) -> Option<&Bucket> {
        self.bucket().filter(|_| !self.queues())
    }

    /// Does an admitted request have a place in a queue, which is given back when its client leaves?
    #[must_use]
    pub fn queues(&self) -> bool {
        self.queue().is_some()
    }

    /// The most units that one request could ever take: the units of an unused limit.
    #[must_use]
    pub fn most(&self) -> u64 {
        match self {
            Self::TokenBucket(rule) => rule.burst.get(),
            Self::LeakyBucket(rule) => rule.burst.get() + u64::from(rule.queue),
            Self::FixedWindow(FixedWindow { limit, .. })
            | Self::ClockWindow(ClockWindow { limit, .. })
            | Self::SlidingWindow(SlidingWindow { limit, .. })
            | Self::SlidingLog(SlidingLog { limit, .. }) => *limit,
            Self::Concurrency(rule) => u64::from(rule.max.get()),
        }
    }

    /// Do its windows begin at times of the clock or the calendar? They follow the wall clock and all its steps.
    #[must_use]
    pub fn follows_wall_clock(&self) -> bool {
        matches!(self, Self::ClockWindow(_))
    }

    /// Do the scripts' parameters change with time?
    #[must_use]
    pub fn follows_a_calendar(&self) -> bool {
        matches!(self, Self::ClockWindow(rule) if matches!(rule.anchor, Anchor::Calendar(_)))
    }

    /// Would `cost` be admitted at `now`? The change is to be stored when every limit of the request admits. A change
    /// that accompanies a refusal repairs an impossible state and is stored at once.
    #[inline]
    #[must_use]
    pub fn check(
        &self,
        state: Option<&State>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measurement, Option<Change>) {
        match self {
            Self::TokenBucket(TokenBucket { bucket, .. })
            | Self::LeakyBucket(LeakyBucket { bucket, .. }) => {
                bucket.check(state.and_then(State::bucket), now, cost)
            }
            Self::FixedWindow(rule) => {
                let window = rule.counted(state.and_then(State::window), now);
                window.check(rule.limit, now, cost)
            }
            Self::ClockWindow(rule) => {
                let window = rule.counted(state.and_then(State::window), now);
                window.check(rule.limit, now, cost)
            }
            Self::SlidingWindow(rule) => rule.check(state.and_then(State::parts), now, cost),
            Self::SlidingLog(rule) => rule.check(state.and_then(State::log), now, cost),
            Self::Concurrency(rule) => rule.check(state.and_then(State::slots), now, cost),
        }
    }

    /// Interprets a store's measurement, taken at `at`. `charged` is false when another limit of the request refused.
    #[must_use]
    pub fn verdict(
        &self,
        measured: Measurement,
        at: Timestamp,
        cost: Cost,
        charged: bool,
    ) -> Verdict {
        match self {
            Self::TokenBucket(rule) => rule.bucket.verdict(measured, cost, charged, None),
            Self::LeakyBucket(rule) => {
                let free = Some(rule.free);
                rule.bucket.verdict(measured, cost, charged, free)
            }
            Self::FixedWindow(FixedWindow { limit, .. })
            | Self::ClockWindow(ClockWindow { limit, .. }) => {
                fixed_window::verdict(*limit, measured, cost, charged)
            }
            Self::SlidingWindow(rule) => rule.verdict(measured, at, cost, charged),
            Self::SlidingLog(rule) => rule.verdict(measured, cost, charged),
            Self::Concurrency(rule) => rule.verdict(measured, cost, charged),
        }
    }

    /// The ticket of an admitted, charged request.
    #[must_use]
    pub fn ticket(&self, at: Timestamp, measured: Measurement, cost: Cost) -> Ticket {
        let mark = match self {
            Self::TokenBucket(TokenBucket { bucket, .. })
            | Self::LeakyBucket(LeakyBucket { bucket, .. }) => {
                Mark::Bucket(bucket.state_at(at, measured.span))
            }
            Self::FixedWindow(rule) => {
                let end = at.plus(measured.span.whole).micros();
                let start = end.saturating_sub(rule.window);
                Mark::Window { start, end }
            }
            Self::ClockWindow(rule) => {
                let (start, end) = rule.window_of(at, measured.span.whole);
                Mark::Window { start, end }
            }
            Self::SlidingWindow(rule) => {
                let (start, end) = rule.part_at(at);
                Mark::Window { start, end }
            }
            Self::SlidingLog(_) => Mark::Instant(at.micros()),
            Self::Concurrency(_) => Mark::Slot(measured.span.whole),
        };
        Ticket {
            mark,
            cost,
            record: None,
            overflow: measured.overflow,
        }
    }

    /// The rule, if an admitted request takes slots, which are renewed while it lives and freed (refunded) when it ends.
    #[must_use]
    pub fn concurrency(&self) -> Option<&Concurrency> {
        match self {
            Self::Concurrency(rule) => Some(rule),
            _ => None,
        }
    }
}

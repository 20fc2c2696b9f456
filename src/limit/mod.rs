//! What a limit is: a named rule, by whom to count, how much, and what happens beyond.
//!
//! Every algorithm is a pure function of (state, now, cost) in integers. A store keeps the states; it decides all limits
//! of a request at once, and a request that one of them refuses is charged nowhere.

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

pub use kind::{LimitId, RuleKind, Scope, Unit};
pub use lease::{LeaseSetting, LeaseTerms};
pub use mode::Mode;
pub use on_down::OnDown;
pub use refund_condition::RefundCondition;
pub use response_policy::{Preflights, ResponsePolicy};
pub use state::{
    BucketState, Change, FOREVER, History, HistoryMark, HistoryState, LogState, LogUpdate, Mark,
    PartsState, RecordMark, RecordState, Refund, SlotUpdate, SlotsState, State, Ticket, Update,
    WindowState,
};

use crate::clock::Timestamp;
use crate::key::{Exemption, KeyTemplate, Meter, Price};
use clock_window::{Anchor, ClockWindow};
use concurrency::Concurrency;
use dedupe::Dedupe;
use fixed_window::FixedWindow;
use leaky_bucket::LeakyBucket;
use rate::{Cost, Rate};
use sliding_log::SlidingLog;
use sliding_window::SlidingWindow;
use std::sync::{Arc, OnceLock};
use tier::Tier;
use token_bucket::TokenBucket;
use verdict::{Measurement, Verdict};

/// A limit as the file defines it, compiled.
#[derive(Debug)]
pub struct Limit {
    /// Its name: its identity across reloads, and what the wire shows.
    pub name: Arc<str>,
    /// Its name in logs and reports: a candidate is another than its limit.
    shown: Arc<str>,
    /// The name that clients know: it tells several rates of one limit apart.
    policy: Arc<str>,
    /// Which of the rates of a list this is, as written: `100/min`. Limits of one list share their name, differ in
    /// their counters and stand on the same requests.
    pub window: Option<Arc<str>>,
    /// What its counters depend on.
    pub kind: RuleKind,
    /// Which gateways count together.
    pub scope: Scope,
    /// Whether it decides.
    pub mode: Mode,
    /// Name and kind as a number: where its counters are filed in memory.
    pub id: LimitId,
    /// By which key it counts.
    pub by: KeyTemplate,
    /// N and P as written.
    pub rate: Rate,
    /// The algorithm with its numbers.
    pub rule: Rule,
    /// What one request takes, unless it says otherwise.
    pub cost: Cost,
    /// Where a request says what it takes, if it may.
    pub price: Option<Price>,
    /// Where a response says what its request has cost, if it may.
    pub meter: Option<Meter>,
    /// What charges its counters beyond that; made when it is first asked for.
    overdraft: OnceLock<Option<Arc<Limit>>>,
    /// Does it grant what is left when it cannot grant all?
    pub partial: bool,
    /// The same as it is asked beside limits of other slots; made when it is first asked for.
    with_history: OnceLock<Option<Arc<Limit>>>,
    /// Does its counters' state say what must be known for charges to come back or to be settled (`history`)?
    history: bool,
    /// Does it charge a repeated request once?
    pub dedupe: Option<Dedupe>,
    /// Which requests it does not hold for, if any.
    pub exempt: Option<Arc<Exemption>>,
    /// When a charge goes back.
    pub refund_on: RefundCondition,
    /// What it does while the store is away, if not what the file says for all.
    pub on_down: Option<OnDown>,
    /// Whether gateways may take several permits at once.
    pub leasing: LeaseSetting,
    /// On which terms; made when they are first asked for.
    terms: lease::Made,
    /// What it says to clients.
    pub answers: ResponsePolicy,
    /// The same limit with the numbers of groups, in the order of the file's groups: the first that a request is in holds.
    pub tiers: Vec<Tier>,
    /// The group whose numbers these are, if it is such a one.
    pub group: Option<Arc<str>>,
    /// Where it stands in the file: its first byte. Of limits that are as tight as each other the first is named.
    pub place: usize,
    /// Under which tag of a cluster its counters live together with those of others, if not by their own keys.
    pub with: Option<Arc<str>>,
    /// The scripts' parameters at that cost, where they are the same at all times.
    pub block: wire::Block,
}

impl Limit {
    /// Puts a limit together; everything that follows from the numbers is computed here, once.
    #[must_use]
    pub fn new(name: Arc<str>, by: KeyTemplate, rate: Rate, rule: Rule, cost: Cost) -> Self {
        let kind = rule.kind();
        let id = LimitId::of(&name, kind, Scope::Cluster);
        let block = wire::block(&rule, cost);
        Self {
            shown: Arc::clone(&name),
            policy: Arc::clone(&name),
            name,
            window: None,
            kind,
            scope: Scope::Cluster,
            mode: Mode::Enforce,
            id,
            by,
            rate,
            rule,
            cost,
            price: None,
            meter: None,
            overdraft: OnceLock::new(),
            with_history: OnceLock::new(),
            partial: false,
            history: false,
            dedupe: None,
            exempt: None,
            refund_on: RefundCondition::default(),
            on_down: None,
            leasing: LeaseSetting::default(),
            terms: lease::Made::default(),
            answers: ResponsePolicy::default(),
            tiers: Vec::new(),
            group: None,
            place: 0,
            with: None,
            block,
        }
    }

    /// The same with a cost that requests say.
    #[must_use]
    pub fn priced(self, price: Price) -> Self {
        Self {
            price: Some(price),
            ..self
        }
    }

    /// The same, counted by all gateways together or by each.
    #[must_use]
    pub fn counted_by(self, scope: Scope) -> Self {
        Self { scope, ..self }.identified()
    }

    /// The same, with its counters under a tag that others may share.
    #[must_use]
    pub fn counted_with(self, tag: Arc<str>) -> Self {
        let with = Some(tag);
        Self { with, ..self }.identified()
    }

    /// The same, deciding or only counted beside those that do.
    #[must_use]
    pub fn in_mode(self, mode: Mode) -> Self {
        let shown = match mode {
            Mode::Candidate => format!("{}:candidate", self.name).into(),
            Mode::Enforce | Mode::Shadow => Arc::clone(&self.name),
        };
        Self {
            mode,
            shown,
            ..self
        }
        .identified()
    }

    /// Its name in logs and reports: `per-key`, or `per-key:candidate` where that is meant.
    #[must_use]
    pub fn shown(&self) -> &Arc<str> {
        &self.shown
    }

    /// Gives it the counters that are its own: a shadow's are those of the limit that it is or will be.
    pub(super) fn identified(mut self) -> Self {
        let id = LimitId::of(&self.name, self.kind, self.scope);
        let id = match &self.with {
            Some(tag) => id.of_tag(tag),
            None => id,
        };
        let id = match &self.group {
            Some(group) => id.of_group(group),
            None => id,
        };
        self.id = match self.mode {
            Mode::Candidate => id.of_candidate(),
            Mode::Enforce | Mode::Shadow => id,
        };
        self
    }

    /// Is it another rate of the same limit, charged with it or not at all?
    #[must_use]
    pub fn is_rate_beside(&self, other: &Self) -> bool {
        self.window.is_some() && self.name == other.name && self.mode == other.mode
    }

    /// May its charge come back, or be settled?
    #[must_use]
    pub fn may_correct(&self) -> bool {
        self.refund_on.ever() || self.meter.is_some()
    }

    /// Does admitting mean that the request waits in a queue?
    #[must_use]
    pub fn holds_back(&self) -> bool {
        self.mode.decides() && self.rule.queues()
    }

    /// The same, charging a repeated request once.
    #[must_use]
    pub fn charging_once(self, dedupe: Dedupe) -> Self {
        Self {
            dedupe: Some(dedupe),
            ..self
        }
    }

    /// How many months of the calendar its window has, if any.
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
    /// Counts in windows that start where the clock or the calendar says.
    ClockWindow(ClockWindow),
    /// Counts in the parts of a window that moves on with time.
    SlidingWindow(SlidingWindow),
    /// Remembers when each unit was granted.
    SlidingLog(SlidingLog),
    /// Counts what is in flight.
    Concurrency(Concurrency),
}

impl Rule {
    /// Which counters the rule can go on with.
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

    /// Does admitting mean a place in a queue, which a leaving client gives back?
    #[must_use]
    pub fn queues(&self) -> bool {
        matches!(self, Self::LeakyBucket(rule) if rule.queue > 0)
    }

    /// The most units that one request could ever take: what the limit holds when nothing has been taken.
    #[must_use]
    pub fn most(&self) -> u64 {
        match self {
            Self::TokenBucket(rule) => u64::from(rule.burst.get()),
            Self::LeakyBucket(rule) => u64::from(rule.burst.get()) + u64::from(rule.queue),
            Self::FixedWindow(FixedWindow { limit, .. })
            | Self::ClockWindow(ClockWindow { limit, .. })
            | Self::SlidingWindow(SlidingWindow { limit, .. })
            | Self::SlidingLog(SlidingLog { limit, .. }) => u64::from(*limit),
            Self::Concurrency(rule) => u64::from(rule.max.get()),
        }
    }

    /// Do the scripts' parameters change with time?
    #[must_use]
    pub fn follows_a_calendar(&self) -> bool {
        matches!(self, Self::ClockWindow(rule) if matches!(rule.anchor, Anchor::Calendar(_)))
    }

    /// Would `cost` be admitted at `now`? The change is to be stored when every limit of the request admits; a change
    /// beside a refusal mends an impossible state and is stored at once.
    #[inline]
    #[must_use]
    pub fn check(
        &self,
        state: Option<&State>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measurement, Option<Change>) {
        match self {
            Self::TokenBucket(rule) => rule.check(state.and_then(State::bucket), now, cost),
            Self::LeakyBucket(rule) => rule.check(state.and_then(State::bucket), now, cost),
            Self::FixedWindow(rule) => rule.check(state.and_then(State::window), now, cost),
            Self::ClockWindow(rule) => rule.check(state.and_then(State::window), now, cost),
            Self::SlidingWindow(rule) => rule.check(state.and_then(State::parts), now, cost),
            Self::SlidingLog(rule) => rule.check(state.and_then(State::log), now, cost),
            Self::Concurrency(rule) => rule.check(state.and_then(State::slots), now, cost),
        }
    }

    /// Gives a store's measurement, taken at `at`, its meaning. `charged` is false when another limit of the request
    /// refused.
    #[must_use]
    pub fn verdict(
        &self,
        measured: Measurement,
        at: Timestamp,
        cost: Cost,
        charged: bool,
    ) -> Verdict {
        match self {
            Self::TokenBucket(rule) => rule.verdict(measured, cost, charged),
            Self::LeakyBucket(rule) => rule.verdict(measured, cost, charged),
            Self::FixedWindow(rule) => rule.verdict(measured, cost, charged),
            Self::ClockWindow(rule) => rule.verdict(measured, cost, charged),
            Self::SlidingWindow(rule) => rule.verdict(measured, at, cost, charged),
            Self::SlidingLog(rule) => rule.verdict(measured, cost, charged),
            Self::Concurrency(rule) => rule.verdict(measured, cost, charged),
        }
    }

    /// The ticket of an admitted, charged request.
    #[must_use]
    pub fn ticket(&self, at: Timestamp, measured: Measurement, cost: Cost) -> Ticket {
        let mark = match self {
            Self::TokenBucket(TokenBucket { interval, .. })
            | Self::LeakyBucket(LeakyBucket { interval, .. }) => {
                Mark::Bucket(BucketState::at_level(at, measured.span, *interval))
            }
            Self::FixedWindow(rule) => {
                let end = at.plus(measured.span.whole).micros();
                let start = end.saturating_sub(rule.window);
                Mark::Window { start, end }
            }
            Self::ClockWindow(rule) => {
                let (start, end) = rule.counted(at, measured.span.whole);
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

    /// Does admitting take slots, which are renewed while the request lives and freed (refunded) when it ends?
    #[must_use]
    pub fn holds(&self) -> Option<&Concurrency> {
        match self {
            Self::Concurrency(rule) => Some(rule),
            _ => None,
        }
    }
}

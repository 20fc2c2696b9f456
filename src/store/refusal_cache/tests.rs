//! A cached answer equals the answer that a call would have given.

mod histories;

use super::*;
use crate::clock::Clock;
use crate::key::{KeyCase, KeyTemplate, MissingKey, RepeatId};
use crate::limit::clock_window::ClockWindow;
use crate::limit::concurrency::Concurrency;
use crate::limit::dedupe::Dedupe;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::rate::Rate;
use crate::limit::sliding_log::SlidingLog;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::verdict::{Ruling, VerdictOutcome};
use crate::limit::{BlockRule, Mode, Policy, Rule};
use crate::store::{Decider, Intent, MemoryStore, StoreDecision};
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const NOON: u64 = 1_790_000_000_000_000;

fn some(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn limit(name: &str, rule: impl Fn(Rate) -> Rule) -> Limit {
    let rate = Rate {
        count: some(7),
        period: NonZeroU64::new(3 * SECOND).unwrap(),
    };
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Shared,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    Limit::new(Policy::new(name.into(), by, rate), rule(rate))
}

fn bucket(rate: Rate) -> Rule {
    Rule::TokenBucket(TokenBucket::new(rate, some(5)))
}

fn limits() -> Vec<Arc<Limit>> {
    let parts = |parts, strict| {
        let parts = NonZeroU32::new(parts).unwrap();
        move |rate| Rule::SlidingWindow(SlidingWindow::new(rate, parts, strict))
    };
    let leaky = |rate| Rule::LeakyBucket(LeakyBucket::new(rate, some(2), 4, 2 * SECOND));
    let all = [
        limit("tokens", bucket),
        limit("less", bucket).edited(|policy| policy.partial = true),
        limit("queue", leaky),
        limit("meter", |rate| {
            Rule::LeakyBucket(LeakyBucket::meter(rate, some(6)))
        }),
        limit("fixed", |rate| Rule::FixedWindow(FixedWindow::new(rate))),
        limit("clock", |rate| {
            Rule::ClockWindow(ClockWindow::by_clock(rate, 7))
        }),
        limit("sliding", parts(1, false)),
        limit("parts", parts(6, false)),
        limit("strict", parts(6, true)),
        limit("log", |rate| Rule::SlidingLog(SlidingLog::new(rate))),
        limit("beside", bucket).edited(|policy| policy.mode = Mode::Shadow),
        limit("other", bucket).edited(|policy| policy.mode = Mode::Candidate),
    ];
    all.map(Arc::new).into_iter().collect()
}

/// A worker with a store, and a clock that is moved by hand.
struct World {
    passed: u64,
    known: Rc<RefusalCache>,
    store: MemoryStore,
    asked: u64,
    /// Refusals that were derived from a request that took the last unit.
    last: u64,
}

impl World {
    fn new() -> Self {
        Self {
            known: Rc::new(RefusalCache::new(Invalidation::default())),
            passed: 0,
            store: MemoryStore::new(Clock::manual(Timestamp::from_micros(NOON)), usize::MAX),
            asked: 0,
            last: 0,
        }
    }

    /// A call that takes no time.
    fn call(&self) -> CallTimes {
        CallTimes {
            sent: self.at(),
            answered: self.at(),
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_micros(NOON + self.passed)
    }

    fn recall(&self, checks: &[Check<'_>]) -> Option<StoreDecision> {
        let recalled = self.known.recall(checks, || self.at(), |_| true)?;
        Some(StoreDecision::of(checks, recalled))
    }

    /// The decision, and whether a call was needed for it.
    fn decide(&mut self, checks: &[Check<'_>]) -> (StoreDecision, bool) {
        if let Some(decided) = self.recall(checks) {
            return (decided, false);
        }
        self.asked += 1;
        let flight = match checks {
            [check] => self.known.flight(check, || self.at(), Duration::ZERO),
            _ => Flight::Solo,
        };
        let answers = self
            .store
            .at(self.at())
            .measure(checks, Intent::Charge, Decider::Memory);
        self.known
            .remember(checks, &answers, self.call(), |_| false);
        if let (Flight::Leader(leader), [check]) = (flight, checks) {
            leader.admitted(check, &answers, self.at(), false);
            drop(leader);
            self.last += u64::from(answers.admits_all() && self.recall(checks).is_some());
        }
        (StoreDecision::of(checks, answers), true)
    }
}

#[test]
fn a_cost_that_is_always_the_same_asks_once() {
    let dear = limit("dear", bucket).edited(|policy| policy.cost = Cost::new(2));
    let dear = Arc::new(dear);
    let mut world = World::new();
    let ask = [check_of(&dear, b"one", 2)];
    while admitted(&world.decide(&ask).0) {}
    for _ in 0..100 {
        let (decided, was_asked) = world.decide(&ask);
        assert!(!was_asked && decided.decision.verdicts[0].remaining == 1);
    }
}

#[test]
fn a_block_of_a_limit_that_grants_parts_asks_once_for_any_cost() {
    let minute = NonZeroU64::new(60 * SECOND).unwrap();
    let limit = limit("less", bucket).edited(|policy| {
        policy.partial = true;
        policy.blocking = Some(BlockRule::new(minute, minute));
    });
    let limit = Arc::new(limit);
    let mut world = World::new();
    while admitted(&world.decide(&[check_of(&limit, b"one", 3)]).0) {}
    for cost in [3, 1, 5, 3] {
        let (decided, was_asked) = world.decide(&[check_of(&limit, b"one", cost)]);
        assert!(!was_asked && !admitted(&decided), "{cost}");
    }
}

fn check_of<'a>(limit: &'a Arc<Limit>, key: &'a [u8], cost: u64) -> Check<'a> {
    Check {
        limit,
        key,
        cost: Cost::new(cost),
        id: None,
    }
}

fn admitted(decided: &StoreDecision) -> bool {
    matches!(decided.decision.ruling, Ruling::Admit { .. })
}

#[test]
fn a_refusal_is_remembered_to_the_microsecond_and_then_no_more() {
    let limit = Arc::new(limit("tokens", bucket));
    let mut world = World::new();
    let ask = [check_of(&limit, b"one", 1)];
    for _ in 0..5 {
        assert!(admitted(&world.decide(&ask).0));
    }
    assert!(world.decide(&ask).1);
    for _ in 0..1000 {
        world.passed += 428;
        let (decided, was_asked) = world.decide(&ask);
        assert!(!was_asked && !admitted(&decided));
        let VerdictOutcome::Refuse(Wait::Micros(wait)) = decided.decision.verdicts[0].outcome
        else {
            panic!("{decided:?}");
        };
        assert_eq!(wait + world.passed, 428_572);
    }
    world.passed = 428_571;
    assert!(world.recall(&ask).is_some());
    world.passed += 1;
    assert!(world.recall(&ask).is_none());
    assert!(admitted(&world.decide(&ask).0));
}

#[test]
fn what_is_not_the_same_asks() {
    let limit = || Arc::new(limit("tokens", bucket));
    let (old, new) = (limit(), limit());
    let mut world = World::new();
    let full = [check_of(&old, b"one", 5)];
    world.decide(&full);
    world.decide(&full);
    assert!(world.recall(&full).is_some());
    // Three calls differ: another key, another limit of this name after a reload, an id that may have been charged.
    assert!(world.recall(&[check_of(&old, b"two", 5)]).is_none());
    assert!(world.recall(&[check_of(&new, b"one", 5)]).is_none());
    assert!(
        world.recall(&full).is_none(),
        "the new numbers are in force"
    );
    world.decide(&full);
    // A higher cost causes no more calls. A lower cost does, and after it all costs do.
    assert!(world.recall(&[check_of(&old, b"one", 6)]).is_some());
    assert!(world.recall(&[check_of(&old, b"one", 0)]).is_none());
    assert!(world.recall(&full).is_some());
    assert!(world.recall(&[check_of(&old, b"one", 4)]).is_none());
    assert!(world.recall(&full).is_none());
}

#[test]
fn slots_and_repeats_always_ask() {
    let dedupe = Dedupe {
        field: crate::key::IdField(http::HeaderName::from_static("id")),
        ttl: SECOND,
        repeats: 3,
        of: crate::key::Sameness::Path,
    };
    let once = limit("once", bucket).edited(|policy| policy.dedupe = Some(dedupe));
    let flight = limit("flight", |_| {
        let (max, ttl) = (NonZeroU32::MIN, SECOND);
        Rule::Concurrency(Concurrency { max, ttl })
    });
    let (once, flight) = (Arc::new(once), Arc::new(flight));
    let mut world = World::new();
    let repeat = Check {
        id: Some(RepeatId::of("POST", "/", 5, b"id")),
        ..check_of(&once, b"one", 5)
    };
    for check in [
        repeat,
        check_of(&once, b"one", 5),
        check_of(&flight, b"one", 1),
    ] {
        world.decide(&[check]);
        world.decide(&[check]);
    }
    assert!(world.recall(&[check_of(&once, b"one", 5)]).is_some());
    assert!(world.recall(&[repeat]).is_none());
    assert!(world.recall(&[check_of(&flight, b"one", 1)]).is_none());
}

#[test]
fn what_comes_back_is_news_to_those_who_asked_before_it_was_there() {
    let limit = Arc::new(limit("tokens", bucket));
    let mut world = World::new();
    let full = [check_of(&limit, b"one", 5)];
    world.decide(&full);
    world.decide(&full);
    let later = world.at().plus(50);
    world.known.invalidation.invalidate(&limit, b"one", later);
    assert!(world.recall(&full).is_none());
    // The refund has not arrived yet.
    world.passed += 40;
    world.decide(&full);
    assert!(world.recall(&full).is_none());
    world.passed += 20;
    world.decide(&full);
    assert!(world.recall(&full).is_some());
}

#[test]
fn no_refusal_is_believed_for_longer_than_a_minute_nor_more_of_them_than_there_is_room_for() {
    let limit = limit("tokens", bucket).edited(|policy| policy.cost = Cost::new(99));
    let limit = Arc::new(limit);
    let mut world = World::new();
    let never = [check_of(&limit, b"one", 99)];
    assert!(world.decide(&never).1);
    world.passed = 59 * SECOND;
    assert!(world.recall(&never).is_some());
    world.passed = 60 * SECOND;
    assert!(world.recall(&never).is_none());
    for key in 0..3 * ROOM {
        world.decide(&[check_of(&limit, &key.to_be_bytes(), 99)]);
        assert!(world.known.refusals.borrow().len() <= ROOM);
    }
    assert!(world.known.refusals.borrow().len() > ROOM / 2);
    world
        .known
        .refusals
        .borrow_mut()
        .retain(|refusal| refusal.answered_at > world.at());
    world.known.sweep(world.at());
    assert!(world.known.refusals.borrow().capacity() < 100);
}

#[tokio::test]
async fn who_asks_anew_and_goes_away_leaves_nobody_waiting() {
    let limits = limits();
    let mut world = World::new();
    let one = [check_of(&limits[0], b"one", 1)];
    while admitted(&world.decide(&one).0) {}
    // The refusal has just ended.
    world.passed += SECOND / 2;
    let patience = Duration::from_mins(1);
    let Flight::Leader(asking) = world.known.flight(&one[0], || world.at(), patience) else {
        panic!("nobody else asks");
    };
    let Flight::Follower(others) = world.known.flight(&one[0], || world.at(), patience) else {
        panic!("somebody else asks");
    };
    let two = [check_of(&limits[0], b"two", 1)];
    let another = world.known.flight(&two[0], || world.at(), patience);
    assert!(matches!(another, Flight::Solo));
    let begun = std::time::Instant::now();
    tokio::join!(others.wait(), async { drop(asking) });
    assert!(begun.elapsed() < patience / 2);
    let after = world.known.flight(&one[0], || world.at(), patience);
    assert!(matches!(after, Flight::Solo));
}

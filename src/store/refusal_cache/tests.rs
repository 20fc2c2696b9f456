//! A cached answer equals the answer that a call would have given. Random histories go to two stores: one is always
//! called, the other only if no refusal is cached.

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
use crate::limit::{Mode, Policy, Rule};
use crate::store::{Decider, Intent, MemoryStore, StoreDecision};
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const NOON: u64 = 1_790_000_000_000_000;

fn some(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
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
        move |rate| Rule::SlidingWindow(SlidingWindow::new(rate, some(parts), strict))
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

/// Two gateways with one store, and requests that state their cost. A cached refusal equals the refusal that a call
/// would have given.
#[test]
fn what_others_may_have_taken_since_is_not_told_from_memory() {
    let price = || crate::key::Price {
        header: http::HeaderName::from_static("x-cost"),
        default: 1,
        max: 9,
        may_peek: false,
    };
    let limits: Vec<Arc<Limit>> = limits()
        .into_iter()
        .map(|limit| Arc::new(limit.edited(|policy| policy.price = Some(price()))))
        .collect();
    let (mut hits, mut never, mut asked) = (0, 0, 0);
    for seed in 0..120 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut worlds = [World::new(), World::new()];
        let limit = &limits[random.usize(..limits.len() - 2)];
        for _ in 0..200 {
            let pause = match random.u8(..10) {
                0 => random.u64(..2 * SECOND),
                1..6 => random.u64(..100_000),
                _ => 0,
            };
            let here = random.usize(..2);
            let ask = [check_of(limit, b"one", random.u32(1..=9))];
            for world in &mut worlds {
                world.passed += pause;
            }
            let at = worlds[0].at();
            let Some(recalled) = worlds[here].recall(&ask) else {
                asked += 1;
                let answers = worlds[0]
                    .store
                    .at(at)
                    .measure(&ask, Intent::Charge, Decider::Memory);
                let world = &worlds[here];
                world
                    .known
                    .remember(&ask, &answers, world.call(), |_| false);
                continue;
            };
            hits += 1;
            let truth = worlds[0].store.at(at).decide(&ask);
            assert!(!admitted(&truth), "{}", limit.name);
            let [known, real] = [&recalled, &truth].map(|decided| decided.decision.verdicts[0]);
            assert_eq!(known.outcome, real.outcome, "{}", limit.name);
            assert!(known.remaining <= real.remaining, "{}", limit.name);
            never += u32::from(known.outcome == VerdictOutcome::Refuse(Wait::Never));
            if !matches!(limit.rule, Rule::SlidingWindow(_) | Rule::SlidingLog(_)) {
                assert_eq!(known, real, "{}", limit.name);
            }
        }
    }
    assert!(hits > asked / 20 && never > 20, "{hits}, {never}, {asked}");
}

/// For a list of rates, a cached refusal shows the same values as a call, for all rates: if any rate refuses, the
/// others are not charged.
#[test]
fn a_remembered_refusal_knows_all_rates_of_its_list() {
    let listed: Vec<Arc<Limit>> = limits()
        .into_iter()
        .enumerate()
        // One of each kind: in a file the rates of a list have separate counters.
        .filter(|(_, limit)| ["tokens", "queue", "clock", "parts", "log"].contains(&&*limit.name))
        .map(|(index, limit)| {
            Arc::new(limit.edited(|policy| {
                policy.name = "list".into();
                policy.window = Some(format!("7/{index}s").into());
            }))
        })
        .collect();
    let (mut hits, mut left) = (0, 0);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new();
        let cost = random.u32(1..=3);
        let some = random.choose_multiple(&listed, 3);
        let checks: Vec<_> = some
            .iter()
            .map(|limit| check_of(limit, b"one", cost))
            .collect();
        for _ in 0..100 {
            world.passed += random.u64(..SECOND / 3);
            let Some(recalled) = world.recall(&checks) else {
                world.decide(&checks);
                continue;
            };
            hits += 1;
            let truth = world.store.at(world.at()).decide(&checks);
            agree(&checks, &recalled, &truth);
            assert!(recalled.is_whole(), "{checks:?}");
            left += u32::from(
                recalled
                    .decision
                    .verdicts
                    .iter()
                    .any(|one| one.remaining > 0),
            );
        }
    }
    assert!(hits > 100 && left > 50, "{hits}, {left}");
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

fn check_of<'a>(limit: &'a Arc<Limit>, key: &'a [u8], cost: u32) -> Check<'a> {
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
fn histories_with_memory_admit_what_always_asking_admits() {
    let limits = limits();
    let (mut asked, mut spared, mut last) = (0, 0, 0);
    for seed in 0..80 {
        let mut random = fastrand::Rng::with_seed(seed);
        let always = MemoryStore::new(Clock::manual(Timestamp::from_micros(NOON)), usize::MAX);
        let mut world = World::new();
        // If costs differ, the cache can answer little. In every second history they do not differ, and requests arrive
        // faster.
        let (dearest, pace) = match seed % 2 {
            0 => (1, 40),
            _ => (random.u32(1..=9), 1),
        };
        let most = random.usize(1..=3);
        for _ in 0..300 {
            let pause = match random.u8(..10) {
                0 => random.u64(..2 * SECOND),
                1..6 => random.u64(..100_000),
                _ => 0,
            };
            world.passed += pause / pace;
            let (deciding, shadows) = limits.split_at(limits.len() - 2);
            let (some, others) = (random.usize(1..=most), random.usize(..most));
            let mut chosen = random.choose_multiple(deciding, some);
            chosen.extend(random.choose_multiple(shadows, others));
            let key: &[u8] = random.choice([b"one".as_slice(), b"two"]).unwrap();
            let checks: Vec<_> = chosen
                .into_iter()
                .map(|limit| {
                    let least = u32::from(random.u8(..20) > 0);
                    check_of(limit, key, random.u32(least..=dearest))
                })
                .collect();
            let truth = *always.at(world.at()).decide(&checks);
            let (decided, was_asked) = world.decide(&checks);
            if was_asked {
                asked += 1;
                assert_eq!(decided, truth);
                continue;
            }
            spared += 1;
            agree(&checks, &decided, &truth);
            if random.u8(..30) == 0 {
                give_back(&world, &always, (&limits[0], key));
            }
        }
        last += world.last;
    }
    assert!(spared > asked / 20, "{spared} of {asked}");
    assert!(last > 20, "{last} of {asked}");
}

/// Compares a cached refusal with the true one.
fn agree(checks: &[Check<'_>], decided: &StoreDecision, truth: &StoreDecision) {
    assert!(!admitted(truth) && !admitted(decided));
    let (Ruling::Refuse { wait, .. }, Ruling::Refuse { wait: longest, .. }) =
        (decided.decision.ruling, truth.decision.ruling)
    else {
        panic!("{decided:?} {truth:?}");
    };
    // Another limit's true wait may be longer.
    assert!(wait <= longest);
    for (index, check) in checks.iter().enumerate() {
        let limit = check.limit;
        if !limit.mode.decides() {
            let of = |decided: &StoreDecision| {
                let mut shadows = decided.shadows.iter();
                shadows
                    .find(|shadow| shadow.index == index)
                    .unwrap()
                    .verdict
            };
            assert!(of(decided).is_none() || of(decided) == of(truth));
            continue;
        }
        if !decided.is_known(limit) {
            continue;
        }
        let [known, real] = [decided, truth].map(|decided| decided.decision.verdicts[index]);
        match limit.rule {
            Rule::SlidingWindow(_) | Rule::SlidingLog(_) => {
                assert_eq!(known.outcome, real.outcome, "{}", limit.name);
                assert!(known.remaining <= real.remaining);
            }
            _ => assert_eq!(known, real, "{}", limit.name),
        }
    }
}

/// Gives back one unit.
fn give_back(world: &World, always: &MemoryStore, (limit, key): (&Arc<Limit>, &[u8])) {
    let (peek, at) = ([check_of(limit, key, 0)], world.at());
    for store in [always, &world.store] {
        let answers = store.at(at).measure(&peek, Intent::Charge, Decider::Memory);
        let measured = *answers[0].measured().unwrap();
        let ticket = limit.abandoned(limit.rule.ticket(at, measured, Cost::ONE), at);
        store.at(at).refund(limit, key, ticket);
    }
    world.known.invalidation.invalidate(limit, key, world.at());
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
        let (max, ttl) = (some(1), SECOND);
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

//! Random histories go to two stores: one is always called, the other only if no refusal is cached.

use super::*;
use crate::limit::BlockRule;

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
            let ask = [check_of(limit, b"one", random.u64(1..=9))];
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
            never += u64::from(known.outcome == VerdictOutcome::Refuse(Wait::Never));
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
        let cost = random.u64(1..=3);
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
            left += u64::from(
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
            _ => (random.u64(1..=9), 1),
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
                    let least = u64::from(random.u8(..20) > 0);
                    check_of(limit, key, random.u64(least..=dearest))
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

/// Limits that block: a remembered refusal is the one that a call would have given, and after the block a call decides.
#[test]
fn blocked_keys_are_refused_as_by_calls() {
    let time = |micros| NonZeroU64::new(micros).unwrap();
    let (mut asked, mut spared, mut blocks) = (0, 0, 0);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let always = MemoryStore::new(Clock::manual(Timestamp::from_micros(NOON)), usize::MAX);
        let mut world = World::new();
        let limits = limits();
        let limit = &limits[random.usize(..limits.len() - 2)];
        let first = random.u64(50_000..SECOND);
        let rule = BlockRule::new(time(first), time(first * random.u64(1..5)));
        let limit = Arc::new(limit.edited(|policy| policy.blocking = Some(rule)));
        let ask = [check_of(&limit, b"one", random.u64(1..3))];
        for _ in 0..300 {
            world.passed += match random.u8(..10) {
                0 => random.u64(..2 * SECOND),
                1..6 => random.u64(..100_000),
                _ => 0,
            };
            let truth = *always.at(world.at()).decide(&ask);
            let (decided, was_asked) = world.decide(&ask);
            assert_eq!(decided.decision, truth.decision, "{}", limit.name);
            let begins = truth.measured(0).unwrap().block == BlockPhase::Begins;
            // Only a call can note that a block begins.
            assert!(was_asked || !begins);
            (asked, spared) = (asked + u64::from(was_asked), spared + u64::from(!was_asked));
            blocks += u64::from(begins);
        }
    }
    assert!(
        spared > asked && blocks > 300,
        "{spared}, {asked}, {blocks}"
    );
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

//! Foreign bytes in states, and numbers at the end of the exact range: both twins give the same answer.

use super::numbers::{
    NOON, SECOND, clock_window, fixed_window, leaky_bucket, limit, sliding_window, token_bucket,
};
use super::under_test::UnderTest;
use crate::support::connect;
use crate::support::stored_state::StoredState as _;
use std::sync::Arc;
use tollgate::limit::clock_window::ClockWindow;
use tollgate::limit::fixed_window::FixedWindow;
use tollgate::limit::rate::{Cost, MOST_UNITS};
use tollgate::limit::verdict::Wait;
use tollgate::limit::{Limit, Rule, State};
use tollgate::store::Check;
use tollgate::store::redis::RedisStore;

/// The last whole number below 2^53.
const LAST: u64 = (1 << 53) - 1;
/// The longest time that a limit reaches.
const SPAN: u64 = 1 << 52;

fn bucket(at: f64, part: u32, den: u32) -> Vec<u8> {
    [
        &at.to_be_bytes()[..],
        &part.to_be_bytes(),
        &den.to_be_bytes(),
    ]
    .concat()
}

/// A window in either form.
fn window(start: f64, count: u64) -> Vec<Vec<u8>> {
    let forms = [
        four_bytes(count),
        Some((count as f64).to_be_bytes().to_vec()),
    ];
    let forms = forms.into_iter().flatten();
    forms
        .map(|count| [&start.to_be_bytes()[..], &count].concat())
        .collect()
}

fn four_bytes(count: u64) -> Option<Vec<u8>> {
    u32::try_from(count)
        .ok()
        .map(|count| count.to_be_bytes().to_vec())
}

/// Instants that a state may contain, as doubles.
fn instants() -> Vec<f64> {
    let now = NOON.micros();
    let whole = [
        0,
        1,
        now - SPAN / 4,
        now - 1,
        now,
        now + 1,
        now + SECOND,
        now + SPAN - 1,
        now + SPAN,
        now + SPAN + 1,
        LAST - 1,
        LAST,
        LAST + 1,
        u64::MAX,
    ];
    let odd = [
        now as f64 + 0.5,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        f64::MAX,
    ];
    whole.iter().map(|n| *n as f64).chain(odd).collect()
}

fn states(rule: &Rule) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(), vec![7], vec![0xff; 7], vec![0xff; 17]];
    for at in instants() {
        match rule {
            Rule::FixedWindow(FixedWindow { limit, .. })
            | Rule::ClockWindow(ClockWindow { limit, .. }) => {
                let limit = *limit;
                let most = u64::from(u32::MAX);
                for count in [
                    0,
                    1,
                    limit - 1,
                    limit,
                    limit + 1,
                    most,
                    most + 1,
                    MOST_UNITS,
                ] {
                    all.extend(window(at, count));
                }
            }
            Rule::TokenBucket(_) | Rule::LeakyBucket(_) => {
                all.push(at.to_be_bytes().to_vec());
                for (part, den) in [
                    (0, 1),
                    (1, 0),
                    (1, 1),
                    (6, 7),
                    (3, 7),
                    (1, u32::MAX),
                    (u32::MAX - 1, u32::MAX),
                    (u32::MAX, u32::MAX),
                ] {
                    all.push(bucket(at, part, den));
                }
            }
            Rule::SlidingWindow(rule) => {
                for held in [0, 1, 2, 3, 5, 100, 101] {
                    for count in [0, 1, rule.limit, u64::from(u32::MAX), MOST_UNITS] {
                        all.extend(parts(at, held, count));
                    }
                }
            }
            // The states of these algorithms are not strings.
            Rule::SlidingLog(_) | Rule::Concurrency(_) => {}
        }
    }
    all
}

/// A sliding window in either form.
fn parts(at: f64, held: u64, count: u64) -> Vec<Vec<u8>> {
    let counts = (0..=held).map(|part| if part % 2 == 0 { count } else { 1 });
    let start = || at.to_be_bytes().to_vec();
    let (mut small, mut large) = (Some(start()), start());
    for count in counts {
        let four = four_bytes(count);
        small = small.zip(four).map(|(bytes, four)| [bytes, four].concat());
        large.extend_from_slice(&(count as f64).to_be_bytes());
    }
    large.push(0);
    small.into_iter().chain([large]).collect()
}

fn rules() -> Vec<(tollgate::limit::rate::Rate, Rule)> {
    let most = u64::from(u32::MAX);
    vec![
        token_bucket(7, 3 * SECOND, 9),
        token_bucket(1, SPAN, 1),
        token_bucket(most, SPAN, most),
        token_bucket(most, 1, most),
        leaky_bucket((7, 3 * SECOND), 2, 9, 500_000),
        leaky_bucket((2, SPAN), 1, 1, SPAN),
        leaky_bucket((most, SPAN), most - 1, 1, 1),
        leaky_bucket((most, 1), 1, most - 1, SPAN),
        token_bucket(MOST_UNITS - MOST_UNITS % most, most, MOST_UNITS),
        leaky_bucket((6_000_000_000, SECOND), 6_000_000_000, 0, 0),
        fixed_window(MOST_UNITS, SECOND),
        clock_window(most + 1, SECOND, 1),
        sliding_window(most + 1, 1_000_000, 5, true),
        sliding_window(9_000_000_000_000, 500_000, 1, false),
        fixed_window(9, SECOND),
        fixed_window(most, SPAN),
        fixed_window(1, 1),
        clock_window(9, SECOND, 999_999),
        clock_window(most, SPAN, SPAN - 1),
        clock_window(1, 1, 0),
        sliding_window(9, SECOND, 1, false),
        sliding_window(9, SECOND, 5, true),
        sliding_window(most, 1000, 1, false),
        sliding_window(most, 100_000, 100, true),
        sliding_window(100, 31 * 86_400 * SECOND, 2, false),
    ]
}

/// The answer of the pure functions, and the bytes that they leave.
fn functions(limit: &Limit, cost: u64, bytes: &[u8]) -> (Wait, Option<Vec<u8>>) {
    let state = State::decode(&limit.rule, bytes);
    let cost = tollgate::limit::rate::Cost::new(cost);
    let (measured, change) = limit.rule.check(state.as_ref(), NOON, cost);
    let left = match change {
        Some(change) => change.update.after(state.clone()).encode().to_vec(),
        None => bytes.to_vec(),
    };
    // Reading the answer must not fail either.
    for charged in [true, false] {
        let verdict = limit.rule.verdict(measured, NOON, cost, charged);
        let ticket = limit.rule.ticket(NOON, measured, cost);
        let _ = limit.rule.refund(state.as_ref(), NOON, ticket);
        assert!(verdict.reset <= SPAN + 1, "{verdict:?}");
    }
    (measured.wait, Some(left))
}

/// One question: the stored bytes, and the cost.
type Case = (Vec<u8>, u64);

/// Asks all cases at once, each with its own client, and checks that both twins give the same answer.
async fn assert_alike(
    (store, side): (&RedisStore, &mut redis::aio::MultiplexedConnection),
    limit: &Arc<Limit>,
    cases: &[Case],
) {
    let clients: Vec<String> = (0..cases.len()).map(|number| number.to_string()).collect();
    let mut set = redis::cmd("MSET");
    let mut get = redis::cmd("MGET");
    for (client, (bytes, _)) in clients.iter().zip(cases) {
        let name = UnderTest::name(limit, client.as_bytes());
        set.arg(&name).arg(bytes);
        get.arg(&name);
    }
    let _: () = set.query_async(side).await.unwrap();
    let asking = clients.into_iter().zip(cases).map(|(client, (_, cost))| {
        let (store, limit, cost) = (store.clone(), Arc::clone(limit), Cost::new(*cost));
        tokio::task::spawn_local(async move {
            let check = Check {
                cost,
                ..Check::new(&limit, client.as_bytes())
            };
            store.at(NOON).decide(&[check]).await.unwrap()
        })
    });
    let asking: Vec<_> = asking.collect();
    let mut told = Vec::new();
    for one in asking {
        told.push(one.await.unwrap());
    }
    let seen: Vec<Option<Vec<u8>>> = get.query_async(side).await.unwrap();
    for (((bytes, cost), decided), seen) in cases.iter().zip(told).zip(seen) {
        let place = format!("{:?}, cost {cost}, stored {bytes:x?}", limit.rule);
        let (wait, left) = functions(limit, *cost, bytes);
        assert_eq!(decided.decision.at, NOON);
        assert_eq!(decided.measured(0).unwrap().wait, wait, "{place}");
        assert_eq!(seen, left, "{place}");
    }
}

#[tokio::test(flavor = "local")]
async fn hostile_bytes_are_answered_alike_and_break_nothing() {
    let store = UnderTest::redis().await;
    let UnderTest::Redis { server, store } = &store else {
        panic!("it is Redis");
    };
    let client = redis::Client::open(server.url()).unwrap();
    let mut side = connect(&client).await.unwrap();
    let mut asked = 0;
    for (index, rule) in rules().into_iter().enumerate() {
        let limit = limit(&format!("limit-{index}"), rule);
        let most = u64::from(u32::MAX);
        let costs = [0, 1, 2, limit.rate.count.get(), most, most + 1, MOST_UNITS];
        let states = states(&limit.rule);
        let cases: Vec<Case> = states
            .iter()
            .flat_map(|bytes| costs.map(|cost| (bytes.clone(), cost)))
            .collect();
        for some in cases.chunks(500) {
            assert_alike((store, &mut side), &limit, some).await;
        }
        asked += cases.len();
    }
    assert!(asked > 5000, "{asked}");
}

//! Eight threads on one key: together they are admitted exactly as much as the limit allows.

use super::numbers::{
    CLIENT, NOON, SECOND, ask, clock_window, fixed_window, leaky_bucket, limit, sliding_log,
    sliding_window, token_bucket,
};
use super::stories::dedupe::once;
use super::under_test::{admitted, connect, ticket_of};
use crate::support::Redis;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::clock::Clock;
use tollgate::key::RepeatId;
use tollgate::limit::Limit;
use tollgate::limit::rate::Rate;
use tollgate::limit::verdict::Repeat;
use tollgate::limit::{Rule, Ticket};
use tollgate::store::{Check, MemoryStore};

const THREADS: u64 = 8;

fn rules() -> [(Rate, Rule); 9] {
    [
        token_bucket(1, 3600 * SECOND, 1001),
        leaky_bucket((1, 3600 * SECOND), 1, 1000, 3600 * SECOND * 1000),
        leaky_bucket((1, 3600 * SECOND), 1001, 0, 0),
        fixed_window(1001, 3600 * SECOND),
        clock_window(1001, 3600 * SECOND, SECOND),
        sliding_window(1001, 3600 * SECOND, 1, false),
        sliding_window(1001, 3600 * SECOND, 6, false),
        sliding_window(1001, 3600 * SECOND, 6, true),
        sliding_log(1001, 3600 * SECOND),
    ]
}

#[test]
fn threads_are_admitted_exactly_the_limit_while_time_stands_still() {
    for rule in rules() {
        let store = MemoryStore::new(Clock::manual(NOON), 1000);
        let limit = limit("one", rule.clone());
        let count = || {
            let turn = |_: &u64| admitted(&store.decide(&[ask(&limit, 1)]));
            (0..500).filter(turn).count()
        };
        let admissions: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(admissions, 1001, "{rule:?}");
    }
}

#[test]
fn threads_are_admitted_no_more_than_the_rate_while_time_runs() {
    let store = MemoryStore::new(Clock::system(), 1000);
    let limit = limit("one", token_bucket(20_000, SECOND, 50));
    let begun = Instant::now();
    let count = || {
        let mut admissions = 0_u64;
        while begun.elapsed() < Duration::from_millis(300) {
            admissions += u64::from(admitted(&store.decide(&[ask(&limit, 1)])));
        }
        admissions
    };
    let admissions: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    let most = 50 + begun.elapsed().as_micros() as u64 * 20_000 / SECOND;
    assert!(admissions <= most, "{admissions} of {most}");
    // Eight threads that do nothing else get nearly all units, however busy the machine is.
    assert!(admissions > 300, "{admissions} of {most}");
}

#[test]
fn threads_with_several_limits_in_any_order_neither_hang_nor_pass_one() {
    let store = MemoryStore::new(Clock::manual(NOON), 1000);
    let limits: Vec<Arc<Limit>> = (0..6)
        .map(|index| {
            let name = format!("limit-{index}");
            limit(&name, fixed_window(600 + index, 3600 * SECOND))
        })
        .collect();
    let count = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut taken = [0_u64; 6];
        for _ in 0..1000 {
            let mut order: Vec<usize> = (0..6).collect();
            random.shuffle(&mut order);
            order.truncate(random.usize(1..=6));
            let checks: Vec<_> = order.iter().map(|i| ask(&limits[*i], 1)).collect();
            if admitted(&store.decide(&checks)) {
                order.iter().for_each(|index| taken[*index] += 1);
            }
        }
        taken
    };
    let taken: Vec<[u64; 6]> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|seed| scope.spawn(move || count(seed)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for (index, limit) in limits.iter().enumerate() {
        let sum: u64 = taken.iter().map(|one| one[index]).sum();
        let left = store.decide(&[ask(limit, 0)]).decision.verdicts[0].remaining;
        assert_eq!(sum + left, 600 + index as u64);
    }
    let some_full = limits.iter().any(|limit| {
        let decided = store.decide(&[ask(limit, 0)]);
        decided.decision.verdicts[0].remaining == 0
    });
    assert!(some_full, "nothing was ever refused");
}

#[test]
fn of_many_at_once_with_one_id_one_is_charged_and_few_go_free() {
    let store = MemoryStore::new(Clock::manual(NOON), 1000);
    let limit = once(
        limit("one", token_bucket(1000, 3600 * SECOND, 1000)),
        SECOND,
        5,
    );
    let count = || {
        let check = Check {
            id: Some(RepeatId::of("POST", "/", 1, b"id")),
            ..ask(&limit, 1)
        };
        let told = |_: &u64| store.decide(&[check]).measured(0).unwrap().repeat;
        let all: Vec<_> = (0..20).map(|nth| told(&nth)).collect();
        [Repeat::First, Repeat::Free].map(|one| all.iter().filter(|told| **told == one).count())
    };
    let counts: Vec<[usize; 2]> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let sum = |at: usize| counts.iter().map(|one| one[at]).sum::<usize>();
    assert_eq!((sum(0), sum(1)), (1, 5));
    let left = store.decide(&[ask(&limit, 0)]).decision.verdicts[0].remaining;
    assert_eq!(left, 1000 - 20 * THREADS + 5);
}

#[test]
fn threads_that_take_and_give_back_leave_nothing_behind() {
    let store = MemoryStore::new(Clock::manual(NOON), 1000);
    let limit = limit("one", fixed_window(5, 3600 * SECOND));
    let take_and_give = || {
        for _ in 0..2000 {
            let check = ask(&limit, 1);
            let decided = store.decide(&[check]);
            let ticket: Option<Ticket> = ticket_of(&decided, 0, &check);
            assert!(decided.decision.verdicts[0].remaining < 5);
            if let Some(ticket) = ticket {
                store.refund(&limit, CLIENT, ticket);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(take_and_give);
        }
    });
    assert_eq!(store.len(), 0);
    assert_eq!(store.stored(&limit, CLIENT), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_are_admitted_exactly_the_limit_by_one_redis() {
    let server = Redis::start().await;
    for (index, rule) in rules().into_iter().enumerate() {
        let limit = limit(&format!("limit-{index}"), rule.clone());
        // Each thread has its own connections, as workers and gateways do.
        let count = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(Default::default())
                .unwrap();
            runtime.block_on(async {
                let store = connect(&server).await;
                let tasks: Vec<_> = (0..200)
                    .map(|_| {
                        let (store, limit) = (store.clone(), limit.clone());
                        tokio::task::spawn_local(async move {
                            let checks = [ask(&limit, 1)];
                            admitted(&store.at(NOON).decide(&checks).await.unwrap())
                        })
                    })
                    .collect();
                let mut admissions = 0;
                for task in tasks {
                    admissions += usize::from(task.await.unwrap());
                }
                admissions
            })
        };
        let admissions: usize = tokio::task::block_in_place(|| {
            thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum()
            })
        });
        assert_eq!(admissions, 1001, "{rule:?}");
    }
}

//! Leases for some of a request's limits. Each limit holds, and Redis is not asked about limits with a permit in hand.
//! A request that another limit refuses, or whose client leaves, uses up no permit.

use super::leases::on_threads;
use super::numbers::{SECOND, clock_window, fixed_window, limit, token_bucket};
use super::remembered_refusals::gateway;
use super::under_test::{admitted, connect};
use crate::support::{Redis, long};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate::limit::rate::Rate;
use tollgate::limit::verdict::VerdictOutcome;
use tollgate::limit::{LeaseSetting, Limit, Rule, Scope};
use tollgate::store::{Check, Decider, SharedStore, Store, StoreDecision};

const ALL: &[u8] = b"";
const HOUR: u64 = 3600 * SECOND;

fn leased(name: &str, rule: (Rate, Rule)) -> Arc<Limit> {
    limit(name, rule)
}

fn unleased(name: &str, rule: (Rate, Rule)) -> Arc<Limit> {
    Arc::new(limit(name, rule).edited(|policy| policy.leasing = LeaseSetting::Off))
}

/// The results of one gateway's requests.
#[derive(Debug, Default)]
struct Pressed {
    /// The number of admitted requests of each client.
    clients: HashMap<u64, u64>,
    admitted: u64,
    requests: u64,
    /// The number of admitted requests with permits in hand.
    in_hand: u64,
    calls: u64,
}

const GATEWAYS: u64 = 2;
/// The number of requests under way at each gateway.
const TASKS: u64 = 12;

/// The end of a load: after this number of requests with permits in hand at each gateway, or after this time.
#[derive(Debug, Clone, Copy)]
struct Until {
    in_hand: u64,
    time: Duration,
}

/// Clients send requests to several gateways. Each client has its own limit beside the limit for everyone.
fn press(server: &Redis, limits: &[Arc<Limit>], clients: u64, until: Until) -> Pressed {
    let begun = Instant::now();
    let one = async |seed: u64| {
        let store = gateway(connect(server).await);
        let in_hand = Rc::new(Cell::new(0));
        let asking: Vec<_> = (0..TASKS)
            .map(|task| {
                let (store, limits) = (store.clone(), limits.to_vec());
                let random = fastrand::Rng::with_seed(seed * 100 + task);
                let until = (Rc::clone(&in_hand), begun, until);
                tokio::task::spawn_local(ask(store, limits, (clients, random), until))
            })
            .collect();
        let mut outcome = Pressed::default();
        for task in asking {
            for (client, at) in task.await.unwrap() {
                outcome.requests += 1;
                if at {
                    *outcome.clients.entry(client).or_default() += 1;
                    outcome.admitted += 1;
                }
            }
        }
        outcome.in_hand = in_hand.get();
        outcome.calls = shared(&store).stats().calls.get();
        store.settle().await;
        outcome
    };
    let mut all = Pressed::default();
    for outcome in on_threads(GATEWAYS, one) {
        all.add(outcome);
    }
    all
}

async fn ask(
    store: Store,
    limits: Vec<Arc<Limit>>,
    (clients, mut random): (u64, fastrand::Rng),
    (in_hand, begun, until): (Rc<Cell<u64>>, Instant, Until),
) -> Vec<(u64, bool)> {
    let mut seen = Vec::new();
    while in_hand.get() < until.in_hand && begun.elapsed() < until.time {
        let client = random.u64(..clients);
        let key = client.to_string();
        let checks: Vec<_> = limits
            .iter()
            .map(|limit| match limit.name.starts_with("each") {
                true => Check::new(limit, key.as_bytes()),
                false => Check::new(limit, ALL),
            })
            .collect();
        let (decided, by) = store.decide(&checks).await.unwrap();
        in_hand.set(in_hand.get() + u64::from(by == Decider::Lease));
        let passes = admitted(&decided.unwrap());
        seen.push((client, passes));
        if seen.len().is_multiple_of(16) {
            tokio::task::yield_now().await;
        }
    }
    seen
}

fn shared(store: &Store) -> &tollgate::store::redis::RedisStore {
    let Store::Shared(SharedStore { redis: shared, .. }) = store else {
        panic!("it was made so");
    };
    shared
}

impl Pressed {
    fn add(&mut self, other: Self) {
        for (client, count) in other.clients {
            *self.clients.entry(client).or_default() += count;
        }
        self.admitted += other.admitted;
        self.requests += other.requests;
        self.in_hand += other.in_hand;
        self.calls += other.calls;
    }
}

/// The numbers are random. No client gets more than its own limit, all clients together get no more than the shared
/// limit, and the shared limit is used up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_limit_of_a_request_holds_where_one_is_in_hand() {
    let server = Redis::start().await;
    for seed in 0..if long() { 30 } else { 2 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let (count, each) = (random.u64(1000..3000), random.u64(3..200));
        let clients = random.u64(5..200);
        let all = leased(&format!("all-{seed}"), fixed_window(count, HOUR));
        let own = unleased(&format!("each-{seed}"), fixed_window(each, HOUR));
        let limits = match random.bool() {
            true => [all, own],
            false => [own, all],
        };
        let until = Until {
            in_hand: u64::MAX,
            time: Duration::from_millis(500),
        };
        let outcome = press(&server, &limits, clients, until);
        let many = outcome.admitted;
        println!(
            "{seed}: {many} of {count}, {clients} clients of {each} each, {} requests, {} calls",
            outcome.requests, outcome.calls
        );
        assert!(many <= count, "{seed}: {many} of {count}");
        for (client, count) in &outcome.clients {
            assert!(*count <= each, "{seed}: {client} {count}");
        }
        let wanted = count.min(each * clients);
        if outcome.requests > wanted * 4 {
            assert!(many * 100 >= wanted * 95, "{seed}: {many} of {wanted}");
        }
    }
}

/// Three busy limits for everyone.
fn hot() -> [Arc<Limit>; 3] {
    let bucket = token_bucket(2_000_000, SECOND, 2_000_000);
    let shorter = fixed_window(50_000_000, HOUR / 2);
    [
        leased("bucket", bucket),
        leased("window", fixed_window(100_000_000, HOUR)),
        leased("shorter", shorter),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_limits_are_hot_who_finds_permits_of_each_asks_nobody() {
    let server = Redis::start().await;
    let until = Until {
        in_hand: 200,
        time: Duration::from_secs(60),
    };
    let outcome = press(&server, &hot(), 1, until);
    assert!(outcome.in_hand >= 2 * 200, "{outcome:?}");
    assert_eq!(outcome.admitted, outcome.requests);
    // A call is made only for a request that found no permit.
    let others = outcome.requests - outcome.in_hand;
    assert!(outcome.calls <= others, "{outcome:?}");
}

/// A gateway that has permits of the limit for everyone in hand.
struct One {
    _server: Redis,
    store: Store,
    all: Arc<Limit>,
    own: Arc<Limit>,
    passed: Cell<u64>,
}

impl One {
    async fn warm(own: Limit) -> Self {
        let server = Redis::start().await;
        let one = Self {
            store: gateway(connect(&server).await),
            _server: server,
            all: leased("all", fixed_window(100_000, HOUR)),
            own: Arc::new(own),
            passed: Cell::new(0),
        };
        let begun = Instant::now();
        while one.ask(&[]).await.1 != Decider::Lease {
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        one
    }

    /// Sends a request under the limit for everyone and the limits of these clients.
    async fn ask(&self, clients: &[&[u8]]) -> (StoreDecision, Decider) {
        let own = clients.iter().map(|client| Check::new(&self.own, client));
        let checks: Vec<_> = own.chain([Check::new(&self.all, ALL)]).collect();
        let (decided, by) = self.store.decide(&checks).await.unwrap();
        let decided = decided.unwrap();
        self.passed
            .set(self.passed.get() + u64::from(admitted(&decided)));
        (*decided, by)
    }

    /// The number of charges of the limit for everyone once no permit is in hand.
    async fn charged(&self) -> u64 {
        self.store.settle().await;
        let decided = self.store.peek(&self.all, ALL).await.unwrap();
        100_000 - decided.decision.verdicts[0].remaining
    }
}

fn once_an_hour() -> Limit {
    Arc::into_inner(unleased("own", fixed_window(1, HOUR))).unwrap()
}

#[tokio::test(flavor = "local")]
async fn who_is_refused_by_another_limit_takes_no_permit() {
    let one = One::warm(once_an_hour()).await;
    let (warm, mut in_hand) = (one.passed.get(), 0);
    for client in 0_u64..200 {
        for number in 0..3 {
            let (decided, by) = one.ask(&[&client.to_be_bytes()]).await;
            assert_eq!(admitted(&decided), number == 0);
            assert!(decided.is_known(&one.own));
            let refused = decided.decision.verdicts[0].outcome;
            assert_eq!(matches!(refused, VerdictOutcome::Refuse(_)), number > 0);
            // When a remembered refusal decides, no other limit is asked.
            assert_eq!(decided.is_known(&one.all), by != Decider::Remembered);
            in_hand += u64::from(decided.decider(&one.all) == Some(Decider::Lease));
        }
    }
    assert_eq!(one.passed.get(), warm + 200);
    // On a slow machine, permits lapse before they are asked for.
    assert!(in_hand > 20, "{in_hand}");
    assert_eq!(one.charged().await, one.passed.get());
}

#[tokio::test(flavor = "local")]
async fn who_leaves_before_the_decision_takes_no_permit() {
    let one = One::warm(once_an_hour()).await;
    for client in 0_u64..100 {
        let client = client.to_be_bytes();
        let clients: [&[u8]; 1] = [&client];
        tokio::select! {
            biased;
            _ = one.ask(&clients) => panic!("Redis is not so fast"),
            () = std::future::ready(()) => {}
        }
    }
    assert_eq!(one.charged().await, one.passed.get());
}

/// Unused permits of a bucket are lost. So a request that another limit refuses orders no permits.
#[tokio::test(flavor = "local")]
async fn of_those_who_are_refused_elsewhere_no_permits_are_ordered() {
    let server = Redis::start().await;
    let store = gateway(connect(&server).await);
    let own = unleased("own", fixed_window(1, HOUR));
    let all = leased("all", token_bucket(100_000, HOUR, 100_000));
    let elsewhere = connect(&server).await;
    for client in 0_u64..4000 {
        let key = client.to_be_bytes();
        elsewhere.decide(&[Check::new(&own, &key)]).await.unwrap();
    }
    let asking: Vec<_> = (0..8)
        .map(|task| {
            let (store, own, all) = (store.clone(), Arc::clone(&own), Arc::clone(&all));
            tokio::task::spawn_local(async move {
                for client in (task..4000_u64).step_by(8) {
                    let key = client.to_be_bytes();
                    let checks = [Check::new(&all, ALL), Check::new(&own, &key)];
                    let (decided, _) = store.decide(&checks).await.unwrap();
                    assert!(!admitted(&decided.unwrap()));
                }
            })
        })
        .collect();
    for task in asking {
        task.await.unwrap();
    }
    let left = store.peek(&all, ALL).await.unwrap();
    assert_eq!(left.decision.verdicts[0].remaining, 100_000);
}

/// The gateway's own limit applies beside the shared limit.
#[tokio::test(flavor = "local")]
async fn beside_a_limit_of_the_gateway_itself_nobody_is_asked() {
    let one = One::warm(once_an_hour().edited(|policy| policy.scope = Scope::Gateway)).await;
    let (warm, mut in_hand) = (one.passed.get(), 0);
    for client in 0_u64..500 {
        for number in 0..2 {
            let (decided, by) = one.ask(&[&client.to_be_bytes()]).await;
            assert_eq!(admitted(&decided), number == 0);
            in_hand += u64::from(number == 0 && by == Decider::Lease);
        }
    }
    assert_eq!(one.passed.get(), warm + 500);
    assert!(in_hand > 400, "{in_hand}");
    assert_eq!(one.charged().await, one.passed.get());
}

/// A charge from before a reset is not refunded after it, since the counter no longer contains it.
#[tokio::test(flavor = "local")]
async fn permits_of_before_a_reset_do_not_go_back() {
    let server = Redis::start().await;
    let (store, elsewhere) = (gateway(connect(&server).await), connect(&server).await);
    let all = leased("all", clock_window(100_000, 24 * HOUR, 0));
    let check = Check::new(&all, ALL);
    let begun = Instant::now();
    while store.decide(&[check]).await.unwrap().1 != Decider::Lease {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    store.reset(&all, ALL).await.unwrap();
    for _ in 0..500 {
        elsewhere.decide(&[check]).await.unwrap();
    }
    // This is longer than permits last, and longer than the second check of them takes.
    tokio::time::sleep(Duration::from_millis(300)).await;
    store.settle().await;
    let left = store.peek(&all, ALL).await.unwrap();
    assert_eq!(left.decision.verdicts[0].remaining, 99_500);
}

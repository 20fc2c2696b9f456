//! The clock of Redis steps while gateways have permits in hand.

use super::leases::{leased, on_threads};
use super::numbers::{
    SECOND, clock_window, fixed_window, leaky_bucket, sliding_window, token_bucket,
};
use super::remembered_refusals::gateway;
use super::under_test::{admitted, connect};
use crate::support::Redis;
use std::sync::Arc;
use tollgate::clock;
use tollgate::limit::{LeaseSetting, Limit};
use tollgate::store::{Check, Decider, Store};

const KEY: &[u8] = b"hot";
const MOST: u64 = 6000;
const MINUTE: u64 = 60 * SECOND;

/// Sends `tries` requests through a gateway. Returns the number of admitted requests, and how many of them used a
/// permit in hand.
async fn press(store: &Store, limit: &Arc<Limit>, tries: u64) -> (u64, u64) {
    let (mut all, mut in_hand) = (0, 0);
    for _ in 0..tries {
        let (decided, by) = store.decide(&[Check::new(limit, KEY)]).await.unwrap();
        let admitted = u64::from(admitted(&decided.unwrap()));
        all += admitted;
        in_hand += admitted * u64::from(by == Decider::Lease);
    }
    (all, in_hand)
}

/// Two gateways have most of a limit, or permits for it, when the clock steps back: within its window, or over its
/// border. They and a third gateway get only the permits in hand and the units that are left of the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_back_gives_no_permit_twice() {
    let server = Redis::start_with_clock().await;
    // These limits are slow: during the test one unit comes back at most.
    let rules = [
        ("fixed", fixed_window(MOST, MINUTE)),
        ("clock", clock_window(MOST, MINUTE, 0)),
        ("sliding", sliding_window(MOST, MINUTE, 6, false)),
        ("strict", sliding_window(MOST, MINUTE, 6, true)),
        ("bucket", token_bucket(MOST, 6000 * MINUTE, MOST)),
        ("meter", leaky_bucket((MOST, 6000 * MINUTE), MOST, 0, 0)),
    ];
    for back in [5, 30] {
        for (name, rule) in &rules {
            let seconds = clock::wall().micros() / SECOND % 60;
            // The test begins twenty seconds into a minute.
            let begin = 20 - i64::try_from(seconds).unwrap();
            server.set_clock(begin);
            let limit = leased(rule.clone(), LeaseSetting::Auto, &format!("{name}-{back}"));
            let told = on_threads(1, async |_| {
                let [one, two] = [connect(&server).await, connect(&server).await].map(gateway);
                let mut all = press(&one, &limit, 2500).await;
                let more = press(&two, &limit, 2500).await;
                all = (all.0 + more.0, all.1 + more.1);
                assert_eq!(all.0, 5000, "{name}: there is room");
                server.set_clock(begin - back);
                let three = gateway(connect(&server).await);
                for store in [&one, &two, &three, &one] {
                    let more = press(store, &limit, 1500).await;
                    all = (all.0 + more.0, all.1 + more.1);
                }
                all
            });
            let (all, in_hand) = told[0];
            println!("{name}, back by {back} s: {all} of {MOST}, {in_hand} from in hand");
            assert!(in_hand > 0, "{name}: nothing was ever in hand");
            assert!(all <= MOST + 1, "{name}, back by {back} s: {all} of {MOST}");
        }
    }
}

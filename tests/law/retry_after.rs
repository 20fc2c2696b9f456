//! Permits in hand: the wait of a refused request is long enough.

use super::leases::{leased, on_threads};
use super::numbers::{
    SECOND, clock_window, fixed_window, leaky_bucket, sliding_window, token_bucket,
};
use super::remembered_refusals::gateway;
use super::under_test::{admitted, connect, wait};
use crate::support::{Redis, long};
use std::num::NonZeroU32;
use std::time::Duration;
use tollgate::limit::LeaseSetting;
use tollgate::limit::verdict::Wait;
use tollgate::store::Check;

const KEY: &[u8] = b"hot";
/// The most requests before a refusal. A client without a refusal by then sends more slowly than its limit admits.
const PRESSED: u64 = 2_000;

/// One client sends requests until one is refused, and comes back after the given wait. No other client takes anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_when_told_is_not_refused() {
    let server = Redis::start().await;
    let rules = [
        ("bucket", token_bucket(100, SECOND, 40)),
        ("quick", token_bucket(200, SECOND, 60)),
        ("meter", leaky_bucket((100, SECOND), 60, 0, 0)),
        ("sliding", sliding_window(100, SECOND, 2, false)),
        ("strict", sliding_window(50, SECOND / 2, 5, true)),
        ("window", fixed_window(25, SECOND / 4)),
        ("clock", clock_window(25, SECOND / 4, 0)),
    ];
    for (name, rule) in rules {
        // So few units are leased only if the file says so.
        let limit = leased(rule, LeaseSetting::Most(NonZeroU32::new(8).unwrap()), name);
        assert!(limit.leases().is_some(), "{name}");
        let rounds = if long() { 100 } else { 8 };
        on_threads(1, async |_| {
            let store = gateway(connect(&server).await);
            let check = [Check::new(&limit, KEY)];
            let decide = async || store.decide(&check).await.unwrap().0.unwrap();
            let press = async || {
                for _ in 0..PRESSED {
                    let decided = decide().await;
                    if !admitted(&decided) {
                        return Some(decided);
                    }
                }
                None
            };
            for round in 0..rounds {
                // Unused permits are given back, and for a while no refusal is remembered.
                if round % 2 == 1 {
                    for _ in 0..fastrand::u8(16..24) {
                        decide().await;
                    }
                    tokio::time::sleep(Duration::from_micros(fastrand::u64(..60_000))).await;
                }
                let mut refused = press().await;
                // The client asks at further moments of the pause.
                for _ in 0..fastrand::u8(..4) {
                    tokio::time::sleep(Duration::from_micros(fastrand::u64(..8_000))).await;
                    refused = press().await;
                }
                let Some(refused) = refused else {
                    println!("{name}: this machine asks more slowly than it comes back");
                    return;
                };
                let Some(Wait::Micros(wait)) = wait(refused.decision.ruling) else {
                    panic!("{name}: {refused:?}");
                };
                tokio::time::sleep(Duration::from_micros(wait)).await;
                let back = decide().await;
                assert!(admitted(&back), "{name}, {round}: after {wait} us {back:?}");
            }
        });
    }
}

//! The numbers of docs/algorithms.md: no traffic gets more than its table says, and some traffic gets exactly as much.

use proptest::prelude::*;
use std::num::{NonZeroU32, NonZeroU64};
use tollgate::clock::Timestamp;
use tollgate::limit::clock_window::ClockWindow;
use tollgate::limit::fixed_window::FixedWindow;
use tollgate::limit::rate::{Cost, Rate};
use tollgate::limit::sliding_log::SlidingLog;
use tollgate::limit::sliding_window::SlidingWindow;
use tollgate::limit::token_bucket::TokenBucket;
use tollgate::limit::verdict::Wait;
use tollgate::limit::{Rule, State};

const P: u64 = 1_000_000;
const START: u64 = 1_795_196_930 * P;

fn rate(count: u32) -> Rate {
    Rate {
        count: NonZeroU64::new(count.into()).unwrap(),
        period: NonZeroU64::new(P).unwrap(),
    }
}

fn sliding(count: u32, parts: u32, strict: bool) -> Rule {
    let parts = NonZeroU32::new(parts).unwrap();
    Rule::SlidingWindow(SlidingWindow::new(rate(count), parts, strict))
}

fn log(count: u32) -> Rule {
    Rule::SlidingLog(SlidingLog::new(rate(count)))
}

fn by_clock(count: u32) -> Rule {
    Rule::ClockWindow(ClockWindow::by_clock(rate(count), 0))
}

/// The instants at which a unit was admitted.
fn admitted(rule: &Rule, times: impl IntoIterator<Item = (u64, u32)>) -> Vec<u64> {
    let mut state: Option<State> = None;
    let mut admitted = Vec::new();
    for (at, cost) in times {
        let now = Timestamp::from_micros(at);
        let (measured, change) = rule.check(state.as_ref(), now, Cost::new(cost.into()));
        if measured.wait == Wait::Micros(0) {
            admitted.extend(std::iter::repeat_n(at, cost as usize));
        }
        if let Some(change) = change {
            state = Some(change.update.after(state));
        }
    }
    admitted
}

/// The most units in any stretch of `span`, without its end.
fn most(admitted: &[u64], span: u64) -> u64 {
    let within = |(index, first): (usize, &u64)| {
        let end = admitted.partition_point(|at| *at < first + span);
        end.saturating_sub(index) as u64
    };
    admitted.iter().enumerate().map(within).max().unwrap_or(0)
}

/// Bursts and trickles, mostly near the borders of seconds, where windows are weakest.
fn traffic() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let near =
        (0..8_u64, -3_000..3_000_i64).prop_map(|(second, off)| second * P + (off + 3_000) as u64);
    let at = prop_oneof![near, 0..8 * P, (0..80_u64).prop_map(|tenth| tenth * P / 10)];
    prop::collection::vec((at, 1..4_u32), 1..300).prop_map(|mut all| {
        all.sort_unstable();
        all.iter_mut().for_each(|(at, _)| *at += START);
        all
    })
}

proptest! {
    #[test]
    fn nobody_gets_more_than_the_table_says(times in traffic(), n in 4..40_u32, parts in 1..11_u32, burst in 4..60_u32) {
        // The length of a part, P/k, must be a whole number of milliseconds.
        let parts = if 1_000 % parts == 0 { parts } else { 10 };
        let got = |rule: &Rule, span: u64| most(&admitted(rule, times.clone()), span);
        let n64 = u64::from(n);
        prop_assert!(got(&log(n), P) <= n64);
        prop_assert!(got(&sliding(n, parts, true), P) <= n64);
        prop_assert!(got(&sliding(n, parts, false), P) < 2 * n64);
        prop_assert!(got(&sliding(n, parts, false), P - P / u64::from(parts)) <= n64);
        prop_assert!(got(&Rule::FixedWindow(FixedWindow::new(rate(n))), P) < 2 * n64);
        prop_assert!(got(&by_clock(n), P) <= 2 * n64);
        let bucket = TokenBucket::new(rate(n), NonZeroU64::new(burst.into()).unwrap());
        for span in [1, P / 10, P, 3 * P] {
            // The end of a stretch that includes it adds these units.
            let most = u64::from(burst) + n64 * (span - 1) / P;
            prop_assert!(got(&Rule::TokenBucket(bucket), span) <= most);
        }
    }
}

/// All units that one window allows at its end, and from its border on all units of the next window.
#[test]
fn some_get_exactly_as_much() {
    let n = 10;
    let end = START + P;
    // One request begins the window. Then come as many requests as possible just before its end, and as many as
    // possible right after it.
    let two_bursts = || {
        let first = [(START, 1)].into_iter();
        let before = (0..20).map(|i| (end - 100 + i, 1));
        first.chain(before).chain((0..20).map(|i| (end + i, 1)))
    };
    let fixed = Rule::FixedWindow(FixedWindow::new(rate(n)));
    assert_eq!(most(&admitted(&fixed, two_bursts()), P), 19, "2N - 1");
    let late = || two_bursts().skip(1);
    assert_eq!(most(&admitted(&by_clock(n), late()), P), 20, "2N");
    assert_eq!(most(&admitted(&log(n), late()), P), 10, "N");
    for parts in [1, 2, 10] {
        // All requests come at the end of a part. Then requests are sent, and some admitted, until that part no longer
        // counts.
        let part = P / u64::from(parts);
        let burst = (0..20).map(|i| (START + part - 100 + i, 1));
        let drops = (0..1_000).map(|ms| (START + part + ms * 1_000, 1));
        let times: Vec<_> = burst.chain(drops).collect();
        let got = |strict| admitted(&sliding(n, parts, strict), times.clone());
        assert_eq!(most(&got(false), P), 19, "2N - 1 in {parts} parts");
        assert_eq!(most(&got(false), P - part), if parts == 1 { 0 } else { 10 });
        assert_eq!(most(&got(true), P), 10, "N in {parts} parts when strict");
    }
    let bucket = TokenBucket::new(rate(n), NonZeroU64::new(n.into()).unwrap());
    let steady = (0..=1_000).map(|ms| (START + ms * 1_000, 1));
    let closed = most(&admitted(&Rule::TokenBucket(bucket), steady), P + 1);
    assert_eq!(closed, 20, "B + N in a stretch of P, both its ends counted");
}

//! Limits of every algorithm, each in several editions: the file is edited during the twins' histories.

use super::support::{
    calendar, clock_window, concurrency, fixed_window, leaky_bucket, limit, sliding_log,
    sliding_window, token_bucket,
};
use crate::key::{IdField, Meter, MeterPlace, OnLeave, OnSilent, Sameness};
use crate::limit::dedupe::Dedupe;
use crate::limit::rate::{MOST_UNITS, Rate};
use crate::limit::{BlockRule, Limit, Mode, RefundCondition, Rule, Unit};
use http::HeaderName;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Numbers above 2^32 - 1, and small ones between: of buckets, windows, windows by the clock, and sliding windows.
fn large() -> [Vec<(Rate, Rule)>; 4] {
    const TWO_32: u64 = 1 << 32;
    let tokens = vec![
        token_bucket(6_000_000_000, 1_000_000, 6_000_000_000),
        token_bucket(3_000_000_001, 7_000_000, 9_000_000_000_000),
        token_bucket(10, 1_000_000, 10),
        token_bucket(4_294_967_291, 1_000_000, TWO_32),
        token_bucket(4_294_967_291, 1_000_000, TWO_32 - 1),
        // A period of which no state has room for more.
        token_bucket(3, 5_000_000_000_000, 7),
        token_bucket(MOST_UNITS - MOST_UNITS % 4_294_967, 4_294_967, MOST_UNITS),
        leaky_bucket(6_000_000_000, 1_000_000, 6_000_000_000, 0, 0),
    ];
    let counts = [5_000_000_000, MOST_UNITS, 100, TWO_32 - 1, TWO_32];
    let windows = counts.map(|count| fixed_window(count, 1_000_000)).into();
    let clocks = counts.map(|count| clock_window(count, 1_000_000, 300_001));
    let calendar = calendar(MOST_UNITS, Unit::Day, 1, "Europe/Berlin", 0);
    let sliding = vec![
        sliding_window(5_000_000_000, 1_000_000, 5, false),
        sliding_window(4_000_000_000_000, 1_000_000, 1, false),
        sliding_window(7, 1_000_000, 5, true),
        sliding_window(22_000_000_000_000, 1_000_000, 5, true),
        sliding_window(TWO_32 - 1, 1_000_000, 2, false),
    ];
    let clocks = clocks.into_iter().chain([calendar]).collect();
    [tokens, windows, clocks, sliding]
}

/// The numbers that a limit gets in turn while its file is edited.
pub(super) fn editions() -> Vec<Vec<Arc<Limit>>> {
    let tokens = [
        token_bucket(10, 1_000_000, 10),
        token_bucket(7, 3_000_000, 20),
        token_bucket(3, 1_000_000, 2),
        token_bucket(10_000_000, 1_000_000, 50),
        token_bucket(13, 17_000_001, 1),
        token_bucket(5000, 2_592_000_000_000, 5000),
        // Their products pass 2^53.
        token_bucket(4_294_967_291, 1_000_000, 1001),
        token_bucket(1, 2_592_000_000_001, 1700),
    ];
    let leaky = [
        leaky_bucket(50, 1_000_000, 1, 100, 2_000_000),
        leaky_bucket(7, 3_000_000, 3, 5, 400_000),
        leaky_bucket(3, 1_000_000, 2, 0, 0),
        leaky_bucket(3_000_000, 1_000_000, 4, 9, 2),
        leaky_bucket(11, 13_000_000, 1, 40, 60_000_000),
    ];
    let windows = [
        fixed_window(10, 1_000_000),
        fixed_window(3, 1_000_000),
        fixed_window(100, 1_000_000),
        fixed_window(20, 60_000_000),
    ];
    let clocks = [
        clock_window(10, 1_000_000, 0),
        fixed_window(7, 1_000_000),
        clock_window(5, 1_000_000, 300_001),
        clock_window(20, 60_000_000, 59_000_000),
    ];
    let calendars = [
        calendar(30, Unit::Day, 1, "Europe/Berlin", 0),
        calendar(50, Unit::Day, 1, "America/New_York", 8 * 3_600_000_000),
        calendar(50, Unit::Month, 1, "UTC", 0),
        calendar(40, Unit::Day, 7, "Pacific/Apia", 0),
        calendar(60, Unit::Week, 1, "Europe/Berlin", 0),
    ];
    let sliding = [
        sliding_window(10, 1_000_000, 1, false),
        sliding_window(10, 1_000_000, 5, false),
        sliding_window(7, 1_000_000, 5, true),
        sliding_window(30, 1_000_000, 2, true),
        sliding_window(3, 1_000_000, 20, false),
        sliding_window(25, 60_000_000, 6, false),
        sliding_window(9, 60_000_000, 60, true),
    ];
    let logs = [
        sliding_log(10, 1_000_000),
        sliding_log(3, 1_000_000),
        sliding_log(40, 1_000_000),
        sliding_log(20, 60_000_000),
    ];
    let flights = [
        concurrency(5, 1_000_000),
        concurrency(3, 1_000_000),
        concurrency(12, 30_000_000),
    ];
    let all = |name: &str, rules: &[(_, Rule)]| {
        let rules = rules.iter().cloned();
        rules.map(|rule| limit(name, rule)).collect()
    };
    let less = |name: &str, rules: &[(_, Rule)]| {
        let rules = rules.iter().cloned();
        let partial = |rule| Arc::new(limit(name, rule).edited(|policy| policy.partial = true));
        rules.map(partial).collect()
    };
    let once = |name: &str, rules: &[(_, Rule)], partial: bool| {
        // Some limits remember ids for less time, and some repeats come more often than allowed.
        let numbers = [
            (2_000_000, 3),
            (400_000, 1),
            (2_000_000, 1),
            (60_000_001, 2),
        ];
        let rules = rules.iter().cloned().zip(numbers.into_iter().cycle());
        let charged_once = |(rule, (ttl, repeats))| {
            let dedupe = Dedupe {
                field: IdField(HeaderName::from_static("idempotency-key")),
                ttl,
                repeats,
                of: Sameness::Path,
            };
            Arc::new(limit(name, rule).edited(|policy| {
                policy.partial = partial;
                policy.dedupe = Some(dedupe);
            }))
        };
        rules.map(charged_once).collect()
    };
    let refunds = |limits: Vec<Arc<Limit>>| {
        let gives_back = RefundCondition {
            errors: true,
            cancels: true,
            ..RefundCondition::default()
        };
        let limits = limits.into_iter();
        let one =
            |limit: Arc<Limit>| Arc::new(limit.edited(|policy| policy.refund_on = gives_back));
        limits.map(one).collect::<Vec<_>>()
    };
    let with_mode = |limits: Vec<Arc<Limit>>, mode: Mode| {
        let limits = limits.into_iter();
        let one = |limit: Arc<Limit>| Arc::new(limit.edited(|policy| policy.mode = mode));
        limits.map(one).collect::<Vec<_>>()
    };
    let shadow = |limits| with_mode(limits, Mode::Shadow);
    // The rates of one limit are charged together or not at all.
    let list = |rules: &[(_, Rule)]| {
        let rules = rules.iter().cloned().map(|rule| limit("beside-list", rule));
        let one = |limit: Arc<Limit>| {
            Arc::new(limit.edited(|policy| policy.window = Some("a rate".into())))
        };
        shadow(rules.map(one).collect())
    };
    // A change of the mode keeps the counters.
    let flips = [
        all("flips", &tokens[..3]),
        shadow(all("flips", &tokens[..3])),
    ]
    .concat();
    let metered = |limits: Vec<Arc<Limit>>, max: u64| {
        let header = HeaderName::from_static("x-units");
        let place = MeterPlace::Header(header);
        let limits = limits.into_iter();
        let one = |limit: Arc<Limit>| {
            let meter = Meter {
                place: place.clone(),
                max,
                on_leave: OnLeave::Max,
                on_silent: OnSilent::Estimate,
                tells_silence: true,
            };
            Arc::new(limit.edited(|policy| policy.meter = Some(meter)))
        };
        limits.map(one).collect::<Vec<_>>()
    };
    let all_large = large();
    let meters: Vec<_> = [leaky[2].clone()]
        .into_iter()
        .chain([
            leaky_bucket(7, 3_000_000, 3, 0, 0),
            leaky_bucket(11, 13_000_000, 40, 0, 0),
        ])
        .collect();
    let candidate = |limits| with_mode(limits, Mode::Candidate);
    let blocking = |limits: Vec<Arc<Limit>>| {
        // Some blocks grow, and some editions block no more.
        let times = [
            Some((300_000, 300_000)),
            Some((200_001, 1_500_000)),
            None,
            Some((7, 2_000_000)),
        ];
        let limits = limits.into_iter().zip(times.into_iter().cycle());
        let time = |micros| NonZeroU64::new(micros).expect("no time is zero");
        let one = |(limit, times): (Arc<Limit>, Option<(u64, u64)>)| {
            let rule = times.map(|(from, to)| BlockRule::new(time(from), time(to)));
            Arc::new(limit.edited(|policy| policy.blocking = rule))
        };
        limits.map(one).collect::<Vec<_>>()
    };
    let [large_tokens, large_windows, large_clocks, large_sliding] = &all_large;
    vec![
        flips,
        list(&tokens[..3]),
        list(&windows[..2]),
        shadow(all("beside-tokens", &tokens)),
        shadow(all("beside-smooth", &leaky)),
        candidate(all("beside-smooth", &leaky)),
        shadow(less("beside-window", &windows)),
        shadow(once("beside-once", &tokens, true)),
        candidate(once("beside-clock", &clocks, false)),
        shadow(all("beside-calendar", &calendars)),
        candidate(all("beside-sliding", &sliding)),
        shadow(all("beside-log", &logs)),
        shadow(all("beside-flight", &flights)),
        metered(all("meter-tokens", &tokens), 9),
        metered(all("meter-deep", &tokens[1..4]), u64::from(u32::MAX)),
        metered(all("meter-leaky", &meters), 5),
        metered(all("meter-window", &windows), 40),
        metered(all("meter-clock", &clocks), 40),
        metered(all("meter-calendar", &calendars), 40),
        metered(all("meter-sliding", &sliding), 40),
        shadow(metered(all("meter-beside", &tokens), 9)),
        refunds(all("refund-tokens", &tokens)),
        refunds(all("refund-leaky", &leaky)),
        refunds(less("refund-less", &tokens)),
        refunds(once("refund-once", &tokens, false)),
        // A reload makes limits begin or stop to refund charges.
        [
            all("gives", &tokens[..2]),
            refunds(all("gives", &tokens[..3])),
        ]
        .concat(),
        all("tokens", &tokens),
        all("smooth", &leaky),
        all("window", &windows),
        all("more", &tokens[1..3]),
        all("{odd}:100%", &leaky[..2]),
        all("other", &windows[..2]),
        all("clock", &clocks),
        all("calendar", &calendars),
        all("sliding", &sliding),
        all("log", &logs),
        all("flight", &flights),
        all("parts", &sliding[..5]),
        less("less-tokens", &tokens),
        less("less-smooth", &leaky),
        less("less-window", &windows),
        less("less-clock", &clocks),
        less("less-calendar", &calendars),
        less("less-sliding", &sliding),
        less("less-log", &logs),
        less("less-flight", &flights),
        once("once-tokens", &tokens, false),
        once("once-smooth", &leaky, false),
        once("once-window", &windows, false),
        once("once-calendar", &calendars, true),
        once("once-sliding", &sliding, true),
        once("once-log", &logs, false),
        once("once-less", &tokens, true),
        once("once-clock", &clocks, true),
        blocking(all("block-tokens", &tokens)),
        blocking(all("block-smooth", &leaky)),
        blocking(all("block-window", &windows)),
        blocking(all("block-calendar", &calendars)),
        blocking(all("block-sliding", &sliding)),
        blocking(all("block-log", &logs)),
        blocking(less("block-less", &tokens)),
        blocking(once("block-once", &tokens, true)),
        blocking(metered(all("block-meter", &tokens), 9)),
        blocking(refunds(all("block-refund", &windows))),
        blocking(shadow(all("block-beside", &tokens))),
        all("large-tokens", large_tokens),
        metered(all("large-meter", large_tokens), 1 << 40),
        refunds(less("large-less", large_tokens)),
        once("large-once", large_tokens, true),
        blocking(all("large-block", large_tokens)),
        shadow(all("beside-large", large_tokens)),
        all("large-window", large_windows),
        metered(all("large-counted", large_windows), MOST_UNITS),
        refunds(less("large-less-window", large_windows)),
        once("large-once-window", large_windows, true),
        all("large-clock", large_clocks),
        metered(all("large-calendar", large_clocks), 1 << 40),
        all("large-sliding", large_sliding),
        metered(less("large-less-sliding", large_sliding), 1 << 40),
        once("large-once-sliding", large_sliding, false),
    ]
}

//! Rates and times as people write them, correctly and incorrectly.

use super::*;
use crate::config::value::with_valid_offers;

#[test]
fn rates_are_read_as_people_write_them() {
    for (text, count, period) in [
        ("100/min", 100, 60 * MICROS),
        ("10/s", 10, MICROS),
        ("7/3s", 7, 3 * MICROS),
        ("8/1500ms", 8, 1_500_000),
        ("5 / 2 Hours", 5, 7_200 * MICROS),
        ("1/day", 1, 86_400 * MICROS),
        ("600/m", 600, 60 * MICROS),
        ("2/w", 2, 604_800 * MICROS),
        ("3/250us", 3, 250),
        ("4294967295/4503599627370496us", 4_294_967_295, MAX_SPAN),
        ("4294967296/s", 4_294_967_296, MICROS),
        (
            "9007199254740991/month",
            9_007_199_254_740_991,
            30 * 86_400 * MICROS,
        ),
    ] {
        let rate = rate(text).unwrap();
        assert_eq!(
            (rate.rate.count.get(), rate.rate.period.get()),
            (count, period),
            "{text}"
        );
    }
}

#[test]
fn a_wrong_rate_says_what_to_write() {
    for (text, help) in [
        ("100", "write `\"100/s\"`, `\"100/min\"` or `\"100/h\"`"),
        ("100 per minute", "write `\"100/min\"`"),
        ("10r/s", "write `\"10/s\"`"),
        ("1_000/s", "write `\"1000/s\"`"),
        ("5000 per month", "write `\"5000/month\"`"),
        ("10/secnd", "did you mean `s`?"),
        ("10/M", "`min` is a minute; a month is written `30d`"),
        (
            "10/30",
            "write `\"10/30s\"`, `\"10/30min\"` or `\"10/30h\"`",
        ),
        ("0/s", "the least rate is 1 in a long time, as `\"1/w\"`"),
        ("1/4503599627370497us", "the longest is `52124d`"),
    ] {
        assert_eq!(
            with_valid_offers(text, rate)
                .unwrap_err()
                .shown_help()
                .as_deref(),
            Some(help),
            "{text}"
        );
    }
    for text in [
        "",
        "/",
        "/s",
        "-1/s",
        "1//s",
        "1/0s",
        "99999999999999999999/s",
        "1/99999999999999999999h",
    ] {
        assert!(rate(text).is_err(), "{text}");
    }
}

#[test]
fn times_add_up() {
    for (text, micros) in [
        ("250ms", 250_000),
        ("1m30s", 90 * MICROS),
        ("2s", 2 * MICROS),
        ("1h 5min", 3_900 * MICROS),
        ("0s", 0),
        ("10 seconds", 10 * MICROS),
    ] {
        assert_eq!(
            duration(text).unwrap(),
            Duration::from_micros(micros),
            "{text}"
        );
    }
    for (text, help) in [
        ("5", "write `\"5s\"` or `\"5ms\"`"),
        ("0.5s", "write `\"500ms\"`"),
        ("1.5min", "write `\"90s\"`"),
        ("1M", "`min` is a minute; a month is written `30d`"),
    ] {
        assert_eq!(
            with_valid_offers(text, duration)
                .unwrap_err()
                .shown_help()
                .as_deref(),
            Some(help),
            "{text}"
        );
    }
    for text in [
        "",
        "s",
        "-3s",
        "1s5",
        "1 month",
        "9999999999999w",
        "1.s",
        "1..5s",
        ".5s",
    ] {
        assert!(duration(text).is_err(), "{text}");
    }
}

#[test]
fn spans_and_rates_are_shown_as_they_would_be_written() {
    for (micros, text) in [
        (0, "0s"),
        (90 * MICROS, "90s"),
        (1_500_000, "1500ms"),
        (60 * MICROS, "1min"),
        (86_400 * MICROS, "1d"),
        (1, "1us"),
        (61_001_000, "1min1s1ms"),
    ] {
        let shown = show_span(micros);
        assert!(
            shown == text || duration(&shown).unwrap() == Duration::from_micros(micros),
            "{shown}"
        );
    }
    assert_eq!(show_quota(rate("7/3s").unwrap()), "7/3s");
    assert_eq!(show_quota(rate("100/60s").unwrap()), "100/min");
    assert_eq!(show_quota(rate("5000/1month").unwrap()), "5000/month");
    assert_eq!(show_quota(rate("5000 / 3 months").unwrap()), "5000/3month");
}

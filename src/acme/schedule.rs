//! When a certificate is renewed: at a third of its life, or when its authority says so (RFC 9773).

use crate::clock::Timestamp;

/// The share of the life that is left when a certificate is renewed.
const LEFT: i64 = 3;
/// The share of the life over which renewals are spread, so that many gateways do not order at the same time.
const SPREAD: i64 = 20;

/// The wall clock, since certificates end by wall time.
pub type WallClock = fn() -> Timestamp;

/// Whole seconds since the epoch.
pub(super) type Seconds = i64;

/// The whole seconds of an instant.
pub(super) fn seconds(at: Timestamp) -> Seconds {
    Seconds::try_from(at.micros() / 1_000_000).unwrap_or(Seconds::MAX)
}

/// The time of the renewal of a certificate that is valid between these times: when a third of its life is left, less
/// `share` of 256 parts of a twentieth.
pub(super) fn renewal(not_before: Seconds, not_after: Seconds, share: u8) -> Seconds {
    let life = not_after.saturating_sub(not_before).max(0);
    let spread = life / SPREAD * Seconds::from(share) / 256;
    not_after - life / LEFT - spread
}

/// The time in a window that the authority suggests, `share` of 256 parts into the window.
pub(super) fn within(start: Seconds, end: Seconds, share: u8) -> Seconds {
    let length = end.saturating_sub(start).max(0);
    start + length / 256 * Seconds::from(share)
}

/// The share of an identity in the spreading: the same for a table's name in each process with the same `seed`.
pub(super) fn share(name: &str, seed: u64) -> u8 {
    use std::hash::BuildHasher as _;
    let hash = foldhash::fast::FixedState::with_seed(seed).hash_one(name);
    hash.to_le_bytes()[0]
}

/// A time span in words: the two largest of its units.
pub(super) fn words(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "day"), (3600, "h"), (60, "min"), (1, "s")];
    let mut left = seconds;
    let mut parts = Vec::new();
    for (length, unit) in UNITS {
        let count = left / length;
        left %= length;
        if count > 0 && parts.len() < 2 {
            let plural = if unit == "day" && count > 1 { "s" } else { "" };
            parts.push(format!("{count} {unit}{plural}"));
        }
    }
    if parts.is_empty() {
        return "0 s".into();
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ninety_days_are_renewed_with_thirty_left_and_five_minutes_likewise() {
        let day = 86_400;
        assert_eq!(renewal(0, 90 * day, 0), 60 * day);
        assert!(renewal(0, 90 * day, 255) > 55 * day);
        assert_eq!(renewal(1000, 1300, 0), 1200);
        assert_eq!(renewal(10, 10, 9), 10);
        assert_eq!(within(100, 612, 128), 356);
        assert_eq!(words(93_784), "1 day 2 h");
        assert_eq!(words(61), "1 min 1 s");
        assert_eq!(words(0), "0 s");
    }

    proptest! {
        #[test]
        fn a_renewal_is_within_the_life(
            from in 0_i64..4_000_000_000, life in 0_i64..4_000_000_000, share: u8
        ) {
            let at = renewal(from, from + life, share);
            prop_assert!(at >= from && at <= from + life);
            // Never earlier than a third and a twentieth before the end.
            prop_assert!(from + life - at <= life / 3 + life / 20 + 1);
        }
    }
}

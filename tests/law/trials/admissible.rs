//! The judge of a trial: could a store that keeps the limit have given these answers?

use super::limits::{Bound, Meant};
use super::world::Shot;
use std::collections::BTreeMap;

/// Judges a trial: every stretch of admitted requests, and every refusal.
pub(super) fn judge(meant: &Meant, shots: &[Shot], peak: usize) -> Result<(), String> {
    if let Some(odd) = shots.iter().find(|shot| !matches!(shot.status, 200 | 429)) {
        return Err(format!("answered with {}", odd.status));
    }
    let mut admitted: Vec<Shot> = shots.iter().copied().filter(Shot::admitted).collect();
    admitted.sort_by_key(|shot| shot.to);
    for bound in &meant.bounds {
        match *bound {
            Bound::Flight { most } if peak > most => {
                return Err(format!("{peak} in flight"));
            }
            Bound::Flight { .. } => {}
            Bound::Aligned {
                count,
                period,
                step,
                ..
            } => aligned(&admitted, count, period, step)?,
            _ => every_stretch(&admitted, bound)?,
        }
    }
    // A held request is judged by the instant at which it goes on, and a refusal by the queue behind that instant.
    if !meant.holds {
        for refused in shots.iter().filter(|shot| !shot.admitted()) {
            let cost = if meant.partial { 1 } else { refused.units };
            if !meant
                .bounds
                .iter()
                .any(|bound| full(bound, &admitted, refused, cost))
            {
                return Err(format!("refused though there was room: {refused:?}"));
            }
        }
    }
    Ok(())
}

/// The longest time by the store's clock that corresponds to `micros` by the test's clock. The two clocks of one
/// machine differ by rounding to whole microseconds, and by adjustments of their speed.
fn longer(micros: u64) -> u64 {
    micros + micros / 1000 + 20
}

/// The most units that the bound allows in a stretch of `micros`.
fn most(bound: &Bound, micros: u64) -> u64 {
    let micros = longer(micros);
    match *bound {
        Bound::Bucket {
            burst,
            count,
            period,
        } => burst + micros * count / period,
        // The whole periods that fit, and the one that has begun.
        Bound::Any { count, period, .. } => count * (micros / period + 1),
        Bound::Windows { count, period } => count * (micros / period + 2),
        Bound::Aligned { .. } | Bound::Flight { .. } => u64::MAX,
    }
}

/// Checks every stretch from the beginning of one request to the end of another, with all requests that lie entirely
/// within it.
fn every_stretch(admitted: &[Shot], bound: &Bound) -> Result<(), String> {
    for first in admitted {
        let mut units = 0;
        for shot in admitted.iter().filter(|shot| shot.from >= first.from) {
            units += shot.units;
            let micros = shot.to - first.from;
            if units > most(bound, micros) {
                return Err(format!("{units} in {micros} us of {bound:?}"));
            }
        }
    }
    Ok(())
}

/// Checks each window of the clock, with the requests that lie entirely within it.
fn aligned(admitted: &[Shot], count: u64, period: u64, step: u64) -> Result<(), String> {
    let mut windows: BTreeMap<u64, u64> = BTreeMap::new();
    for shot in admitted {
        let (from, to) = (shot.from - 1000, shot.to + 1000);
        // Windows begin at each step. These are the windows that contain the whole request.
        let mut start = from / step * step;
        while start + period > to {
            *windows.entry(start).or_default() += shot.units;
            start -= step;
        }
    }
    match windows.into_iter().find(|(_, units)| *units > count) {
        None => Ok(()),
        Some((start, units)) => Err(format!("{units} of {count} in the window of {start}")),
    }
}

/// May the limit have been full for `cost` when it refused? All requests that may have been counted by then are
/// included.
fn full(bound: &Bound, admitted: &[Shot], refused: &Shot, cost: u64) -> bool {
    let before = || admitted.iter().filter(|shot| shot.from <= refused.to);
    match *bound {
        Bound::Any { count, reach, .. } | Bound::Aligned { count, reach, .. } => {
            since(before(), refused, reach) + cost > count
        }
        Bound::Windows { count, period } => since(before(), refused, period) + cost > count,
        Bound::Bucket {
            burst,
            count,
            period,
        } => {
            // The level is all that has come since the bucket was last empty, less what has leaked since then. The
            // bucket may have been empty before any of the requests.
            let level = |first: &Shot| {
                let units: u64 = before()
                    .filter(|shot| shot.to >= first.from)
                    .map(|shot| shot.units)
                    .sum();
                // The time is shorter by a thousandth and a little, as above.
                let micros = refused.from.saturating_sub(first.to);
                let leaked = micros.saturating_sub(micros / 1000 + 20) * count / period;
                units.saturating_sub(leaked)
            };
            cost > burst || before().any(|first| level(first) + cost > burst)
        }
        Bound::Flight { .. } => true,
    }
}

/// The requests that may have been counted within `reach` of the refusal.
fn since<'a>(before: impl Iterator<Item = &'a Shot>, refused: &Shot, reach: u64) -> u64 {
    let edge = refused.from.saturating_sub(longer(reach));
    let counted = before.filter(|shot| shot.to >= edge);
    counted.map(|shot| shot.units).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shot(from: u64, to: u64, status: u16) -> Shot {
        Shot {
            from: 1_000_000_000 + from,
            to: 1_000_000_000 + to,
            status,
            units: 1,
        }
    }

    fn meant(bound: Bound) -> Meant {
        Meant {
            lines: String::new(),
            bounds: vec![bound],
            holds: false,
            partial: false,
            dearest: 1,
        }
    }

    /// If a judge accepts everything, its judgement is worthless.
    #[test]
    fn one_too_many_is_found_and_so_is_a_refusal_without_need() {
        let (count, period) = (2, 100_000);
        let log = Bound::Any {
            count,
            period,
            reach: period,
        };
        let window = Bound::Windows { count, period };
        let clock = Bound::Aligned {
            count,
            period,
            step: period,
            reach: period,
        };
        let bucket = Bound::Bucket {
            burst: 2,
            count,
            period,
        };
        let two = [shot(5_000, 6_000, 200), shot(7_000, 9_000, 200)];
        let third = |status| [&two[..], &[shot(20_000, 21_000, status)]].concat();
        for bound in [log, clock, bucket] {
            let meant = meant(bound);
            assert!(judge(&meant, &two, 0).is_ok());
            assert!(judge(&meant, &third(429), 0).is_ok(), "{bound:?}");
            assert!(judge(&meant, &third(200), 0).is_err(), "{bound:?}");
            let needless = [two[0], shot(20_000, 21_000, 429)];
            assert!(judge(&meant, &needless, 0).is_err(), "{bound:?}");
        }
        // Two windows may meet in this stretch, but three may not.
        let five: Vec<Shot> = (0..5)
            .map(|n| shot(n * 1000, n * 1000 + 500, 200))
            .collect();
        assert!(judge(&meant(window), &five[..4], 0).is_ok());
        assert!(judge(&meant(window), &five, 0).is_err());
        assert!(judge(&meant(Bound::Flight { most: 3 }), &two, 4).is_err());
        assert!(judge(&meant(log), &[shot(0, 1, 503)], 0).is_err());
    }
}

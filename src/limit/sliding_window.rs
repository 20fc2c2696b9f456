//! Sliding window: the last P, in k parts; a part that is partly outside counts in proportion, or whole if strict.
//! Twin: `lua/sliding_window.lua`.
//!
//! Parts start at whole multiples of P/k since the epoch, and time inside a part is counted in milliseconds, so that
//! the arithmetic stays in whole numbers for all weights.

use super::rate::{Cost, Rate, Span, most_counted};
use super::state::Counts;
use super::verdict::{Measurement, Verdict, Wait};
use super::{Change, PartsState, Refund, State};
use crate::clock::Timestamp;
use smallvec::SmallVec;
use std::num::NonZeroU32;

/// The largest product of a count and a part's milliseconds: sums of two such products stay exact in the scripts'
/// doubles.
pub const MAX_PRODUCT: u64 = 1 << 52;

/// The most parts a window may have: a decision reads each of them.
pub const MAX_PARTS: u32 = 100;

/// A sliding window's numbers, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    /// N: the quota of any stretch of P, apart from the surplus that the weights admit.
    pub limit: u64,
    /// P/k: the length of a part, in milliseconds.
    pub part: u64,
    /// k: the number of parts in a window.
    pub parts: u32,
    /// Does the oldest part count whole? Then never more than N are admitted in any stretch of P.
    pub strict: bool,
}

/// The counts at an instant.
struct PartCounts {
    /// Start of the present part in milliseconds.
    start: u64,
    counts: Counts,
    /// Was the stored state impossible under the present numbers or clock? If so, it was set to the nearest possible
    /// one.
    mended: bool,
}

impl SlidingWindow {
    /// A window of `rate.count` in each `rate.period`, in `parts`. The caller has checked that a part is whole
    /// milliseconds and that [`SlidingWindow::most`] is not exceeded.
    #[must_use]
    pub fn new(rate: Rate, parts: NonZeroU32, strict: bool) -> Self {
        let part = rate.period.get() / 1000 / u64::from(parts.get());
        Self {
            limit: rate.count.get(),
            part: part.max(1),
            parts: parts.get(),
            strict,
        }
    }

    /// P in microseconds.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.part * u64::from(self.parts) * 1000
    }

    /// The largest quota that can be computed exactly if a part is `part` milliseconds long.
    #[must_use]
    pub fn most(part: u64) -> u64 {
        MAX_PRODUCT / part.max(1)
    }

    /// Would `cost` be admitted at `now`, and which state would then be stored?
    #[must_use]
    pub fn check(
        &self,
        state: Option<&PartsState>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measurement, Option<Change>) {
        let mut seen = self.counts_at(state, now);
        let (whole, oldest) = self.used(&seen, now);
        let most = most_counted(self.limit);
        let units = (whole + oldest.div_ceil(self.part)).min(most);
        let left = self.ends(&seen).map_or(0, |ends| ends.since(now));
        let standing = |units: u64| Span {
            whole: left,
            part: units,
        };
        if let Some(measured) = Measurement::uncounted(self.limit, cost, standing(units)) {
            return (measured, None);
        }
        let wanted = whole * self.part + oldest + cost.units() * self.part;
        match wanted.checked_sub(self.limit * self.part) {
            None | Some(0) => {
                seen.counts[0] += cost.units();
                let units = (units + cost.units()).min(most);
                (Measurement::admitted(standing(units)), self.change(seen))
            }
            Some(excess) => {
                let wait = self.wait(&seen, excess, oldest, now);
                let refused = Measurement::refused(Wait::Micros(wait), standing(units));
                let change = if seen.mended { self.change(seen) } else { None };
                (refused, change)
            }
        }
    }

    /// Interprets either store's reply, given at `at`. `charged` is false when another limit of the request refused.
    #[must_use]
    pub fn verdict(
        &self,
        measured: Measurement,
        at: Timestamp,
        cost: Cost,
        charged: bool,
    ) -> Verdict {
        let taken = self.lives(self.start(at)).since(at);
        measured.verdict(self.limit, cost, charged, taken)
    }

    /// The part that lies around `at`, from its start to its end, in microseconds.
    #[must_use]
    pub fn part_at(&self, at: Timestamp) -> (u64, u64) {
        let start = self.start(at);
        (start * 1000, (start + self.part) * 1000)
    }

    /// Takes `cost` back out of the part that starts at `part`, if that part still counts.
    #[must_use]
    pub fn refund(&self, state: &PartsState, part: u64, cost: Cost, now: Timestamp) -> Refund {
        let same = state.counts.len() == self.parts as usize + 1;
        let back = state.start.checked_sub(part);
        let Some(back) = back.filter(|back| same && back.is_multiple_of(self.part * 1000)) else {
            return Refund::Nothing;
        };
        let mut counts = state.counts.clone();
        let index = usize::try_from(back / (self.part * 1000)).unwrap_or(usize::MAX);
        let Some(count) = counts.get_mut(index) else {
            return Refund::Nothing;
        };
        if *count < cost.units() || cost == Cost::ZERO || self.lives(part / 1000) <= now {
            return Refund::Nothing;
        }
        *count -= cost.units();
        let left = PartCounts {
            start: state.start / 1000,
            counts,
            mended: false,
        };
        match self.change(left) {
            Some(change) if change.ends > now => Refund::Left(change),
            _ => Refund::Gone,
        }
    }

    /// The counts at `now`.
    ///
    /// Each stored part counts in the part that contains its last millisecond, or in the present part if that is
    /// earlier. Parts of another length are converted to the client's disadvantage. Parts that are in the future after
    /// the clock has stepped back count as present.
    fn counts_at(&self, state: Option<&PartsState>, now: Timestamp) -> PartCounts {
        let ms = now.micros() / 1000;
        let start = ms - ms % self.part;
        let mut counts: Counts = SmallVec::from_elem(0, self.parts as usize + 1);
        let none = |counts| PartCounts {
            start,
            counts,
            mended: false,
        };
        let Some((state, length)) = state.and_then(|state| Some((state, self.length(state)?)))
        else {
            return none(counts);
        };
        let mut mended = length != self.part;
        let (length, part, present) = (signed(length), signed(self.part), signed(ms));
        let (mut total, most) = (0_u64, most_counted(self.limit));
        let mut from = signed(state.start / 1000);
        for count in state.counts.iter().copied() {
            if count > 0 {
                mended |= from > present;
                let last = (from + length - 1).min(present);
                let index = (signed(start) - (last - last.rem_euclid(part))) / part;
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                if let Some(slot) = counts.get_mut(index) {
                    *slot = slot.saturating_add(count).min(most);
                    total = total.saturating_add(count);
                }
            }
            from -= length;
        }
        // Two windows may be full: the one that leaves, and the one that fills meanwhile.
        if u128::from(total) * u128::from(self.part) > 2 * u128::from(MAX_PRODUCT) {
            // This value was never a state of this limit.
            counts.fill(0);
            return none(counts);
        }
        PartCounts {
            start,
            counts,
            mended,
        }
    }

    /// The length of a stored state's parts in milliseconds, if the state could be one of this limit.
    fn length(&self, state: &PartsState) -> Option<u64> {
        let held = u64::try_from(state.counts.len()).ok()?.checked_sub(1)?;
        let window = self.part * u64::from(self.parts);
        let possible = held > 0
            && window.is_multiple_of(held)
            && state.start.is_multiple_of(window / held * 1000);
        possible.then(|| window / held)
    }

    /// The units that count whole, and the rest of the oldest part in units times milliseconds.
    fn used(&self, seen: &PartCounts, now: Timestamp) -> (u64, u64) {
        let (oldest, whole) = seen.counts.split_last().unwrap_or((&0, &[]));
        let rest = if self.strict {
            self.part
        } else {
            self.part - (now.micros() / 1000 - seen.start)
        };
        (whole.iter().sum(), oldest * rest)
    }

    /// The time until `excess` units times milliseconds have left; `oldest` of them leave with the oldest part.
    fn wait(&self, seen: &PartCounts, excess: u64, oldest: u64, now: Timestamp) -> u64 {
        let mut need = excess;
        let mut at = seen.start;
        for (index, count) in seen.counts.iter().copied().enumerate().rev() {
            let first = index == self.parts as usize;
            let leaving = if first { oldest } else { count * self.part };
            if need > leaving {
                need -= leaving;
                at += self.part;
                continue;
            }
            at = if self.strict {
                at + self.part
            } else if first {
                // The present part has been losing weight since before now.
                now.micros() / 1000 + need.div_ceil(count.max(1))
            } else {
                at + need.div_ceil(count.max(1))
            };
            break;
        }
        Timestamp::from_micros(at.saturating_mul(1000)).since(now)
    }

    /// The instant at which the newest counted units stop counting.
    fn ends(&self, seen: &PartCounts) -> Option<Timestamp> {
        let newest = seen.counts.iter().position(|count| *count > 0)? as u64;
        let parts = u64::from(self.parts) + 1 - newest;
        Some(Timestamp::from_micros(
            (seen.start + parts * self.part) * 1000,
        ))
    }

    /// The instant at which a part that starts at `start` milliseconds stops counting.
    fn lives(&self, start: u64) -> Timestamp {
        Timestamp::from_micros((start + (u64::from(self.parts) + 1) * self.part) * 1000)
    }

    fn start(&self, at: Timestamp) -> u64 {
        let ms = at.micros() / 1000;
        ms - ms % self.part
    }

    /// The state to be stored. Empty parts at the front are left out, so that the state ends when it is useless.
    fn change(&self, seen: PartCounts) -> Option<Change> {
        let ends = self.ends(&seen)?;
        let empty = seen.counts.iter().take_while(|count| **count == 0).count();
        let mut counts = seen.counts;
        counts.rotate_left(empty);
        let start = (seen.start - empty as u64 * self.part) * 1000;
        let state = State::Parts(PartsState { start, counts });
        Some(Change::put(state, ends))
    }
}

/// A number of milliseconds since the epoch is far below the bound of the type.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::rate::MOST_OF_FOUR_BYTES;
    use std::num::NonZeroU64;

    fn window(count: u64, period: u64) -> SlidingWindow {
        let rate = Rate {
            count: NonZeroU64::new(count).unwrap(),
            period: NonZeroU64::new(period).unwrap(),
        };
        SlidingWindow::new(rate, NonZeroU32::MIN, false)
    }

    fn ask(
        rule: &SlidingWindow,
        state: &mut Option<PartsState>,
        at: u64,
        cost: u64,
    ) -> Measurement {
        let now = Timestamp::from_micros(at);
        let (measured, change) = rule.check(state.as_ref(), now, Cost::new(cost));
        if let Some(change) = change
            && let State::Parts(parts) = change.update.after(None)
        {
            *state = Some(parts);
        }
        measured
    }

    #[test]
    fn the_greatest_quota_counts_two_windows() {
        let most = SlidingWindow::most(1000);
        assert!(most > MOST_OF_FOUR_BYTES);
        let (rule, mut state) = (window(most, 1_000_000), None);
        assert_eq!(
            ask(&rule, &mut state, 5_000_000, most).wait,
            Wait::Micros(0)
        );
        let late = 6_900_000;
        let free = most - most.div_ceil(10);
        assert_eq!(ask(&rule, &mut state, late, free).wait, Wait::Micros(0));
        assert_eq!(ask(&rule, &mut state, late, 0).span.part, most);
        assert_ne!(ask(&rule, &mut state, late, 1).wait, Wait::Micros(0));
    }

    #[test]
    fn a_small_limit_counts_no_further_than_four_bytes() {
        let (large, small) = (window(5_000_000_000, 1_000_000), window(7, 1_000_000));
        let mut state = None;
        ask(&large, &mut state, 5_000_000, 5_000_000_000);
        let asked = ask(&small, &mut state, 5_000_000, 0);
        assert_eq!(asked.span.part, MOST_OF_FOUR_BYTES);
        let asked = ask(&large, &mut state, 5_000_000, 0);
        assert_eq!(asked.span.part, 5_000_000_000);
    }
}

//! The course of a replay over time: the numbers of admitted, delayed and refused requests in equal stretches, few
//! enough to be drawn.

use super::clients::SIDES;

/// The most stretches that are kept; beyond them, neighbours are joined.
const MOST: usize = 240;

/// Lengths of a stretch in microseconds, each a multiple of the length before. The last is followed by its doublings.
const LENGTHS: [u64; 19] = [
    1_000,
    2_000,
    10_000,
    20_000,
    100_000,
    200_000,
    1_000_000,
    2_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    600_000_000,
    1_800_000_000,
    3_600_000_000,
    7_200_000_000,
    21_600_000_000,
    43_200_000_000,
    86_400_000_000,
];

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeKind {
    /// The request proceeded at once, or matched no route.
    Admitted,
    /// The request was held, and then proceeded.
    Delayed,
    /// The request was refused.
    Refused,
}

impl OutcomeKind {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Admitted, Self::Delayed, Self::Refused];

    /// The outcome's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["admitted", "delayed", "refused"][self as usize]
    }
}

/// The numbers of requests of a stretch that were admitted, delayed and refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimelineInterval {
    counts: [u64; OutcomeKind::ALL.len()],
}

impl TimelineInterval {
    /// The requests with this outcome.
    #[must_use]
    pub fn of(&self, kind: OutcomeKind) -> u64 {
        self.counts[kind as usize]
    }

    fn count(&mut self, kind: OutcomeKind) {
        self.counts[kind as usize] += 1;
    }

    fn add(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }
}

/// All stretches of a trace, for each file.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// The position of the stretches' length in `LENGTHS`.
    length: usize,
    /// The number of the first stretch, counted from the epoch.
    first: u64,
    /// The end of the last stretch: an instant before it needs no division.
    until: u64,
    intervals: Vec<[TimelineInterval; SIDES]>,
}

impl Timeline {
    /// Adds the outcomes of a request at `at`, one for each file. `at` is never before the previous one.
    pub(super) fn add(&mut self, at: u64, kinds: [OutcomeKind; SIDES]) {
        if at >= self.until {
            self.reach(at);
        }
        if let Some(last) = self.intervals.last_mut() {
            for (interval, kind) in last.iter_mut().zip(kinds) {
                interval.count(kind);
            }
        }
    }

    /// Makes the stretch of `at` the last one.
    #[cold]
    fn reach(&mut self, at: u64) {
        if self.intervals.is_empty() {
            self.first = at / self.length();
        }
        while at / self.length() - self.first >= MOST as u64 {
            self.widen();
        }
        let number = at / self.length();
        let index = usize::try_from(number - self.first).unwrap_or(MOST - 1);
        self.intervals.resize(index + 1, Default::default());
        self.until = (number + 1) * self.length();
    }

    /// The length of a stretch, in microseconds.
    #[must_use]
    pub fn length(&self) -> u64 {
        length(self.length)
    }

    /// The beginning of the first stretch.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.first * self.length()
    }

    /// The stretches of file `side`, and the length of each. There are at most `most`: if there are more, neighbours
    /// are joined.
    #[must_use]
    pub fn of(&self, side: usize, most: usize) -> (Vec<TimelineInterval>, u64) {
        let together = self.intervals.len().div_ceil(most.max(1)).max(1);
        let joined = self.intervals.chunks(together).map(|chunk| {
            let mut sum = TimelineInterval::default();
            for interval in chunk {
                sum.add(interval[side]);
            }
            sum
        });
        (joined.collect(), self.length() * together as u64)
    }

    #[cold]
    fn widen(&mut self) {
        let ratio = length(self.length + 1) / self.length();
        let first = self.first / ratio;
        let mut wider: Vec<[TimelineInterval; SIDES]> = Vec::with_capacity(MOST);
        for (index, interval) in self.intervals.iter().enumerate() {
            let at = usize::try_from((self.first + index as u64) / ratio - first).unwrap_or(0);
            wider.resize(wider.len().max(at + 1), Default::default());
            for (sum, more) in wider[at].iter_mut().zip(interval) {
                sum.add(*more);
            }
        }
        self.length += 1;
        self.first = first;
        self.intervals = wider;
    }
}

fn length(index: usize) -> u64 {
    let last = LENGTHS.len() - 1;
    LENGTHS[index.min(last)] << index.saturating_sub(last).min(20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_length_is_a_multiple_of_the_one_before() {
        for index in 0..40 {
            assert_eq!(length(index + 1) % length(index), 0, "{index}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_moves_far(mut times in prop::collection::vec(0..1_u64 << 51, 1..300)) {
            times.sort_unstable();
            let mut timeline = Timeline::default();
            for at in &times {
                timeline.add(*at, [OutcomeKind::Admitted, OutcomeKind::Refused]);
                prop_assert!(timeline.intervals.len() <= MOST);
            }
            let (intervals, length) = timeline.of(0, 60);
            prop_assert!(intervals.len() <= 60);
            let mut expected = vec![0; intervals.len()];
            for at in &times {
                expected[((at - timeline.start()) / length) as usize] += 1;
            }
            let counted: Vec<u64> = intervals.iter().map(|interval| interval.of(OutcomeKind::Admitted)).collect();
            prop_assert_eq!(counted, expected);
        }
    }
}

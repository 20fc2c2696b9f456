//! The waits of requests that were held, counted in steps of a thousandth. The memory does not grow with the number of
//! requests.

/// The number of steps for each doubling of the wait, as a power of two.
const FINE: u32 = 10;

/// Counts of waits by length.
#[derive(Debug, Default, Clone)]
pub(super) struct WaitHistogram {
    /// For each step, the number of its waits and the longest one. A quantile is exact if all waits of its step are
    /// equal.
    steps: Vec<(u64, u64)>,
    count: u64,
}

impl WaitHistogram {
    /// Adds a wait in microseconds.
    pub(super) fn add(&mut self, wait: u64) {
        let step = step(wait);
        if self.steps.len() <= step {
            self.steps.resize(step + 1, (0, 0));
        }
        let (count, longest) = &mut self.steps[step];
        *count += 1;
        *longest = wait.max(*longest);
        self.count += 1;
    }

    /// The wait that `per_mille` of a thousand waits do not exceed; `None` if no request waited.
    pub(super) fn quantile(&self, per_mille: u64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let wanted = (u128::from(self.count) * u128::from(per_mille))
            .div_ceil(1_000)
            .max(1);
        let mut seen = 0;
        let reached = |(count, _): &&(u64, u64)| {
            seen += u128::from(*count);
            seen >= wanted
        };
        self.steps.iter().find(reached).map(|(_, longest)| *longest)
    }
}

/// Below `2^(FINE + 1)` every wait has its own step; above, each doubling has `2^FINE`.
fn step(wait: u64) -> usize {
    let above = (u64::BITS - wait.leading_zeros()).saturating_sub(FINE + 1);
    let step = (u64::from(above) << FINE) + (wait >> above);
    usize::try_from(step).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nobody_waited() {
        assert_eq!(WaitHistogram::default().quantile(500), None);
    }

    #[test]
    fn equal_waits_are_told_exactly() {
        let mut waits = WaitHistogram::default();
        for _ in 0..99 {
            waits.add(123_457);
        }
        waits.add(7_654_321);
        let quantiles = [500, 990, 1_000].map(|at| waits.quantile(at));
        assert_eq!(quantiles, [Some(123_457), Some(123_457), Some(7_654_321)]);
    }

    proptest! {
        #[test]
        fn a_quantile_is_a_thousandth_off_at_most(mut all in prop::collection::vec(0..=u64::MAX >> 8, 1..200), at in 1..=1_000_u64) {
            let mut waits = WaitHistogram::default();
            for wait in &all {
                waits.add(*wait);
            }
            all.sort_unstable();
            let exact = all[(all.len() as u64 * at).div_ceil(1_000) as usize - 1];
            let quantiles = waits.quantile(at).unwrap();
            prop_assert!(quantiles >= exact && quantiles - exact <= exact >> FINE, "{} {}", quantiles, exact);
        }
    }
}

//! Random numbers from a seed: the same seed always draws the same case.

use fastrand::Rng;

/// A source of random draws.
#[derive(Debug)]
pub(super) struct Dice(Rng);

impl Dice {
    pub(super) fn of(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// True in this share of a hundred draws.
    pub(super) fn percent(&mut self, share: u32) -> bool {
        self.0.u32(..100) < share
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    /// One of these values.
    pub(super) fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    /// The position of one of these weights. A position is as likely as its weight.
    pub(super) fn weighed(&mut self, weights: &[u32]) -> usize {
        let mut left = self.0.u32(..weights.iter().sum::<u32>());
        for (index, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        weights.len() - 1
    }

    /// Between `least` and `most` different values, in their order.
    pub(super) fn some<T: Clone>(&mut self, all: &[T], least: usize, most: usize) -> Vec<T> {
        let most = most.min(all.len());
        let count = least.min(most) + self.below(most.saturating_sub(least) + 1);
        let mut places: Vec<usize> = (0..all.len()).collect();
        self.0.shuffle(&mut places);
        places.truncate(count.min(all.len()));
        places.sort_unstable();
        places.into_iter().map(|place| all[place].clone()).collect()
    }
}

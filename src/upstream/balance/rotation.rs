//! Smooth weighted round robin: every server has its share at every moment, and equal turns do not bunch.
//!
//! Each turn gives every server its weight as credit; the server with the most credit is chosen and pays the sum of all
//! weights (as in nginx). The sums over one whole round are exact.

/// The turns of the available servers in one worker.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    weights: Vec<u32>,
    credit: Vec<i64>,
    total: i64,
    /// All weights are equal: the servers are used in sequence.
    is_even: bool,
    last: usize,
}

/// The most turns that are skipped at random at the start.
const MOST_SKIPPED: i64 = 1_000;

impl Rotation {
    /// The turns of servers with these weights, which are above zero. Workers begin at different positions; otherwise a
    /// gateway with few requests would favour the first server.
    pub(in crate::upstream) fn new(weights: Vec<u32>) -> Self {
        let total = weights.iter().map(|weight| i64::from(*weight)).sum();
        let is_even = weights.windows(2).all(|pair| pair[0] == pair[1]);
        let many = weights.len();
        let mut rotation = Self {
            credit: vec![0; many],
            weights,
            total,
            is_even,
            last: fastrand::usize(..many.max(1)),
        };
        if !is_even {
            for _ in 0..fastrand::i64(0..total.clamp(1, MOST_SKIPPED)) {
                rotation.next();
            }
        }
        rotation
    }

    /// The position of the next server; `None` if there is none.
    #[inline]
    pub(in crate::upstream) fn next(&mut self) -> Option<usize> {
        if !self.is_even {
            return self.next_of_uneven();
        }
        let next = self.last + 1;
        self.last = if next < self.weights.len() { next } else { 0 };
        (!self.weights.is_empty()).then_some(self.last)
    }

    fn next_of_uneven(&mut self) -> Option<usize> {
        let mut richest = None;
        let mut most = i64::MIN;
        for (position, (credit, weight)) in self.credit.iter_mut().zip(&self.weights).enumerate() {
            *credit += i64::from(*weight);
            if *credit > most {
                (richest, most) = (Some(position), *credit);
            }
        }
        self.credit[richest?] -= self.total;
        richest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_round_gives_each_server_its_weight_exactly(weights in prop::collection::vec(1_u32..50, 1..9)) {
            let total: u32 = weights.iter().sum();
            let mut rotation = Rotation::new(weights.clone());
            let mut turns = vec![0; weights.len()];
            for _ in 0..total {
                turns[rotation.next().unwrap()] += 1;
            }
            prop_assert_eq!(turns, weights);
        }

        #[test]
        fn at_any_moment_no_server_is_far_from_its_share(weights in prop::collection::vec(1_u32..50, 2..9), turns in 1_u32..500) {
            let total: u32 = weights.iter().sum();
            let mut rotation = Rotation::new(weights.clone());
            let mut taken = vec![0_u32; weights.len()];
            for _ in 0..turns {
                taken[rotation.next().unwrap()] += 1;
            }
            for (taken, weight) in taken.iter().zip(&weights) {
                let share = f64::from(turns) * f64::from(*weight) / f64::from(total);
                let many = u32::try_from(weights.len()).unwrap();
                prop_assert!((f64::from(*taken) - share).abs() <= f64::from(many));
            }
        }
    }

    #[test]
    fn rotations_begin_at_different_places() {
        let first = |weights: &[u32]| Rotation::new(weights.to_vec()).next();
        for weights in [&[1, 1, 1][..], &[3, 2, 1]] {
            let firsts: std::collections::HashSet<_> = (0..200).map(|_| first(weights)).collect();
            assert!(firsts.len() > 1, "{weights:?}");
        }
        assert_eq!(first(&[]), None);
    }
}

//! The choice of the server with the fewest requests in flight for its weight, and the choice by weight alone.

/// Up to this number of servers are all compared; of more, two are picked at random.
const ALL: usize = 8;

/// The position of the server that has the fewest (in flight + 1) / weight; ties are broken by chance. `None` if there
/// is no server. Of more than [`ALL`] servers two are picked at random, by weight, and compared.
pub(in crate::upstream) fn least(
    weights: &[u32],
    total: u64,
    in_flight: impl Fn(usize) -> u32,
) -> Option<usize> {
    let load = |position: usize| u64::from(in_flight(position)) + 1;
    if weights.len() > ALL {
        let one = by_weight(weights, total)?;
        let other = by_weight(weights, total)?;
        let is_less = load(other) * u64::from(weights[one]) < load(one) * u64::from(weights[other]);
        return Some(if is_less { other } else { one });
    }
    let mut best = None;
    let (mut best_load, mut best_weight, mut ties) = (0, 0, 0);
    for (position, weight) in weights.iter().enumerate() {
        let (load, weight) = (load(position), u64::from(*weight));
        let order = (load * best_weight).cmp(&(best_load * weight));
        let is_better = match order {
            _ if best.is_none() => true,
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => {
                ties += 1;
                fastrand::u32(..=ties) == 0
            }
            std::cmp::Ordering::Greater => false,
        };
        if order.is_lt() || best.is_none() {
            ties = 0;
        }
        if is_better {
            (best, best_load, best_weight) = (Some(position), load, weight);
        }
    }
    best
}

/// A random server, each with a probability of its part of `total`, the sum of the weights.
pub(super) fn by_weight(weights: &[u32], total: u64) -> Option<usize> {
    let mut left = fastrand::u64(..total.max(1));
    weights.iter().position(|weight| {
        let weight = u64::from(*weight);
        let is_it = left < weight;
        left = left.saturating_sub(weight);
        is_it
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn total(weights: &[u32]) -> u64 {
        weights.iter().map(|weight| u64::from(*weight)).sum()
    }

    proptest! {
        #[test]
        fn no_server_has_less_for_its_weight(servers in prop::collection::vec((1_u32..1000, 0_u32..1000), 1..=ALL)) {
            let (weights, loads): (Vec<u32>, Vec<u32>) = servers.into_iter().unzip();
            let chosen = least(&weights, total(&weights), |at| loads[at]).unwrap();
            let of = |at: usize| (u64::from(loads[at]) + 1, u64::from(weights[at]));
            let (load, weight) = of(chosen);
            for other in 0..weights.len() {
                let (its, its_weight) = of(other);
                prop_assert!(load * its_weight <= its * weight);
            }
        }
    }

    #[test]
    fn ties_are_broken_by_chance_and_evenly() {
        let mut chosen = [0_u32; 4];
        for _ in 0..40_000 {
            chosen[least(&[5, 5, 5, 5], 20, |_| 3).unwrap()] += 1;
        }
        assert!(
            chosen.iter().all(|times| (9_500..10_500).contains(times)),
            "{chosen:?}"
        );
    }

    #[test]
    fn requests_that_last_share_out_by_weight() {
        for many in [2, 8, 20] {
            let weights: Vec<u32> = (0..many)
                .map(|at| if at % 2 == 0 { 1 } else { 4 })
                .collect();
            let mut loads = vec![0_u32; many];
            for _ in 0..many * 500 {
                let chosen = least(&weights, total(&weights), |at| loads[at]).unwrap();
                loads[chosen] += 1;
            }
            let light: u32 = loads.iter().step_by(2).sum();
            let heavy: u32 = loads.iter().skip(1).step_by(2).sum();
            let ratio = f64::from(heavy) / f64::from(light);
            assert!((3.8..4.2).contains(&ratio), "{many} servers: {ratio}");
        }
    }

    #[test]
    fn chance_follows_the_weights() {
        let weights = [1, 2, 7];
        let mut chosen = [0_u32; 3];
        for _ in 0..100_000 {
            chosen[by_weight(&weights, 10).unwrap()] += 1;
        }
        for (times, weight) in chosen.iter().zip(weights) {
            let share = f64::from(*times) / 100_000.0;
            assert!(
                (share - f64::from(weight) / 10.0).abs() < 0.01,
                "{chosen:?}"
            );
        }
        assert_eq!(by_weight(&[], 0), None);
        assert_eq!(least(&[], 0, |_| 0), None);
    }
}

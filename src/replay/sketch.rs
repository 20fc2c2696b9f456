//! An estimate of the number of different hashes, without keeping them: a HyperLogLog of 16 KiB, with an error of about
//! 0.8 %.

/// The number of registers, as a power of two.
const BITS: u32 = 14;
const REGISTERS: usize = 1 << BITS;

/// Counts different hashes.
#[derive(Debug, Clone)]
pub(super) struct Sketch {
    /// For each register, the longest run of zeros among its hashes, plus one.
    longest: Box<[u8]>,
}

impl Sketch {
    /// A sketch without hashes.
    pub(super) fn new() -> Self {
        Self {
            longest: vec![0; REGISTERS].into(),
        }
    }

    /// Adds a hash; one that was added before changes nothing.
    pub(super) fn add(&mut self, hash: u64) {
        let register = usize::try_from(hash >> (u64::BITS - BITS)).unwrap_or(0);
        // A bit set below the hash ends every run.
        let run = ((hash << BITS) | (1 << (BITS - 1))).leading_zeros() + 1;
        let longest = &mut self.longest[register];
        *longest = u8::try_from(run).unwrap_or(u8::MAX).max(*longest);
    }

    /// The estimated number of different hashes.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of a count"
    )]
    pub(super) fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let sum: f64 = self
            .longest
            .iter()
            .map(|run| (-f64::from(*run)).exp2())
            .sum();
        let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        let empty = self.longest.iter().filter(|run| **run == 0).count();
        // A small number is estimated better from the registers that no hash has hit.
        if raw <= 2.5 * registers && empty > 0 {
            return (registers * (registers / empty as f64).ln()).round() as u64;
        }
        raw.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_near() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut sketch = Sketch::new();
        let mut exact: u64 = 0;
        for wanted in [0_u64, 1, 100, 10_000, 50_000, 1_000_000] {
            while exact < wanted {
                let hash = random.u64(..);
                sketch.add(hash);
                sketch.add(hash);
                exact += 1;
            }
            let estimate = sketch.estimate();
            assert!(
                estimate.abs_diff(exact) <= exact / 30,
                "{estimate} for {exact}"
            );
        }
    }
}

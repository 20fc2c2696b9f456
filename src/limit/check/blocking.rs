//! The block of a key: after a refusal, a limit refuses the key for a time, whatever its counter would say. Twin:
//! `lua/blocking.lua`.
//!
//! The state is beside the counter, and is written when a block begins. Requests that the block refuses do not change
//! it. A cost beyond the whole limit begins no block: such a request says nothing about how often its key comes.

use crate::clock::Timestamp;
use crate::limit::rate::Span;
use crate::limit::verdict::{BlockPhase, Measurement, Wait};
use crate::limit::{BlockState, Change, State};
use std::num::NonZeroU64;

/// The times for which a limit blocks a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRule {
    /// The length of a first block, in microseconds.
    shortest: NonZeroU64,
    /// The greatest length, in microseconds: a block soon after another lasts twice as long as that, up to this.
    longest: NonZeroU64,
}

/// The result of a check of a limit that blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCheck {
    /// The measurement, for the verdict.
    pub measured: Measurement,
    /// The state to store, for any answers of the other limits: of a block that begins, or one mended.
    pub block: Option<BlockState>,
}

impl BlockCheck {
    /// A check that leaves the block as it is.
    fn unchanged(measured: Measurement) -> Self {
        Self {
            measured,
            block: None,
        }
    }
}

impl BlockRule {
    /// Blocks of `shortest` microseconds, or longer ones up to `longest` where they follow each other. A `longest` below
    /// `shortest` counts as `shortest`.
    #[must_use]
    pub fn new(shortest: NonZeroU64, longest: NonZeroU64) -> Self {
        let longest = longest.max(shortest);
        Self { shortest, longest }
    }

    /// The length of a first block, in microseconds.
    #[must_use]
    pub fn shortest(self) -> u64 {
        self.shortest.get()
    }

    /// The length of the longest block, in microseconds.
    #[must_use]
    pub fn longest(self) -> u64 {
        self.longest.get()
    }

    /// Does a block that soon follows another last longer?
    #[must_use]
    pub fn grows(self) -> bool {
        self.longest > self.shortest
    }

    /// The answer at `now` for a key with the block `held`, where the limit's own count says `measured`.
    #[must_use]
    pub fn check(
        self,
        held: Option<BlockState>,
        now: Timestamp,
        measured: Measurement,
    ) -> BlockCheck {
        let Wait::Micros(wait) = measured.wait else {
            return BlockCheck::unchanged(measured);
        };
        let held = held.filter(|held| held.length > 0);
        if let Some(held) = held.filter(|held| held.ends > now.micros()) {
            let left = held.ends - now.micros();
            if left <= held.length {
                let runs = measured.blocked(BlockPhase::Runs, wait, left);
                return BlockCheck::unchanged(runs);
            }
            // No block ends so late: the clock has stepped back.
            return BlockCheck {
                measured: measured.blocked(BlockPhase::Runs, wait, held.length),
                block: Some(BlockState::from(now, held.length)),
            };
        }
        if wait == 0 {
            return BlockCheck::unchanged(measured);
        }
        let is_soon = |held: &BlockState| now.micros() - held.ends < held.length;
        let length = match held.filter(is_soon) {
            Some(held) => (held.length.saturating_mul(2)).clamp(self.shortest(), self.longest()),
            None => self.shortest(),
        };
        BlockCheck {
            measured: measured.blocked(BlockPhase::Begins, wait, length),
            block: Some(BlockState::from(now, length)),
        }
    }

    /// The block as a change to be stored. Where blocks grow, it matters for its length after its end.
    #[must_use]
    pub fn change(self, block: BlockState) -> Change {
        let after = if self.grows() { block.length } else { 0 };
        let ends = Timestamp::from_micros(block.ends).plus(after);
        Change::put(State::Block(block), ends)
    }
}

impl Measurement {
    /// The measurement of a key that is blocked for `left` more microseconds, and that its count would let wait for
    /// `wait`: a request that waits for the longer of both is admitted.
    fn blocked(self, block: BlockPhase, wait: u64, left: u64) -> Self {
        Self {
            block,
            overflow: self.overflow,
            ..Self::refused(Wait::Micros(wait.max(left)), Span::micros(left))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_790_000_000_000_000;

    fn rule(shortest: u64, longest: u64) -> BlockRule {
        let time = |micros| NonZeroU64::new(micros).unwrap();
        BlockRule::new(time(shortest), time(longest))
    }

    /// The wait at `at`, and the block after it, where the count lets wait for `count_wait`.
    fn ask(
        rule: BlockRule,
        held: &mut Option<BlockState>,
        at: u64,
        count_wait: u64,
    ) -> (u64, BlockPhase) {
        let measured = Measurement::refused(Wait::Micros(count_wait), Span::default());
        let checked = rule.check(*held, Timestamp::from_micros(START + at), measured);
        *held = checked.block.or(*held);
        let Wait::Micros(wait) = checked.measured.wait else {
            panic!("{checked:?}");
        };
        (wait, checked.measured.block)
    }

    #[test]
    fn a_refusal_blocks_for_the_time_and_no_refusal_lengthens_it() {
        let (rule, mut held) = (rule(60, 60), None);
        assert_eq!(ask(rule, &mut held, 0, 0), (0, BlockPhase::No));
        assert_eq!(ask(rule, &mut held, 1, 7), (60, BlockPhase::Begins));
        for at in 2..61 {
            let wait = (61 - at).max(at % 3);
            assert_eq!(ask(rule, &mut held, at, at % 3), (wait, BlockPhase::Runs));
        }
        assert_eq!(ask(rule, &mut held, 61, 0), (0, BlockPhase::No));
        // The count may ask for longer than the block.
        assert_eq!(ask(rule, &mut held, 62, 100), (100, BlockPhase::Begins));
        assert_eq!(ask(rule, &mut held, 63, 99), (99, BlockPhase::Runs));
    }

    #[test]
    fn a_block_soon_after_another_lasts_twice_as_long() {
        let (rule, mut held) = (rule(60, 200), None);
        let mut at = 0;
        for length in [60, 120, 200, 200] {
            assert_eq!(ask(rule, &mut held, at, 1), (length, BlockPhase::Begins));
            // The last instant that is soon enough.
            at += 2 * length - 1;
        }
        assert_eq!(ask(rule, &mut held, at + 1, 1), (60, BlockPhase::Begins));
    }

    #[test]
    fn a_cost_that_can_never_fit_begins_no_block() {
        let measured = Measurement::refused(Wait::Never, Span::default());
        let checked = rule(60, 60).check(None, Timestamp::from_micros(START), measured);
        assert_eq!((checked.measured, checked.block), (measured, None));
    }

    #[test]
    fn a_clock_that_steps_back_lengthens_no_block() {
        let (rule, mut held) = (rule(60, 60), None);
        ask(rule, &mut held, 1_000, 1);
        assert_eq!(ask(rule, &mut held, 0, 1), (60, BlockPhase::Runs));
        assert_eq!(ask(rule, &mut held, 59, 1), (1, BlockPhase::Runs));
        assert_eq!(ask(rule, &mut held, 60, 0), (0, BlockPhase::No));
    }
}

//! Ejection: a server with a configured number of consecutive failures gets no requests for some time.
//!
//! Failures are counted over all workers. A success ends the row if its request began after the last failure: an
//! earlier request's answer has no significance for the server now. The clients of the failed requests count as well
//! ([`ServerFailure::by`]).

use super::failure_row::FailureRow;
pub use super::failure_row::{RowSummary, ServerFailure};
use crate::client::Client;
use crate::clock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest ejection.
const LONGEST: Duration = Duration::from_secs(300);

/// The conditions and the duration of ejections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EjectionRule {
    /// Consecutive failures that eject a server; above zero.
    pub after: u32,
    /// The duration of a first ejection; the n-th in a row lasts n times as long, up to five minutes.
    pub time: Duration,
    /// The percentage of an upstream's servers that may be ejected at once.
    pub at_most: u32,
}

impl Default for EjectionRule {
    fn default() -> Self {
        Self {
            after: 5,
            time: Duration::from_secs(10),
            at_most: 50,
        }
    }
}

impl EjectionRule {
    /// May one more server be ejected, if `ejected` of `all` are already, and `available` can serve, including the one
    /// to be ejected? The percentage is rounded down, but one server may always be ejected; the last that serves never
    /// may.
    #[must_use]
    pub fn allows(&self, all: usize, ejected: usize, available: usize) -> bool {
        let share = all as u64 * u64::from(self.at_most) / 100;
        available > 1 && (ejected as u64) < share.max(1)
    }

    /// The duration of the `number`th ejection in a row.
    #[must_use]
    pub fn lasts(&self, number: u32) -> Duration {
        let longest = LONGEST.max(self.time);
        self.time.saturating_mul(number.max(1)).min(longest)
    }
}

/// The results of requests for one server. Times are microseconds of this process ([`crate::clock::uptime`]).
#[derive(Debug, Default)]
pub struct EjectionState {
    /// Consecutive failures, readable without the lock.
    failures: AtomicU32,
    row: Mutex<FailureRow>,
    /// The end of the ejection; 0 while the server is not ejected.
    until: AtomicU64,
    /// Consecutive ejections.
    ejections: AtomicU32,
    /// Requests that began before this time no longer count, since the server has been ejected meanwhile.
    counts_from: AtomicU64,
}

impl EjectionState {
    /// Notes that a request that began at `began` has been answered properly. Costs one load while the server does not
    /// fail.
    #[inline]
    pub fn succeeded(&self, began: impl FnOnce() -> u64) {
        if self.failures.load(Ordering::Relaxed) != 0 || self.ejections.load(Ordering::Relaxed) != 0
        {
            self.forgive(began());
        }
    }

    #[cold]
    fn forgive(&self, began: u64) {
        let mut row = self.row();
        let is_recent = began > row.last && began >= self.counts_from.load(Ordering::Relaxed);
        if is_recent && !self.is_ejected() {
            self.begin_anew(&mut row);
            self.ejections.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that a request has failed at `now`; `are_others` states whether other clients sent requests recently. The
    /// row is returned if the server is to be ejected now: its failures are `after`, or a multiple of it if the server
    /// could not be ejected before.
    #[cold]
    #[must_use]
    pub fn failed(
        &self,
        rule: &EjectionRule,
        failure: &ServerFailure<'_>,
        are_others: impl FnOnce(Client) -> bool,
        now: u64,
    ) -> Option<RowSummary> {
        if self.is_ejected() || failure.began < self.counts_from.load(Ordering::Relaxed) {
            return None;
        }
        let mut row = self.row();
        let due = row.add(rule.after, failure.by, are_others, now);
        self.failures.store(row.len(), Ordering::Relaxed);
        due
    }

    fn row(&self) -> MutexGuard<'_, FailureRow> {
        self.row.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_anew(&self, row: &mut FailureRow) {
        *row = FailureRow::default();
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Is the server ejected?
    #[must_use]
    pub fn is_ejected(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    /// The end of the ejection, if there is one.
    #[must_use]
    pub fn until(&self) -> Option<u64> {
        Some(self.until.load(Ordering::Relaxed)).filter(|until| *until != 0)
    }

    /// Consecutive failures.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Consecutive ejections.
    #[must_use]
    pub fn ejections(&self) -> u32 {
        self.ejections.load(Ordering::Relaxed)
    }

    /// Ejects the server, and returns the duration. Calls must not overlap.
    pub fn eject(&self, rule: &EjectionRule, now: u64) -> Duration {
        let number = self.ejections.load(Ordering::Relaxed).saturating_add(1);
        self.ejections.store(number, Ordering::Relaxed);
        let lasts = rule.lasts(number);
        let micros = clock::micros(lasts);
        self.until
            .store(now.saturating_add(micros).max(1), Ordering::Relaxed);
        lasts
    }

    /// Ends the ejection. Returns false if the server was not ejected.
    pub fn readmit(&self, now: u64) -> bool {
        if self.until.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        self.begin_anew(&mut self.row());
        self.counts_from.store(now, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULE: EjectionRule = EjectionRule {
        after: 3,
        time: Duration::from_secs(10),
        at_most: 50,
    };

    proptest! {
        #[test]
        fn half_may_go_and_one_always_and_the_last_never(all in 1_usize..40, at_most in 0_u32..=100) {
            let rule = EjectionRule { at_most, ..RULE };
            let mut ejected = 0;
            while rule.allows(all, ejected, all - ejected) {
                ejected += 1;
            }
            let share = all * at_most as usize / 100;
            prop_assert_eq!(ejected, share.max(1).min(all - 1));
        }
    }

    impl EjectionState {
        /// Is the server to be ejected, since a request that began at `began` has failed at `now`?
        fn fails(&self, began: u64, now: u64) -> bool {
            let failure = ServerFailure {
                why: "no connection",
                began,
                by: None,
            };
            self.failed(&RULE, &failure, |_| true, now).is_some()
        }
    }

    #[test]
    fn it_is_ejected_at_exactly_the_last_failure_in_a_row() {
        let state = EjectionState::default();
        assert!(!state.fails(1, 2));
        assert!(!state.fails(1, 3));
        state.succeeded(|| 4);
        assert!(!state.fails(5, 6) && !state.fails(5, 7));
        assert!(state.fails(5, 8));
        assert_eq!(state.eject(&RULE, 8), Duration::from_secs(10));
        assert!(!state.fails(5, 9), "it is out already");
        assert_eq!(state.failures(), 3);
    }

    #[test]
    fn an_answer_that_was_on_its_way_before_the_last_failure_forgives_nothing() {
        let state = EjectionState::default();
        assert!(!state.fails(1, 10) && !state.fails(1, 11));
        state.succeeded(|| 11);
        assert!(state.fails(1, 12));
    }

    #[test]
    fn ejections_in_a_row_last_longer_until_a_success() {
        let state = EjectionState::default();
        for (number, lasts) in [(1, 10), (2, 20), (3, 30)] {
            assert_eq!(state.eject(&RULE, number * 100), Duration::from_secs(lasts));
            assert!(state.readmit(number * 100 + 50) && !state.readmit(number * 100 + 50));
            assert!(!state.fails(1, 1_000), "it began before the return");
        }
        state.succeeded(|| 2_000);
        assert_eq!(state.eject(&RULE, 3_000), Duration::from_secs(10));
        assert_eq!(RULE.lasts(1_000), LONGEST);
    }

    #[test]
    fn a_failure_that_cannot_eject_is_followed_by_another_chance() {
        let state = EjectionState::default();
        let chances = (0..9).filter(|at| state.fails(*at, *at));
        assert_eq!(chances.count(), 3);
    }
}

//! The retry budget: a percentage of an upstream's requests in the last ten seconds may be retried, and always one a
//! second. Retries thus do not amplify an outage.
//!
//! Workers count requests in their own cells, which are summed when a request is to be retried.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The length of the budget's window, in seconds.
const WINDOW: u64 = 10;
/// A second of the clock, in microseconds.
const SECOND: u64 = 1_000_000;

/// The requests of one worker to one upstream.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(in crate::upstream) struct RequestCount(AtomicU64);

impl RequestCount {
    /// Counts one more request. Only the worker itself calls this.
    #[inline]
    pub(in crate::upstream) fn add(&self) {
        let next = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(next, Ordering::Relaxed);
    }
}

/// The requests and retries of one upstream.
#[derive(Debug, Default)]
pub(in crate::upstream) struct RetryBudget(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    workers: Vec<Arc<RequestCount>>,
    /// Requests of former workers.
    before: u64,
    retries: u64,
    /// The counts at the beginning of each second, the latest last.
    seconds: VecDeque<SecondCounted>,
}

#[derive(Debug, Clone, Copy)]
struct SecondCounted {
    second: u64,
    requests: u64,
    retries: u64,
}

impl RetryBudget {
    /// A cell for a new worker.
    #[must_use]
    pub(in crate::upstream) fn worker(&self) -> Arc<RequestCount> {
        let cell = Arc::default();
        let mut counted = self.lock();
        counted.workers.push(Arc::clone(&cell));
        cell
    }

    /// May one more request be retried at `now`, in microseconds, if `percent` of the requests may? If so, the retry is
    /// counted.
    #[cold]
    #[must_use]
    pub(in crate::upstream) fn take(&self, percent: u32, now: u64) -> bool {
        let mut counted = self.lock();
        let base = counted.roll(now);
        let requests = counted.requests() - base.requests;
        let allowed = (requests * u64::from(percent) / 100).max(WINDOW);
        let is_allowed = counted.retries - base.retries < allowed;
        counted.retries += u64::from(is_allowed);
        is_allowed
    }

    /// Notes the present counts. Called about once a second.
    pub(in crate::upstream) fn tick(&self, now: u64) {
        self.lock().roll(now);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn requests(&self) -> u64 {
        let counts = self.workers.iter();
        counts.fold(self.before, |sum, count| {
            sum.wrapping_add(count.0.load(Ordering::Relaxed))
        })
    }

    /// Notes the beginning of a second, and returns the counts at the beginning of the window.
    fn roll(&mut self, now: u64) -> SecondCounted {
        let second = now / SECOND;
        if self.seconds.back().is_none_or(|last| last.second < second) {
            self.forget_workers();
            self.seconds.push_back(SecondCounted {
                second,
                requests: self.requests(),
                retries: self.retries,
            });
            // At the first call of a process, nothing was counted before.
            if let [only] = self.seconds.make_contiguous() {
                only.requests = 0;
                only.retries = 0;
            }
        }
        let begins = second.saturating_sub(WINDOW);
        while self.seconds.len() > 1 && self.seconds[1].second <= begins {
            self.seconds.pop_front();
        }
        self.seconds[0]
    }

    /// Adds up the counts of former workers.
    fn forget_workers(&mut self) {
        let before = &mut self.before;
        self.workers.retain(|count| {
            let is_used = Arc::strong_count(count) > 1;
            if !is_used {
                *before = before.wrapping_add(count.0.load(Ordering::Relaxed));
            }
            is_used
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_quiet_upstream_has_one_a_second() {
        let budget = RetryBudget::default();
        let taken =
            |from: u64, to: u64| (from..to).filter(|at| budget.take(20, at * 10_000)).count();
        assert_eq!(taken(0, 100), 10);
        assert_eq!(taken(100, 900), 0);
        assert_eq!(taken(1_100, 2_000), 10);
    }

    #[test]
    fn a_busy_one_has_its_part_at_once() {
        let budget = RetryBudget::default();
        let worker = budget.worker();
        (0..1_000).for_each(|_| worker.add());
        let taken = (0..1_000).filter(|_| budget.take(20, 5)).count();
        assert_eq!(taken, 200);
        drop(worker);
        budget.tick(20 * SECOND);
        assert_eq!((0..50).filter(|_| budget.take(20, 31 * SECOND)).count(), 10);
    }

    proptest! {
        #[test]
        fn when_all_fail_a_request_makes_little_more_than_its_part(rate in 20_u64..200, percent in 0_u32..50) {
            let budget = RetryBudget::default();
            let worker = budget.worker();
            let mut retries = 0;
            let requests = rate * 30;
            for number in 0..requests {
                worker.add();
                retries += u64::from(budget.take(percent, number * SECOND / rate));
            }
            let most = (requests * u64::from(percent) / 100).max(30);
            // The window moves by whole seconds.
            prop_assert!(retries <= most + most / 10 + 20, "{} of {}", retries, requests);
        }
    }
}

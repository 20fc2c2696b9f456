//! A bound on the requests that are answered in a second, from all clients together.

use std::time::Duration;

/// A count that drains at a steady rate and takes twice the rate at once.
#[derive(Debug)]
pub(super) struct RequestPace {
    /// The time that one request takes of the rate, in microseconds.
    each: u64,
    /// The instant at which the count is empty again, in microseconds of this process.
    empty: u64,
}

/// The seconds of the rate that may come at once.
const BURST: u64 = 2_000_000;

impl RequestPace {
    /// At most `rate` requests a second.
    pub(super) const fn per_second(rate: u64) -> Self {
        Self {
            each: 1_000_000 / rate,
            empty: 0,
        }
    }

    /// Takes one request at this instant.
    ///
    /// # Errors
    /// If there are too many: the time until one more is taken.
    pub(super) fn take(&mut self, now: u64) -> Result<(), Duration> {
        let next = self.empty.max(now) + self.each;
        let most = now + BURST;
        if next > most {
            return Err(Duration::from_micros(next - most));
        }
        self.empty = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_rate_at_once_and_then_the_rate() {
        let mut pace = RequestPace::per_second(20);
        let taken = (0..100).filter(|_| pace.take(7).is_ok()).count();
        assert_eq!(taken, 40);
        assert_eq!(pace.take(7), Err(Duration::from_millis(50)));
        let later = (0..100).filter(|_| pace.take(1_000_007).is_ok()).count();
        assert_eq!(later, 20);
    }
}

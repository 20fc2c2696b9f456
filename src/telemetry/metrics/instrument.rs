//! The numbers themselves: counts, levels and histograms that one thread writes and the scrape reads.
//!
//! Only one worker writes a cell of a worker, so that an increment is a load and a store, without the bus lock of a
//! read-modify-write. The handles that write are bound to their thread by `Rc`, which guarantees this.

use std::marker::PhantomData;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A number that grows.
pub(super) trait Counter: Default {
    /// Grows by `more`.
    fn add(&self, more: u64);

    /// The present value.
    fn get(&self) -> u64;
}

/// A count with a single writer.
#[derive(Debug, Default)]
pub(super) struct WorkerCounter(AtomicU64);

impl Counter for WorkerCounter {
    fn add(&self, more: u64) {
        let next = self.0.load(Ordering::Relaxed).wrapping_add(more);
        self.0.store(next, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A level with a single writer; metrics show the sum over the workers.
#[derive(Debug, Default)]
pub(super) struct WorkerGauge(AtomicI64);

impl WorkerGauge {
    pub(super) fn add(&self, change: i64) {
        let next = self.0.load(Ordering::Relaxed).wrapping_add(change);
        self.0.store(next, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A count that any thread may add to, for rare events.
#[derive(Debug, Default)]
pub(super) struct SharedCounter(AtomicU64);

impl Counter for SharedCounter {
    fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl SharedCounter {
    /// Sets the number to `value`, for numbers that are measured rather than counted.
    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Finite bounds of every histogram: with the open bucket and the sum a histogram fills two cache lines exactly.
pub(super) const BOUNDS: usize = 14;

/// The upper bounds of a histogram's buckets.
pub(super) trait BucketBounds: std::fmt::Debug {
    /// Upper bounds in microseconds, ascending.
    const MICROS: [u64; BOUNDS];
}

/// Buckets for the waits of clients: 1 ms to 30 s.
#[derive(Debug, Default)]
pub(super) struct WaitBuckets;

impl BucketBounds for WaitBuckets {
    const MICROS: [u64; BOUNDS] = [
        1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 5_000_000, 10_000_000, 30_000_000,
    ];
}

/// Buckets for round trips to the store: 100 us to 1 s.
#[derive(Debug, Default)]
pub(super) struct RoundTripBuckets;

impl BucketBounds for RoundTripBuckets {
    const MICROS: [u64; BOUNDS] = [
        100, 200, 300, 500, 750, 1_000, 2_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
        1_000_000,
    ];
}

/// Buckets for the time that the gateway itself adds: 50 us to 100 ms.
#[derive(Debug, Default)]
pub(super) struct OverheadBuckets;

impl BucketBounds for OverheadBuckets {
    const MICROS: [u64; BOUNDS] = [
        50, 100, 150, 200, 300, 500, 750, 1_000, 2_000, 5_000, 10_000, 25_000, 50_000, 100_000,
    ];
}

/// Observed times, alone on their cache lines, so that workers do not share one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Histogram<B, C = WorkerCounter> {
    buckets: [C; BOUNDS + 1],
    nanos: C,
    bounds: PhantomData<B>,
}

impl<B: BucketBounds, C: Counter> Histogram<B, C> {
    pub(super) fn observe(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = B::MICROS.iter().filter(|end| nanos > **end * 1_000);
        self.buckets[bucket.count()].add(1);
        self.nanos.add(nanos);
    }

    pub(super) fn read(&self) -> HistogramReading<B> {
        let mut buckets = [0; BOUNDS + 1];
        for (copy, bucket) in buckets.iter_mut().zip(&self.buckets) {
            *copy = bucket.get();
        }
        HistogramReading {
            buckets,
            nanos: self.nanos.get(),
            bounds: PhantomData,
        }
    }
}

/// The content of a histogram at one moment, or the sum of several.
#[derive(Debug, Default)]
pub(super) struct HistogramReading<B> {
    buckets: [u64; BOUNDS + 1],
    nanos: u64,
    bounds: PhantomData<B>,
}

impl<B: BucketBounds> HistogramReading<B> {
    /// The number of observations.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all observations, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanos).as_secs_f64()
    }

    /// Each bucket's own count under its upper bound in seconds.
    pub(super) fn buckets(&self) -> [(f64, u64); BOUNDS + 1] {
        std::array::from_fn(|i| {
            let end = B::MICROS.get(i).map_or(f64::INFINITY, |micros| {
                Duration::from_micros(*micros).as_secs_f64()
            });
            (end, self.buckets[i])
        })
    }
}

impl<B> AddAssign for HistogramReading<B> {
    fn add_assign(&mut self, other: Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine = mine.wrapping_add(theirs);
        }
        self.nanos = self.nanos.wrapping_add(other.nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_fills_two_cache_lines() {
        assert_eq!(size_of::<Histogram<WaitBuckets>>(), 128);
        assert_eq!(align_of::<Histogram<WaitBuckets>>(), 128);
    }

    #[test]
    fn a_bound_belongs_to_its_bucket_and_beyond_the_last_is_kept() {
        let histogram = Histogram::<WaitBuckets>::default();
        histogram.observe(Duration::from_millis(1));
        histogram.observe(Duration::from_nanos(1_000_001));
        histogram.observe(Duration::from_secs(31));
        let reading = histogram.read();
        let buckets = reading.buckets();
        assert_eq!(buckets[0], (0.001, 1));
        assert_eq!(buckets[1], (0.0025, 1));
        assert_eq!(buckets[BOUNDS], (f64::INFINITY, 1));
        assert_eq!(reading.count(), 3);
    }

    #[test]
    fn bounds_ascend() {
        for bounds in [
            WaitBuckets::MICROS,
            RoundTripBuckets::MICROS,
            OverheadBuckets::MICROS,
        ] {
            assert!(bounds.is_sorted_by(|a, b| a < b));
        }
    }
}

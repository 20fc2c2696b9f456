//! Other events on the server: another client writes, or the server loses a key.

use super::History;
use crate::key::RepeatId;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::{Limit, Rule};
use crate::store::redis::tests::expected::Expected;
use crate::store::redis::wire::layout;
use bb8_redis::redis::cmd;

impl History {
    /// Another client writes to a key, or the server loses the key.
    pub(super) fn meddle(&mut self) {
        let name = self.random.usize(..self.editions.len());
        let (limit, who, prefix, mut key) = self.place(name);
        let mut listed = matches!(limit.rule, Rule::SlidingLog(_) | Rule::Concurrency(_));
        if limit.dedupe.is_some() && self.random.bool() {
            let id = RepeatId::of("POST", "/pay", 1, &[self.random.u8(..4)]);
            (key, listed) = (layout::record(&prefix, &who, id), false);
        }
        if limit.blocking.is_some() && self.random.bool() {
            (key, listed) = (layout::block(&prefix, &who), false);
            if self.random.bool() {
                let bytes = self.nearly_block();
                return self.put(key, bytes);
            }
        }
        if listed || self.random.u8(..4) == 0 {
            let mut command = cmd("DEL");
            command.arg(&key);
            self.ask(command, Expected::Anything);
            self.model.stored.remove(&key);
            return;
        }
        let bytes = if self.random.bool() {
            self.garbage()
        } else {
            self.nearly(&key, &limit)
        };
        self.put(key, bytes);
    }

    pub(super) fn put(&mut self, key: Vec<u8>, bytes: Vec<u8>) {
        let mut command = cmd("SET");
        command.arg(&key).arg(&bytes);
        self.ask(command, Expected::Anything);
        self.model.stored.insert(key, (bytes, u64::MAX));
    }

    fn garbage(&mut self) -> Vec<u8> {
        let now = self.now as f64;
        let first = [
            f64::NAN,
            -1.0,
            now + 5_000_000.5,
            now + 5_000_000.0,
            now - 5.0,
            1e300,
            f64::INFINITY,
            9_007_199_254_740_991.0,
        ][self.random.usize(..8)];
        let mut bytes = first.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0, 1, 5, u32::MAX][self.random.usize(..4)].to_be_bytes());
        bytes.extend_from_slice(&[0, 1, 7, 10, u32::MAX][self.random.usize(..5)].to_be_bytes());
        bytes.extend_from_slice(&self.random.u32(..9).to_be_bytes());
        bytes.push(0);
        bytes.truncate([0, 1, 8, 8, 12, 12, 16, 16, 20, 21][self.random.usize(..10)]);
        if self.random.u8(..4) == 0 {
            self.follow(&mut bytes);
        }
        bytes
    }

    /// A block, or nearly.
    fn nearly_block(&mut self) -> Vec<u8> {
        let now = self.now as f64;
        let by = [0.0, 1.0, 100_000.0, 150_000.5, 2_000_000.0][self.random.usize(..5)];
        let ends = if self.random.bool() {
            now + by
        } else {
            now - by
        };
        let lengths = [0.0, 0.5, 1.0, 100_000.0, 900_000.0, -5.0, f64::NAN];
        let length = lengths[self.random.usize(..lengths.len())];
        [ends.to_be_bytes(), length.to_be_bytes()].concat()
    }

    /// A fraction that is close to a possible one: of the stored state, or of the limit's capacity.
    pub(super) fn nearly(&mut self, key: &[u8], limit: &Limit) -> Vec<u8> {
        let (interval, brim) = match &limit.rule {
            Rule::TokenBucket(rule) => (rule.bucket.interval, rule.bucket.capacity),
            Rule::LeakyBucket(rule) => {
                let bucket = rule.bucket;
                let latest = bucket.latest.unwrap_or(bucket.capacity);
                (bucket.interval, latest.min(bucket.capacity))
            }
            Rule::SlidingWindow(rule) => return self.parts(rule),
            Rule::FixedWindow(_) | Rule::ClockWindow(_) if self.random.bool() => {
                return self.counted_in_a_double();
            }
            _ => return self.garbage(),
        };
        let held = match self.model.stored.get(key).map(|(bytes, _)| bytes.get(..8)) {
            Some(Some(at)) if self.random.bool() => f64::from_be_bytes(at.try_into().unwrap()),
            _ => (self.now + brim.whole) as f64,
        };
        let at = held + [0.0, 0.0, 0.0, 0.5][self.random.usize(..4)];
        let whole = interval.den.get();
        let den = [whole, whole, whole, whole.saturating_add(4)][self.random.usize(..4)];
        let brim_part = u32::try_from(brim.part).unwrap();
        let part = [
            0,
            brim_part,
            brim_part.saturating_add(1),
            1,
            whole,
            whole.saturating_add(1),
        ][self.random.usize(..6)];
        let mut bytes = at.to_be_bytes().to_vec();
        bytes.extend_from_slice(&part.to_be_bytes());
        bytes.extend_from_slice(&den.to_be_bytes());
        bytes.truncate([8, 16, 16, 16][self.random.usize(..4)]);
        if self.random.bool() {
            self.follow(&mut bytes);
        }
        bytes
    }

    /// A window whose count is a double, or nearly.
    fn counted_in_a_double(&mut self) -> Vec<u8> {
        let start = (self.now - self.random.u64(..900_000)) as f64;
        [start.to_be_bytes(), self.large_number().to_be_bytes()].concat()
    }

    /// A large number in a state, or nearly one.
    fn large_number(&mut self) -> f64 {
        let numbers = [
            4_294_967_296.0,
            4_294_967_295.0,
            6_000_000_000.0,
            9_007_199_254_740_991.0,
            9_007_199_254_740_992.0,
            0.5,
            -1.0,
            f64::NAN,
            3.0,
        ];
        numbers[self.random.usize(..numbers.len())]
    }

    /// Numbers of a large bucket, or nearly.
    fn follow_large(&mut self, bytes: &mut Vec<u8>) {
        let periods = [
            -1.0_f64,
            -1_000_000.0,
            -7_000_000.0,
            -5_000_000_000_000.0,
            7.0,
        ];
        let period = periods[self.random.usize(..periods.len())];
        let count = [6_000, 1, 4_294_967_291, 0][self.random.usize(..4)];
        bytes.extend_from_slice(&period.to_be_bytes());
        bytes.extend_from_slice(&u32::to_be_bytes(count));
        bytes.extend_from_slice(&self.large_number().to_be_bytes());
    }

    /// Bytes that may follow a bucket's state, or nearly.
    fn follow(&mut self, bytes: &mut Vec<u8>) {
        if self.random.u8(..3) == 0 {
            return self.follow_large(bytes);
        }
        let now = self.now as f64;
        let found =
            [now - 1_000.0, now - 2_000_000.0, now, now + 1.0, 0.5, -1.0][self.random.usize(..6)];
        let back =
            [0.0, 7.0, 1_000_000.0, 9_007_199_254_740_991.0, f64::NAN][self.random.usize(..5)];
        bytes.extend_from_slice(&found.to_be_bytes());
        bytes.extend_from_slice(&back.to_be_bytes());
    }

    /// Parts of any length and time, around now and beyond.
    fn parts(&mut self, rule: &SlidingWindow) -> Vec<u8> {
        let millis = rule.window() / 1000;
        let ways: Vec<u64> = (1..=25).filter(|n| millis.is_multiple_of(*n)).collect();
        let held = ways[self.random.usize(..ways.len())];
        let part = rule.window() / held;
        let start = self.now - self.now % part + part * self.random.u64(..3);
        let start = start - part * self.random.u64(..4);
        let mut bytes = (start as f64).to_be_bytes().to_vec();
        if self.random.u8(..3) == 0 {
            for _ in 0..=held {
                let is_whole = self.random.u8(..20) > 0;
                let small = f64::from(self.random.u32(..6));
                let count = if is_whole { small } else { self.large_number() };
                bytes.extend_from_slice(&count.to_be_bytes());
            }
            bytes.push(0);
            return bytes;
        }
        for _ in 0..=held {
            let count = match self.random.u8(..20) {
                0 => u32::MAX,
                1..=12 => 0,
                _ => self.random.u32(..6),
            };
            bytes.extend_from_slice(&count.to_be_bytes());
        }
        bytes
    }
}

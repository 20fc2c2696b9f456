//! Digests of recent values: most requests name a secret that an earlier request of the worker named.
//!
//! A value is compared whole, so that an entry answers for its own value only. The entries stay in the process, which
//! reads the values anyway; a value is dropped when another takes its place.

use super::Digest;
use foldhash::quality::RandomState;
use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher};

/// Entries of one thread, a power of two: enough for the clients that are active at one time. Together they take 24 KB.
const ENTRIES: usize = 256;

/// The longest value that is kept, in bytes. Keys of interfaces are shorter; tokens, which are longer, take several
/// blocks to digest and would fill the cache.
const LONGEST: usize = 64;

thread_local! {
    static CACHE: RefCell<DigestCache> = RefCell::new(DigestCache::default());
}

/// The digests of recent values, each in the place that its hash selects.
#[derive(Debug, Default)]
struct DigestCache {
    /// Seeded anew in each process, so that no client can choose values that push others out.
    hasher: RandomState,
    /// Empty until the first value.
    entries: Box<[CacheEntry]>,
}

#[derive(Debug, Clone)]
struct CacheEntry {
    hash: u64,
    length: u8,
    value: [u8; LONGEST],
    digest: Digest,
}

/// Not a value, since no value has this length.
const EMPTY: CacheEntry = CacheEntry {
    hash: 0,
    length: u8::MAX,
    value: [0; LONGEST],
    digest: [0; 16],
};

/// The digest of `value`: a cached one, else the result of `compute`.
#[inline]
pub(in crate::key) fn digest(value: &[u8], compute: impl FnOnce(&[u8]) -> Digest) -> Digest {
    match u8::try_from(value.len()) {
        Ok(length) if value.len() <= LONGEST => {
            CACHE.with_borrow_mut(|cache| cache.digest(length, value, compute))
        }
        _ => compute(value),
    }
}

impl DigestCache {
    fn digest(
        &mut self,
        length: u8,
        value: &[u8],
        compute: impl FnOnce(&[u8]) -> Digest,
    ) -> Digest {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(value);
        let hash = hasher.finish();
        if self.entries.is_empty() {
            self.entries = vec![EMPTY; ENTRIES].into_boxed_slice();
        }
        let last = self.entries.len() - 1;
        let entry = &mut self.entries[usize::try_from(hash).unwrap_or(0) & last];
        let is_it = entry.hash == hash && entry.length == length;
        if is_it && entry.value.get(..value.len()) == Some(value) {
            return entry.digest;
        }
        entry.digest = compute(value);
        entry.hash = hash;
        entry.length = length;
        if let Some(room) = entry.value.get_mut(..value.len()) {
            room.copy_from_slice(value);
        }
        entry.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A digest that shows its value: the value's length and first bytes.
    fn named(value: &[u8]) -> Digest {
        let mut digest = [0; 16];
        for (byte, of) in digest.iter_mut().zip(value.iter().rev()) {
            *byte = *of;
        }
        digest[15] = u8::try_from(value.len()).unwrap();
        digest
    }

    #[test]
    fn a_value_that_comes_again_is_not_computed_again() {
        let computed = Cell::new(0);
        let mut cache = DigestCache::default();
        for _ in 0..3 {
            let digest = cache.digest(6, b"secret", |value| {
                computed.set(computed.get() + 1);
                named(value)
            });
            assert_eq!(digest, named(b"secret"));
        }
        assert_eq!(computed.get(), 1);
    }

    #[test]
    fn every_value_has_its_own_digest_whatever_came_before() {
        for round in 0..3 {
            for number in 0..3 * ENTRIES {
                let value = format!("{:>width$}", number, width = number % 90);
                let digest = digest(value.as_bytes(), named);
                assert_eq!(digest, named(value.as_bytes()), "{round}: {value}");
            }
        }
    }

    /// Values that are prefixes of each other, or differ at their ends only, in a cache with one place.
    #[test]
    fn values_that_share_a_place_do_not_share_a_digest() {
        let mut cache = DigestCache {
            entries: Box::new([EMPTY]),
            ..DigestCache::default()
        };
        for value in ["", "a", "ab", "ac", "abc", "ab", "\0", ""] {
            let length = u8::try_from(value.len()).unwrap();
            let digest = cache.digest(length, value.as_bytes(), named);
            assert_eq!(digest, named(value.as_bytes()), "{value}");
        }
    }
}

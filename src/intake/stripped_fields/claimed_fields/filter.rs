//! A filter that rejects nearly all fields outside of the list at the cost of a few instructions.

use super::CLAIMED;

/// May the list have a field of this name?
#[inline]
pub(super) fn may_be_listed(name: &[u8]) -> bool {
    ENDS.may_have(end_of(name)) || BEGINNINGS.may_have(beginning_of(name))
}

/// A Bloom filter of one hash function. It has no false negatives; of the fields outside of the list, it accepts a few.
struct Filter([u64; Self::BITS / 64]);

impl Filter {
    const BITS: usize = 4096;

    /// Adds all whole names of the list, or all prefixes.
    const fn of(are_beginnings: bool) -> Self {
        let mut bits = [0; Self::BITS / 64];
        let mut at = 0;
        while at < CLAIMED.len() {
            let name = CLAIMED[at].name.as_bytes();
            let is_beginning = matches!(name, [.., b'*']);
            if is_beginning == are_beginnings {
                let letters = if is_beginning {
                    beginning_of(name)
                } else {
                    end_of(name)
                };
                let place = Self::place(letters);
                bits[place / 64] |= 1 << (place % 64);
            }
            at += 1;
        }
        Self(bits)
    }

    #[inline]
    const fn may_have(&self, letters: u32) -> bool {
        let place = Self::place(letters);
        self.0[place / 64] >> (place % 64) & 1 == 1
    }

    /// Multiplicative hashing: 2³² divided by the golden ratio spreads the letters over the upper bits, which are used.
    #[inline]
    const fn place(letters: u32) -> usize {
        (letters.wrapping_mul(0x9E37_79B9) >> (u32::BITS - Self::BITS.ilog2())) as usize
    }
}

/// The filter of whole names.
static ENDS: Filter = Filter::of(false);
/// The filter of prefixes.
static BEGINNINGS: Filter = Filter::of(true);

/// The last four letters of a name, and its length: many names end alike, as in `-ip`.
#[inline]
const fn end_of(name: &[u8]) -> u32 {
    match name.last_chunk() {
        Some(letters) => u32::from_le_bytes(*letters).wrapping_add(name.len() as u32),
        None => 0,
    }
}

/// Four letters of a prefix of at least six, after the common `x-`.
#[inline]
const fn beginning_of(name: &[u8]) -> u32 {
    match name {
        [_, _, third, fourth, fifth, sixth, ..] => {
            u32::from_le_bytes([*third, *fourth, *fifth, *sixth])
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of ordinary requests, none of which is looked up in the list.
    #[test]
    fn usual_fields_are_not_looked_up() {
        for name in [
            "host",
            "user-agent",
            "accept",
            "accept-encoding",
            "accept-language",
            "authorization",
            "connection",
            "content-type",
            "content-length",
            "cookie",
            "origin",
            "referer",
            "cache-control",
            "pragma",
            "dnt",
            "upgrade-insecure-requests",
            "sec-fetch-site",
            "sec-fetch-mode",
            "sec-fetch-dest",
            "sec-ch-ua",
            "sec-ch-ua-mobile",
            "sec-ch-ua-platform",
            "if-none-match",
            "if-modified-since",
            "x-api-key",
            "x-request-id",
            "traceparent",
            "priority",
        ] {
            assert!(!may_be_listed(name.as_bytes()), "{name}");
        }
    }
}

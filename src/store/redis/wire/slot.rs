//! The slot of a counter among the 16,384 of a cluster, CRC16 of its hash tag; and the route of a call to a slot.

use super::layout;
use crate::limit::Limit;

/// A slot, below [`SLOTS`].
pub(crate) type Slot = u16;

/// The number of slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;

/// The remainders of every byte, by XMODEM's polynomial, which the specification of Redis Cluster requires.
const REMAINDERS: [u16; 256] = {
    let mut table = [0_u16; 256];
    let mut byte = 0_u16;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

/// The slot of a key under a limit.
#[must_use]
pub fn slot_of(limit: &Limit, key: &[u8]) -> Slot {
    of_tag(layout::tag(limit, key))
}

/// The slot of all keys with this tag. The tag is not empty.
#[must_use]
pub(crate) fn of_tag(tag: &[u8]) -> Slot {
    let crc = tag.iter().fold(0_u16, |crc, byte| {
        let [high, _] = crc.to_be_bytes();
        (crc << 8) ^ REMAINDERS[usize::from(high ^ byte)]
    });
    crc % 16_384
}

/// The shortest number, as bytes, that is the tag of a key in this slot.
pub(crate) fn tag_of(is_such: impl Fn(Slot) -> bool) -> Option<Vec<u8>> {
    // The numbers below this bound cover every slot.
    let tags = (0..1_000_000_u32).map(|number| number.to_string().into_bytes());
    let mut tags = tags.filter(|tag| is_such(of_tag(tag)));
    tags.next()
}

/// A call's slot and its detours so far. A lone Redis has one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CallRoute {
    pub(crate) slot: Slot,
    /// Is the slot being moved to the node that the call is sent to?
    pub(crate) asking: bool,
    /// Is the call to be sent alone?
    pub(crate) alone: bool,
    /// The number of times that the call was sent to another node.
    pub(crate) hops: u8,
    /// The number of times that the call was repeated at the same node.
    pub(crate) tries: u8,
    /// Was the call sent back to the slot's owner, since some of its counters were in each place? The following
    /// redirection is then not a separate detour.
    pub(crate) returned: bool,
}

impl CallRoute {
    /// The route to the master of `slot`, without any detour yet.
    pub(crate) fn to(slot: Slot) -> Self {
        Self {
            slot,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specifications_own_value_and_others_that_a_server_gave() {
        assert_eq!(of_tag(b"123456789"), 0x31c3);
        // CLUSTER KEYSLOT of 7.0.
        for (tag, slot) in [("foo", 12_182), ("bar", 5_061), ("*", 1_320), ("a", 15_495)] {
            assert_eq!(of_tag(tag.as_bytes()), slot, "{tag}");
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        let mut seen = vec![false; SLOTS];
        // The most numbers that a search tries.
        for number in 0..1_000_000_u32 {
            seen[usize::from(of_tag(number.to_string().as_bytes()))] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
        let tag = tag_of(|slot| slot == 9).unwrap();
        assert_eq!(of_tag(&tag), 9);
    }
}

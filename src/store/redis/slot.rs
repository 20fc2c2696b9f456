//! Which of the 16,384 slots of a cluster a counter lives in, CRC16 of its hash tag; and the route of a call to a slot.

use super::layout;
use crate::limit::Limit;

/// A slot, below [`SLOTS`].
pub(super) type Slot = u16;

/// How many slots a cluster has.
pub(super) const SLOTS: usize = 16_384;

/// The remainders of every byte: XMODEM's polynomial, as the specification of Redis Cluster has it.
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

/// The slot in which a limit counts a key.
#[must_use]
pub fn slot_of(limit: &Limit, key: &[u8]) -> Slot {
    of_tag(layout::tag(limit, key))
}

/// The slot of everything with this tag. The tag is not empty.
#[must_use]
pub(super) fn of_tag(tag: &[u8]) -> Slot {
    let crc = tag.iter().fold(0_u16, |crc, byte| {
        let [high, _] = crc.to_be_bytes();
        (crc << 8) ^ REMAINDERS[usize::from(high ^ byte)]
    });
    crc % 16_384
}

/// The shortest number that is the tag of such a slot, as bytes.
pub(super) fn tag_of(is_such: impl Fn(Slot) -> bool) -> Option<Vec<u8>> {
    // The numbers below this have every slot.
    let tags = (0..1_000_000_u32).map(|number| number.to_string().into_bytes());
    let mut tags = tags.filter(|tag| is_such(of_tag(tag)));
    tags.next()
}

/// A call's slot and its detours so far. A lone Redis has one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CallRoute {
    pub(super) slot: Slot,
    /// The slot is being moved to the node that this is sent to.
    pub(super) asking: bool,
    /// The call has no other beside it.
    pub(super) alone: bool,
    /// How often the call was sent to another node.
    pub(super) hops: u8,
    /// How often the call was repeated at the same node.
    pub(super) tries: u8,
}

impl CallRoute {
    /// To the master of `slot`, without any detour yet.
    pub(super) fn to(slot: Slot) -> Self {
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
        // As many as a search goes through.
        for number in 0..1_000_000_u32 {
            seen[usize::from(of_tag(number.to_string().as_bytes()))] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
        let tag = tag_of(|slot| slot == 9).unwrap();
        assert_eq!(of_tag(&tag), 9);
    }
}

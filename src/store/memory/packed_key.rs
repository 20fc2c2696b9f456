//! The name of a counter in its stored form: its limit, and its key inline if short or a digest.

use super::shard_limits::LimitIndex;
use crate::key::{Digest, DigestText};

/// The longest inline key: the text of an IPv4 network has at most 18 bytes.
const SHORT: usize = 19;

/// A limit, by its number in the shard, and a key's bytes. Equal keys have one form.
#[derive(Debug)]
pub(super) enum PackedKey {
    Short(LimitIndex, u8, [u8; SHORT]),
    /// The key is the text of this digest.
    Digest(LimitIndex, Digest),
    Long(LimitIndex, Box<[u8]>),
}

const _: () = assert!(size_of::<PackedKey>() == 24);

impl PackedKey {
    pub(super) fn of(limit: LimitIndex, key: &[u8]) -> Self {
        let mut short = [0; SHORT];
        if let (Ok(length), Some(room)) = (u8::try_from(key.len()), short.get_mut(..key.len())) {
            room.copy_from_slice(key);
            return Self::Short(limit, length, short);
        }
        match DigestText::read(key) {
            Some(digest) => Self::Digest(limit, digest),
            None => Self::Long(limit, key.into()),
        }
    }

    /// The limit.
    #[inline]
    pub(super) fn limit(&self) -> LimitIndex {
        match self {
            Self::Short(limit, ..) | Self::Digest(limit, _) | Self::Long(limit, _) => *limit,
        }
    }

    /// Is this `key`, of any limit?
    #[inline]
    pub(super) fn is(&self, key: &[u8]) -> bool {
        match self {
            Self::Short(_, length, short) => short.get(..usize::from(*length)) == Some(key),
            Self::Digest(_, digest) => DigestText::of(*digest).as_bytes() == key,
            Self::Long(_, long) => **long == *key,
        }
    }

    /// Calls `with` with the key's bytes.
    pub(super) fn read<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Short(_, length, short) => {
                with(short.get(..usize::from(*length)).unwrap_or_default())
            }
            Self::Digest(_, digest) => with(DigestText::of(*digest).as_bytes()),
            Self::Long(_, long) => with(long),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key is restored unchanged from its form, and equals no other.
    #[test]
    fn keys_keep_their_bytes() {
        let digest = "%sha=0123456789abcdef0123456789abcdef";
        let keys = [
            "",
            "203.0.113.255",
            "nineteen-bytes-long",
            "twenty-bytes-of-text",
            digest,
            &digest.to_uppercase(),
            &digest[..36],
            &format!("{digest}|"),
            "%sha=0123456789abcdeg0123456789abcdef",
        ];
        let limit = LimitIndex::of(70_000).unwrap();
        for key in keys {
            let packed = PackedKey::of(limit, key.as_bytes());
            assert_eq!(packed.limit(), limit);
            packed.read(|bytes| assert_eq!(bytes, key.as_bytes()));
            for other in keys {
                assert_eq!(packed.is(other.as_bytes()), key == other, "{key} {other}");
            }
        }
        let in_place =
            |key: &str| !matches!(PackedKey::of(limit, key.as_bytes()), PackedKey::Long(..));
        assert!(in_place(digest) && in_place(keys[2]) && !in_place(keys[3]));
    }
}

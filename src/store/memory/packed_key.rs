//! A key as a counter holds it: in place where it is short or a digest, else apart.

use crate::key::{Digest, DigestText};

/// The longest key that stands in place. The text of an IPv4 address has at most fifteen bytes.
const SHORT: usize = 22;

/// A key's bytes. Equal keys have one form.
#[derive(Debug)]
pub(super) enum PackedKey {
    Short(u8, [u8; SHORT]),
    /// The key is the text of this digest.
    Digest(Digest),
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<PackedKey>() == 24);

impl PackedKey {
    pub(super) fn of(key: &[u8]) -> Self {
        if let (Ok(length), Some(room)) = (u8::try_from(key.len()), SHORT.checked_sub(key.len())) {
            let mut short = [0; SHORT];
            short[..SHORT - room].copy_from_slice(key);
            return Self::Short(length, short);
        }
        match DigestText::read(key) {
            Some(digest) => Self::Digest(digest),
            None => Self::Long(key.into()),
        }
    }

    /// Is this `key`?
    #[inline]
    pub(super) fn is(&self, key: &[u8]) -> bool {
        match self {
            Self::Short(length, short) => short.get(..usize::from(*length)) == Some(key),
            Self::Digest(digest) => DigestText::read(key).as_ref() == Some(digest),
            Self::Long(long) => **long == *key,
        }
    }

    /// Calls `with` with the key's bytes.
    pub(super) fn read<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Short(length, short) => {
                with(short.get(..usize::from(*length)).unwrap_or_default())
            }
            Self::Digest(digest) => with(DigestText::of(*digest).as_bytes()),
            Self::Long(long) => with(long),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key comes back as it was, whatever its form, and is no other.
    #[test]
    fn keys_keep_their_bytes() {
        let digest = "%sha=0123456789abcdef0123456789abcdef";
        let keys = [
            "",
            "203.0.113.255",
            "twenty-two-bytes-long!",
            "twenty-three-bytes-long",
            digest,
            &digest.to_uppercase(),
            &digest[..36],
            &format!("{digest}|"),
            "%sha=0123456789abcdeg0123456789abcdef",
        ];
        for key in keys {
            let packed = PackedKey::of(key.as_bytes());
            packed.read(|bytes| assert_eq!(bytes, key.as_bytes()));
            for other in keys {
                assert_eq!(packed.is(other.as_bytes()), key == other, "{key} {other}");
            }
        }
        let in_place = |key: &str| !matches!(PackedKey::of(key.as_bytes()), PackedKey::Long(_));
        assert!(in_place(digest) && in_place(keys[2]) && !in_place(keys[3]));
    }
}

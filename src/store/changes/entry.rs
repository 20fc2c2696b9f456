//! One entry of the changes, as bytes. Anybody who may write to Redis may write such bytes, so that nothing about them
//! is taken for granted.

use super::{EXACT, FORMAT};
use crate::clock::Timestamp;
use sha2::{Digest as _, Sha256};

/// The bytes of an entry in front of its payload, without the two for its length.
const HEAD: usize = 50;

/// An entry's id in its short form: a digest of the text that the operator's command made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChangeId(pub [u8; 16]);

impl ChangeId {
    /// The id of this text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(digest(&[text.as_bytes()]))
    }
}

/// What an entry changes: a digest of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChangeTarget(pub [u8; 16]);

impl ChangeTarget {
    /// The target with these parts, in their order.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        Self(digest(parts))
    }
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// Counters were emptied.
    Reset,
    /// A kind of another version of the program.
    Unknown(u8),
}

impl ChangeKind {
    /// The kind with this byte.
    #[must_use]
    pub const fn of(byte: u8) -> Self {
        match byte {
            1 => Self::Reset,
            other => Self::Unknown(other),
        }
    }

    /// The kind's byte.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Reset => 1,
            Self::Unknown(byte) => byte,
        }
    }

    /// The kind's word in metrics and answers.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// An entry that the store keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEntry {
    /// The id.
    pub id: ChangeId,
    /// The kind.
    pub kind: ChangeKind,
    /// What is changed.
    pub target: ChangeTarget,
    /// The instant at which the store took the entry, by the store's clock.
    pub born: Timestamp,
    /// The instant at which it ends, by the store's clock.
    pub ends: Timestamp,
    /// The payload, if it has the form of this version of the program.
    pub payload: Option<Vec<u8>>,
}

/// The entries of a value, each with all of its bytes. `None` if the value has another form.
pub(super) fn split(value: &[u8]) -> Option<Vec<&[u8]>> {
    let mut all = Vec::new();
    let Some((form, mut rest)) = value.split_first() else {
        return Some(all);
    };
    if *form != 1 {
        return None;
    }
    while !rest.is_empty() {
        let (length, _) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (entry, more) = rest.split_at_checked(2 + length)?;
        if length < HEAD {
            return None;
        }
        all.push(entry);
        rest = more;
    }
    Some(all)
}

/// The entries of a value that a store keeps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeList(pub Vec<ChangeEntry>);

impl ChangeList {
    /// Reads a whole value; `None` if it has another form.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let all = split(value)?;
        Some(Self(
            all.into_iter().filter_map(ChangeEntry::read).collect(),
        ))
    }
}

impl ChangeEntry {
    /// Reads one entry with its length. An entry whose instants are none is ignored, as the script ignores it.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.get(2..)?;
        let (id, rest) = rest.split_first_chunk()?;
        let (kind, rest) = rest.split_first()?;
        let (target, rest) = rest.split_first_chunk()?;
        let (born, rest) = rest.split_first_chunk()?;
        let (ends, rest) = rest.split_first_chunk()?;
        let (format, payload) = rest.split_first()?;
        Some(Self {
            id: ChangeId(*id),
            kind: ChangeKind::of(*kind),
            target: ChangeTarget(*target),
            born: instant(*born)?,
            ends: instant(*ends)?,
            payload: (*format == FORMAT).then(|| payload.to_vec()),
        })
    }
}

/// The instant that a double stands for, if it stands for one.
pub(super) fn instant(bytes: [u8; 8]) -> Option<Timestamp> {
    let number = f64::from_be_bytes(bytes);
    // The range does not hold what is no number.
    let is_exact = (0.0..EXACT).contains(&number) && number.fract() == 0.0;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number from 0 to 2^53"
    )]
    is_exact.then(|| Timestamp::from_micros(number as u64))
}

/// The first 128 bits of SHA-256 over the parts, each behind its length.
fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_be_bytes());
        hasher.update(part);
    }
    let mut short = [0; 16];
    for (byte, whole) in short.iter_mut().zip(hasher.finalize()) {
        *byte = whole;
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_targets_parts_cannot_be_taken_for_others() {
        let one = ChangeTarget::of(&[b"ab", b"c"]);
        assert_ne!(one, ChangeTarget::of(&[b"a", b"bc"]));
        assert_ne!(one, ChangeTarget::of(&[b"ab", b"c", b""]));
        assert_eq!(one, ChangeTarget::of(&[b"ab", b"c"]));
    }

    #[test]
    fn no_bytes_of_others_are_taken_for_entries() {
        assert_eq!(ChangeList::read(b""), Some(ChangeList::default()));
        assert_eq!(ChangeList::read(b"\x01"), Some(ChangeList::default()));
        for value in [
            &b"\x02"[..],
            b"text",
            b"\x01\x00",
            b"\x01\x00\x31",
            b"\x01\x00\x05abcde",
        ] {
            assert_eq!(ChangeList::read(value), None, "{value:?}");
        }
        // An end that is no number.
        let mut entry = vec![1, 0, 50];
        entry.extend_from_slice(&[7; 33]);
        entry.extend_from_slice(&1_790_000_000_000_000.0_f64.to_be_bytes());
        entry.extend_from_slice(&f64::NAN.to_be_bytes());
        entry.push(FORMAT);
        assert_eq!(ChangeList::read(&entry), Some(ChangeList::default()));
        entry[44..52].copy_from_slice(&1_790_000_000_000_001.0_f64.to_be_bytes());
        let read = ChangeList::read(&entry).unwrap().0;
        assert_eq!(read[0].kind, ChangeKind::Unknown(7));
        assert_eq!(read[0].payload.as_deref(), Some(&b""[..]));
    }
}

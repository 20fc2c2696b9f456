//! The answers of the script of changes, or of its twin.

use super::entry::{ChangeEntry, ChangeList, instant};
use crate::clock::Timestamp;
use crate::store::error::StoreError;

const SHORT: StoreError = StoreError::Protocol("not an answer about changes");

/// The answer to a gateway that asks whether there is anything new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PollReply {
    /// The gateway has the present version.
    Same,
    /// There are other entries.
    New(ChangeReading),
}

/// All entries of the store at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeReading {
    /// The number of the last change.
    pub version: u64,
    /// The instant of the reading, by the store's clock.
    pub at: Timestamp,
    /// The entries.
    pub entries: Vec<ChangeEntry>,
}

impl PollReply {
    /// Reads an answer.
    pub(in crate::store) fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        if bytes.len() == 16 {
            return Ok(Self::Same);
        }
        let (version, at, rest) = two_numbers(bytes)?;
        // The last byte tells the answer from one of 16 bytes.
        let (_, value) = rest.split_last().ok_or(SHORT)?;
        let ChangeList(entries) = ChangeList::read(value).ok_or(SHORT)?;
        Ok(Self::New(ChangeReading {
            version: version.micros(),
            at,
            entries,
        }))
    }
}

/// The answer to an operator's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// The entry holds.
    Done {
        /// The number of the change.
        version: u64,
        /// The instant of the entry, by the store's clock.
        born: Timestamp,
        /// The entry of the same target that was replaced.
        replaced: Option<Box<ChangeEntry>>,
    },
    /// An entry with the id holds already.
    Same {
        /// The number of the last change.
        version: u64,
        /// The entry.
        entry: Box<ChangeEntry>,
    },
    /// There are too many entries.
    Full,
    /// Another version stands there than the caller has seen.
    Changed {
        /// The number of the last change.
        version: u64,
    },
    /// The entry is too long.
    TooLong,
}

impl Acceptance {
    /// Reads an answer.
    ///
    /// # Errors
    /// If it has another form.
    pub fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        let (outcome, rest) = bytes.split_first().ok_or(SHORT)?;
        let (version, born, rest) = two_numbers(rest)?;
        let version = version.micros();
        let entry = || ChangeEntry::read(rest).map(Box::new);
        Ok(match outcome {
            0 => Self::Done {
                version,
                born,
                replaced: entry(),
            },
            1 => Self::Same {
                version,
                entry: entry().ok_or(SHORT)?,
            },
            2 => Self::Full,
            3 => Self::Changed { version },
            4 => Self::TooLong,
            _ => return Err(SHORT),
        })
    }
}

/// How many gateways have a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coverage {
    /// Gateways that have it.
    pub taken_by: u32,
    /// All gateways.
    pub gateways: u32,
}

impl Coverage {
    /// Reads an answer.
    pub(in crate::store) fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        let (taken_by, rest) = bytes.split_first_chunk().ok_or(SHORT)?;
        let (gateways, _) = rest.split_first_chunk().ok_or(SHORT)?;
        Ok(Self {
            taken_by: u32::from_be_bytes(*taken_by),
            gateways: u32::from_be_bytes(*gateways),
        })
    }
}

fn two_numbers(bytes: &[u8]) -> Result<(Timestamp, Timestamp, &[u8]), StoreError> {
    let (first, rest) = bytes.split_first_chunk().ok_or(SHORT)?;
    let (second, rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let number = |bytes: &[u8; 8]| instant(*bytes).ok_or(SHORT);
    Ok((number(first)?, number(second)?, rest))
}

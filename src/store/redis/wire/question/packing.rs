//! The question of one update in few bytes, kept for as long as it may have to be sent again.

use super::{KeyPlace, Question, ScriptLevel};
use smallvec::SmallVec;

/// Bytes of a packed question in addition to its keys and blocks: the script's level, the number of records, and two
/// lengths.
const HEAD: usize = 10;
/// Bytes of a length.
const LENGTH: usize = 4;

const LEVELS: [ScriptLevel; 4] = [
    ScriptLevel::Plain,
    ScriptLevel::Any,
    ScriptLevel::Once,
    ScriptLevel::Shadow,
];

impl Question {
    /// The number of bytes that [`Self::pack`] adds.
    pub(crate) fn packed_size(&self) -> usize {
        let records = self.records.iter().map(|record| LENGTH + record.len());
        HEAD + self.keys.len() + self.blocks.len() + records.sum::<usize>()
    }

    /// Appends the question of an update, which has one counter, to `out`.
    pub(crate) fn pack(&self, out: &mut Vec<u8>) {
        let level = LEVELS.iter().position(|level| *level == self.level);
        out.push(
            level
                .and_then(|level| u8::try_from(level).ok())
                .unwrap_or(u8::MAX),
        );
        out.push(u8::try_from(self.records.len()).unwrap_or(u8::MAX));
        put(out, &self.keys);
        put(out, &self.blocks);
        for record in &self.records {
            put(out, record);
        }
    }

    /// Reads a packed question, and returns the rest.
    pub(crate) fn unpack(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let ([level, records], rest) = bytes.split_first_chunk()?;
        let (keys, rest) = take_part(rest)?;
        let (blocks, mut rest) = take_part(rest)?;
        let mut question = Self {
            keys: SmallVec::from_slice(keys),
            counters: SmallVec::from_slice(&[KeyPlace::of(keys, 0)]),
            blocks: SmallVec::from_slice(blocks),
            level: *LEVELS.get(usize::from(*level))?,
            is_single: true,
            ..Self::default()
        };
        for _ in 0..*records {
            let (record, more) = take_part(rest)?;
            question.records.push(record.to_vec());
            rest = more;
        }
        Some((question, rest))
    }
}

/// Appends the length of `bytes`, and then the bytes. No update is as long as 4 GiB.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

fn take_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}

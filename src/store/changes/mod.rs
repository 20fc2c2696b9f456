//! What operators have changed, as the store keeps it: entries under a version. A gateway asks for the version about
//! once a second, and reads the entries when it is new.
//!
//! In: an entry that an operator made. Out: the entries that hold, and how many gateways have them.
//!
//! ```text
//! entry  one entry, as bytes, with the bounds that hold for a stranger's bytes
//! book   the entries of this process: the twin of lua/changes.lua, and the store of changes without Redis
//! reply  the answers of the script, or of its twin
//! ```

mod book;
mod entry;
mod reply;

pub use book::ChangeBook;
pub use entry::{ChangeEntry, ChangeId, ChangeKind, ChangeList, ChangeTarget};
pub use reply::{Acceptance, ChangeReading, Coverage, PollReply};

use std::time::Duration;

/// The entry that a caller wants to have, before the store has given it its instants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRequest {
    /// The id: a repeat of the request changes nothing.
    pub id: ChangeId,
    /// The kind.
    pub kind: ChangeKind,
    /// What is changed. Another change of the same target, but a reset, is replaced.
    pub target: ChangeTarget,
    /// The time for which the entry is kept. Zero takes the entry of its target away.
    pub life: Duration,
    /// The payload, as JSON.
    pub payload: Vec<u8>,
    /// The version that the caller has seen, if no other may stand there.
    pub if_version: Option<u64>,
}

/// The form of the present payloads.
pub(super) const FORMAT: u8 = 1;
/// The time after which a gateway's word about its version no longer counts, in microseconds.
const HEARD: u64 = 10_000_000;
/// Numbers from here on are no instants and no versions: a double does not count them exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

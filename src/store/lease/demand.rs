//! A rough count of the requests for each key. Keys share cells: a key that is wrongly considered busy leases too much
//! at worst, and the surplus is given back.

use crate::clock::Timestamp;

/// Length of a counting slot, in microseconds.
pub const SLOT: u64 = 50_000;
/// Requests in a slot that make a key busy.
pub const BUSY: u64 = 16;
const CELLS: usize = 1024;

/// Counts of the present slot and of the slot before.
#[derive(Debug)]
pub(super) struct Demand {
    cells: Box<[DemandCell]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct DemandCell {
    slot: u64,
    now: u32,
    before: u32,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            cells: vec![DemandCell::default(); CELLS].into(),
        }
    }
}

impl Demand {
    /// Counts a request for the key with this hash.
    pub(super) fn rises(&mut self, hash: u64, now: Timestamp) {
        let slot = now.micros() / SLOT;
        let cell = &mut self.cells[index(hash)];
        *cell = cell.at(slot);
        cell.now = cell.now.saturating_add(1);
    }

    /// Is the key busy?
    pub(super) fn is_busy(&self, hash: u64, now: Timestamp) -> bool {
        let cell = self.at(hash, now);
        u64::from(cell.now.max(cell.before)) >= BUSY
    }

    /// Requests in the last whole slot, or so far.
    pub(super) fn of(&self, hash: u64, now: Timestamp) -> u64 {
        let cell = self.at(hash, now);
        u64::from(if cell.before > 0 {
            cell.before
        } else {
            cell.now
        })
    }

    fn at(&self, hash: u64, now: Timestamp) -> DemandCell {
        self.cells[index(hash)].at(now.micros() / SLOT)
    }
}

impl DemandCell {
    fn at(self, slot: u64) -> Self {
        match slot.checked_sub(self.slot) {
            Some(0) | None => self,
            Some(1) => Self {
                slot,
                now: 0,
                before: self.now,
            },
            Some(_) => Self {
                slot,
                ..Self::default()
            },
        }
    }
}

fn index(hash: u64) -> usize {
    usize::try_from(hash >> 16).unwrap_or(0) % CELLS
}

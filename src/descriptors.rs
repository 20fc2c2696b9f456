//! Open files: as many as the system allows, distributed before the system runs out.
//!
//! Connections of clients take one half, which has its own bound. The other half is a budget: each connection to a
//! server takes one descriptor of it. A request that would need a descriptor is refused early if none is free, and does
//! not fail half-way by an error of the system. Workers draw from the budget in pieces, so that a request reads only
//! its own worker's share.
//!
//! ```text
//! departure  a peer that leaves is noticed without a read from its socket
//! ```

pub mod departure;

use rustix::process::{Resource, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// Descriptors that a worker draws at once, where the budget is not small.
const PIECE: isize = 64;

/// The part of the budget that may be taken as spare descriptors, which requests do not strictly need.
const SPARE: isize = 4;

/// Raises the bound on open files to the maximum that the system allows every user, and returns the new bound. `None`
/// if there is no bound.
///
/// Most systems start a program with a lower bound, for programs that still call `select`, which cannot use descriptors
/// above 1023. The gateway does not call `select`.
#[must_use]
pub fn raise() -> Option<u64> {
    let mut bound = getrlimit(Resource::Nofile);
    let before = bound.current;
    bound.current = bound.maximum;
    match setrlimit(Resource::Nofile, bound) {
        Ok(()) => bound.maximum,
        // Some systems allow less than they report.
        Err(_) => before,
    }
}

/// The descriptors of all workers, not counting client connections.
#[derive(Debug)]
pub struct Budget {
    rest: AtomicIsize,
    /// Spare descriptors that may still be taken.
    spare: AtomicIsize,
    piece: isize,
}

impl Budget {
    /// A budget of `descriptors` for `workers` workers; without a number the budget has no bound.
    #[must_use]
    pub fn new(descriptors: Option<u64>, workers: usize) -> Arc<Self> {
        let all = descriptors.and_then(|all| isize::try_from(all).ok());
        let all = all.unwrap_or(isize::MAX / 2);
        let workers = isize::try_from(workers.max(1)).unwrap_or(1);
        Arc::new(Self {
            rest: AtomicIsize::new(all),
            spare: AtomicIsize::new(all / SPARE),
            // The pieces are small, so that few descriptors stay unused at workers that do not need them.
            piece: (all / (8 * workers)).clamp(1, PIECE),
        })
    }

    /// One worker's share of the budget.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> DescriptorShare {
        DescriptorShare(Arc::new(ShareState {
            free: AtomicIsize::new(0),
            reserved: AtomicIsize::new(0),
            budget: Arc::clone(self),
        }))
    }

    fn draw(&self) -> isize {
        let drawn = self.rest.fetch_update(Relaxed, Relaxed, |rest| {
            (rest > 0).then(|| rest - rest.min(self.piece))
        });
        drawn.map_or(0, |rest| rest.min(self.piece))
    }
}

/// A worker's share, used on the worker's thread alone.
#[derive(Debug, Clone)]
pub struct DescriptorShare(Arc<ShareState>);

#[derive(Debug)]
struct ShareState {
    /// Descriptors that are drawn from the budget and not taken.
    free: AtomicIsize,
    /// The free descriptors that are reserved.
    reserved: AtomicIsize,
    budget: Arc<Budget>,
}

/// A reserved descriptor, whose taking cannot fail.
#[derive(Debug)]
pub struct DescriptorReserve<'a>(&'a ShareState);

/// A descriptor in use, until dropped.
#[derive(Debug)]
pub struct Descriptor(Arc<ShareState>);

/// A spare descriptor in use, until dropped.
#[derive(Debug)]
pub struct SpareDescriptor(Descriptor);

impl DescriptorShare {
    /// Reserves a descriptor; `None` if all are in use or reserved.
    #[must_use]
    pub fn reserve(&self) -> Option<DescriptorReserve<'_>> {
        let part = &*self.0;
        let reserved = part.reserved.load(Relaxed);
        if part.free.load(Relaxed) <= reserved && !part.draws() {
            return None;
        }
        // Only this worker writes the number, so that no atomic read-modify-write is needed.
        part.reserved.store(reserved + 1, Relaxed);
        Some(DescriptorReserve(part))
    }

    /// Takes a descriptor, reserved or not. A running request is not aborted for lack of a descriptor that another
    /// request may release in time.
    #[must_use]
    pub fn take(&self) -> Descriptor {
        self.0.free.fetch_sub(1, Relaxed);
        Descriptor(Arc::clone(&self.0))
    }

    /// Takes a spare descriptor.
    #[must_use]
    pub fn take_spare(&self) -> Option<SpareDescriptor> {
        let spare = &self.0.budget.spare;
        let left = |left| (left > 0).then_some(left - 1);
        spare.fetch_update(Relaxed, Relaxed, left).ok()?;
        if self.reserve().is_none() {
            spare.fetch_add(1, Relaxed);
            return None;
        }
        Some(SpareDescriptor(self.take()))
    }
}

impl Descriptor {
    /// A spare descriptor of the same share.
    #[must_use]
    pub fn take_spare(&self) -> Option<SpareDescriptor> {
        DescriptorShare(Arc::clone(&self.0)).take_spare()
    }
}

impl ShareState {
    #[cold]
    fn draws(&self) -> bool {
        let drawn = self.budget.draw();
        let free = self.free.fetch_add(drawn, Relaxed) + drawn;
        free > self.reserved.load(Relaxed)
    }
}

impl Drop for DescriptorReserve<'_> {
    fn drop(&mut self) {
        let reserved = self.0.reserved.load(Relaxed);
        self.0.reserved.store(reserved - 1, Relaxed);
    }
}

impl Drop for SpareDescriptor {
    fn drop(&mut self) {
        self.0.0.budget.spare.fetch_add(1, Relaxed);
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let ShareState {
            free,
            reserved,
            budget,
        } = &*self.0;
        let now = free.fetch_add(1, Relaxed) + 1;
        if now - reserved.load(Relaxed) > 2 * budget.piece {
            free.fetch_sub(budget.piece, Relaxed);
            budget.rest.fetch_add(budget.piece, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_reserved_than_there_are_and_all_of_them_come_back() {
        let budget = Budget::new(Some(10), 2);
        let (one, other) = (budget.share(), budget.share());
        let mut reserves: Vec<DescriptorReserve<'_>> = Vec::new();
        reserves.extend(std::iter::from_fn(|| one.reserve()).take(6));
        reserves.extend(std::iter::from_fn(|| other.reserve()));
        assert_eq!(reserves.len(), 10);
        assert!(one.reserve().is_none() && other.take_spare().is_none());
        let taken: Vec<Descriptor> = reserves
            .drain(..6)
            .map(|reserve| {
                drop(reserve);
                one.take()
            })
            .collect();
        assert!(one.reserve().is_none());
        drop(taken);
        // Most descriptors that one worker does not need are available to the next worker.
        reserves.extend(std::iter::from_fn(|| other.reserve()));
        assert!(reserves.len() >= 7);
        assert!(one.reserve().is_some());
    }

    #[test]
    fn a_descriptor_taken_without_a_reserve_is_missed_later() {
        let budget = Budget::new(Some(1), 1);
        let share = budget.share();
        let reserve = share.reserve().unwrap();
        let (first, second) = (share.take(), share.take());
        drop(reserve);
        drop(first);
        assert!(share.reserve().is_none());
        drop(second);
        assert!(share.reserve().is_some());
    }

    #[test]
    fn spare_descriptors_are_a_quarter_at_most() {
        let share = Budget::new(Some(40), 1).share();
        let spare: Vec<SpareDescriptor> = std::iter::from_fn(|| share.take_spare()).collect();
        assert_eq!(spare.len(), 10);
        let rest: Vec<DescriptorReserve<'_>> = std::iter::from_fn(|| share.reserve()).collect();
        assert_eq!(rest.len(), 30);
        drop(spare);
        assert!(share.take_spare().is_some());
    }

    #[test]
    fn without_a_bound_every_reserve_succeeds() {
        let share = Budget::new(None, 2).share();
        let all: Vec<_> = std::iter::from_fn(|| share.reserve()).take(1000).collect();
        assert_eq!(all.len(), 1000);
    }
}

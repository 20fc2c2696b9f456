//! Log lines about an outage: every worker notices the outage separately, and one line reports it for all.

use crate::store::error::StoreError;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The outages of this process, by the name of the unavailable Redis.
static OUTAGES: Mutex<BTreeMap<Arc<str>, OutageRecord>> = Mutex::new(BTreeMap::new());

/// The most refusals with different words that are logged in one outage.
const MOST_REFUSALS: usize = 4;

/// One unavailable Redis.
#[derive(Debug, Default)]
struct OutageRecord {
    /// The number of workers without this Redis.
    workers: usize,
    /// The words of its refusals that were logged.
    refusals: Vec<String>,
    /// The command that is forbidden, with its remedy, if that is the reason.
    missing: Option<Arc<str>>,
}

fn records() -> MutexGuard<'static, BTreeMap<Arc<str>, OutageRecord>> {
    OUTAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The command that one of the unavailable Redis servers forbids its user, with the remedy, if there is one.
#[must_use]
pub fn missing_right() -> Option<Arc<str>> {
    records().values().find_map(|record| record.missing.clone())
}

/// One worker's share in an outage. Dropping it ends the share.
#[derive(Debug)]
pub(crate) struct Outage {
    pub(crate) name: Arc<str>,
    lasts: Cell<bool>,
}

impl Outage {
    /// The outage of the Redis with this name in the log, not begun yet.
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            lasts: Cell::new(false),
        }
    }

    /// Joins the outage of this Redis. Returns whether this is the first worker to notice.
    pub(crate) fn begins(&self) -> bool {
        if self.lasts.replace(true) {
            return false;
        }
        let mut outages = records();
        let record = outages.entry(Arc::clone(&self.name)).or_default();
        record.workers += 1;
        record.workers == 1
    }

    /// Notes a refusal. Returns whether its words are new in this outage, and must be logged.
    pub(super) fn note(&self, why: &StoreError) -> bool {
        let mut outages = records();
        let Some(OutageRecord {
            refusals, missing, ..
        }) = outages.get_mut(&self.name)
        else {
            return false;
        };
        // Another cause is shown as soon as it applies.
        *missing = match why {
            StoreError::Unpermitted(words) => Some(Arc::clone(words)),
            _ => None,
        };
        let (StoreError::Refused(refusal) | StoreError::Unpermitted(refusal)) = why else {
            return false;
        };
        let refusal = &**refusal;
        let is_new =
            refusals.len() < MOST_REFUSALS && !refusals.iter().any(|known| known == refusal);
        if is_new {
            refusals.push(refusal.to_owned());
        }
        is_new
    }

    /// Leaves the outage. Was Redis unavailable for this worker, and is the worker the last to notice its return?
    pub(crate) fn ends(&self) -> bool {
        if !self.lasts.replace(false) {
            return false;
        }
        let mut outages = records();
        let Some(record) = outages.get_mut(&self.name) else {
            return false;
        };
        record.workers = record.workers.saturating_sub(1);
        let is_last = record.workers == 0;
        if is_last {
            outages.remove(&self.name);
        }
        is_last
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        self.ends();
    }
}

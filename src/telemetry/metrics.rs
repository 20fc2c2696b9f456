//! Every metric of the program: cells that each worker writes alone, summed when scraped.
//!
//! Labels are bounded by the configuration and by small fixed sets of words, never by clients' data: no address, key,
//! path or host is a label. At most, for R routes, L limits and U upstreams by all names seen since the start, and W
//! workers: requests R x W x 84 (a route counts 64 combinations of method, status and source separately, then only
//! method and source), their times R x 60 x 17, gRPC calls R x 18, decisions L x R x 15, delays L x 17, upstreams U x
//! (7 + 6 x 17) and one for each of their servers, and of I identities towards clients I x 20 + 19. A route, limit or
//! upstream that a reload removes keeps its series until the process ends, because a counter never decreases.
//!
//! ```text
//! instrument    counts, levels, histograms
//! label         label values
//! label/combination  method, status and source of a request
//! family        a metric with its samples
//! worker        the handles that a worker counts with
//! worker_cells  the counts of one worker
//! servers       counts about servers
//! store         counts about the store
//! process       the system's figures of the process
//! exposition    all metrics in one list
//! text_format   the two formats of a scrape
//! ```

mod exposition;
mod family;
mod instrument;
pub(super) mod label;
mod process;
mod servers;
mod store;
#[cfg(test)]
mod tests;
mod text_format;
mod worker;
mod worker_cells;

pub use label::{
    AnswerSource, CallOutcome, ChangeResult, ClientUnnamed, CostReport, DecidedBy, DecisionLabel,
    EndedBy, Eviction, Failure, Flow, Handshake, KeyFetch, Lookup, ModeLabel, NO_ROUTE, Operation,
    OrderResult, Permits, ProbeResult, Redirect, RefusedHead, Rejection, Resolution, RetryResult,
};
pub use servers::ServerReading;
pub use store::{StoreMetrics, StoreReach, StoreStatus};
pub use text_format::TextFormat;
pub use worker::{
    Connected, HeldRequest, InFlightGauge, LimitMetrics, RouteMetrics, ServerMetrics,
    UpstreamMetrics, WorkerMetrics,
};

use crate::clock::{self, Timestamp};
use instrument::{Counter, SharedCounter};
use label::{Label, Labels};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::StoreCells;
use worker_cells::{CostSilence, Family, WorkerCells};

/// The metrics of this process.
#[derive(Debug, Default)]
pub struct Metrics {
    workers: Mutex<Vec<Arc<WorkerCells>>>,
    /// The number of consecutive answers without a cost, by limit.
    silences: Arc<Family<Labels, CostSilence>>,
    stores: Mutex<Vec<Arc<StoreCells>>>,
    reloads: Reloads,
    /// Successors that did not reach serving.
    failed_handovers: SharedCounter,
    /// The number of keys in the memory store, which all workers share.
    memory_keys: SharedCounter,
    memory_overflows: SharedCounter,
    /// Lost lines of the access log, and lines that another line represents.
    lines_dropped: SharedCounter,
    lines_summarised: SharedCounter,
    /// Evicted and rejected connections of a full gateway. They are rare, so that any thread may count.
    evicted: [SharedCounter; Eviction::ALL.len()],
    rejected: [SharedCounter; Rejection::ALL.len()],
    /// The end of each certificate towards clients, in Unix time, by the name of its identity.
    certificates: Mutex<BTreeMap<String, i64>>,
    /// Can the present files of an identity be used?
    tls_files: Mutex<BTreeMap<String, bool>>,
    /// The number of customers in each group that has any.
    customers: Mutex<BTreeMap<String, i64>>,
    /// Orders for certificates, by identity.
    orders: Mutex<BTreeMap<Box<str>, [u64; OrderResult::ALL.len()]>>,
    /// The state of the servers of upstreams.
    servers: servers::ServerTallies,
    /// Results of lookups of server names' addresses.
    resolutions: [SharedCounter; Resolution::ALL.len()],
    key_fetches: [SharedCounter; KeyFetch::ALL.len()],
    /// Were the keys at a URL ever read?
    keys_read: Mutex<BTreeMap<String, bool>>,
    /// Certificates that another gateway ordered, by identity.
    taken: Mutex<BTreeMap<Box<str>, u64>>,
    lookups: [SharedCounter; Lookup::ALL.len()],
    /// What operators have changed: the changes that hold, by kind, and all, by kind and result.
    changes_active: Mutex<BTreeMap<&'static str, i64>>,
    changes: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    /// The instant at which they were last read from Redis, in microseconds of Unix time. Zero without Redis.
    changes_read: SharedCounter,
    /// Is the store of certificates available? `None` if no store is used.
    acme_store: Mutex<Option<bool>>,
}

#[derive(Debug, Default)]
struct Reloads {
    succeeded: SharedCounter,
    failed: SharedCounter,
    last_failed: SharedCounter,
    last_success: SharedCounter,
    generation: SharedCounter,
}

impl Metrics {
    /// The metrics without any worker, all at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// New cells for one worker. Each worker creates one set, on its own thread, and keeps it.
    #[must_use]
    pub fn worker(&self) -> WorkerMetrics {
        let cells = Arc::new(WorkerCells {
            silences: Arc::clone(&self.silences),
            ..WorkerCells::default()
        });
        self.workers.lock().push(Arc::clone(&cells));
        WorkerMetrics(Rc::new(cells))
    }

    /// New cells for one worker's connection to a remote store. If there are no such cells, the store is the memory and
    /// always available.
    #[must_use]
    pub fn store(&self) -> StoreMetrics {
        StoreMetrics(enter(&self.stores))
    }

    /// The state of the shared store; `None` if there is none.
    #[must_use]
    pub fn shared_store(&self) -> Option<StoreStatus> {
        let stores = self.stores.lock();
        let gateways = stores.iter().map(|store| store.gateways.get()).max()?;
        let many = |reach| stores.iter().filter(|store| store.reach() == reach).count();
        Some(StoreStatus {
            workers: stores.len(),
            reaching: many(StoreReach::All),
            partly: many(StoreReach::Part),
            gateways: gateways.max(1),
        })
    }

    /// Notes that a connection was closed to make room for a new one.
    pub fn evicted(&self, what: Eviction) {
        self.evicted[what as usize].add(1);
    }

    /// Notes that a new connection was rejected.
    pub fn rejected(&self, why: Rejection) {
        self.rejected[why as usize].add(1);
    }

    /// Sets whether the present files of each identity can be used.
    pub fn tls_files(&self, ok: BTreeMap<String, bool>) {
        *self.tls_files.lock() = ok;
    }

    /// Sets the number of customers in each group that has any.
    pub fn customers(&self, of_groups: BTreeMap<String, i64>) {
        *self.customers.lock() = of_groups;
    }

    /// Sets the ends of the certificates that are shown to clients, in Unix time, by the names of their identities.
    pub fn certificates(&self, ends: BTreeMap<String, i64>) {
        *self.certificates.lock() = ends;
    }

    /// The identities whose certificates are ordered and not issued yet.
    #[must_use]
    pub fn awaited_certificates(&self) -> Vec<String> {
        let certificates = self.certificates.lock();
        let files = self.tls_files.lock();
        let awaited = files
            .keys()
            .filter(|name| !certificates.contains_key(*name));
        awaited.cloned().collect()
    }

    /// Notes the end of an order for the certificate of an identity.
    pub fn ordered(&self, identity: &str, result: OrderResult) {
        let mut orders = self.orders.lock();
        orders.entry(identity.into()).or_default()[result as usize] += 1;
    }

    /// Notes the result of a lookup of a server name's addresses.
    pub fn resolved(&self, result: Resolution) {
        self.resolutions[result as usize].add(1);
    }

    /// Notes the end of a read of an issuer's published keys.
    pub fn keys_fetched(&self, result: KeyFetch) {
        self.key_fetches[result as usize].add(1);
    }

    /// The URLs whose keys were never read.
    #[must_use]
    pub fn unread_keys(&self) -> Vec<String> {
        let read = self.keys_read.lock();
        let unread = read.iter().filter(|(_, is_read)| !**is_read);
        unread.map(|(url, _)| url.clone()).collect()
    }

    /// Sets whether the keys at each URL were ever read.
    pub fn keys_read(&self, read: BTreeMap<String, bool>) {
        *self.keys_read.lock() = read;
    }

    /// Notes that the keys at this URL are read.
    pub fn keys_are_read(&self, url: &str) {
        if let Some(read) = self.keys_read.lock().get_mut(url) {
            *read = true;
        }
    }

    /// Notes that a certificate was taken that another gateway or process has stored.
    pub fn acme_taken(&self, identity: &str) {
        *self.taken.lock().entry(identity.into()).or_default() += 1;
    }

    /// Notes the end of a lookup of another gateway's challenge.
    pub fn acme_looked_up(&self, result: Lookup) {
        self.lookups[result as usize].add(1);
    }

    /// Sets whether the store of certificates is available.
    pub fn acme_store(&self, is_there: bool) {
        *self.acme_store.lock() = Some(is_there);
    }

    /// Is the store of certificates unavailable? False before the first call to the store.
    #[must_use]
    pub fn acme_store_is_away(&self) -> bool {
        *self.acme_store.lock() == Some(false)
    }

    /// Sets the number of an operator's changes of one kind that hold.
    pub fn changes_active(&self, kind: &'static str, count: i64) {
        self.changes_active.lock().insert(kind, count);
    }

    /// Notes what became of a change.
    pub fn changed(&self, kind: &'static str, result: ChangeResult) {
        let mut changes = self.changes.lock();
        *changes.entry((kind, result.as_str())).or_default() += 1;
    }

    /// Notes that the changes were read from Redis at this instant.
    pub fn changes_read(&self, now: Timestamp) {
        self.changes_read.set(now.micros());
    }

    /// The time since the changes were last read from Redis, if they are read there.
    #[must_use]
    pub fn changes_read_age(&self) -> Option<Duration> {
        let read = self.changes_read.get();
        let age = clock::wall().micros().saturating_sub(read);
        (read > 0).then(|| Duration::from_micros(age))
    }

    /// Sets the number of keys in the memory store.
    pub fn memory_keys(&self, keys: u64) {
        self.memory_keys.set(keys);
    }

    /// Notes that new keys found the memory store full and were counted on their limit's common key.
    pub fn memory_overflowed(&self, keys: u64) {
        self.memory_overflows.add(keys);
    }

    /// Notes that the first configuration was installed.
    pub fn started(&self, generation: u64) {
        let seconds = clock::wall().micros() / 1_000_000;
        self.reloads.last_success.set(seconds);
        self.reloads.generation.set(generation);
    }

    /// Notes that a changed configuration was installed.
    pub fn reloaded(&self, generation: u64) {
        self.reloads.succeeded.add(1);
        self.reloads.last_failed.set(0);
        self.started(generation);
    }

    /// Notes that a changed configuration was refused; the previous one stays.
    pub fn reload_failed(&self) {
        self.reloads.failed.add(1);
        self.reloads.last_failed.set(1);
    }

    /// Notes that a successor did not reach serving.
    pub fn hand_over_failed(&self) {
        self.failed_handovers.add(1);
    }

    /// Notes lines of the access log that were lost because their reader is too slow or gone.
    pub(super) fn access_lines_dropped(&self, lines: u64) {
        self.lines_dropped.add(lines);
    }

    /// Notes lines of the access log that another line represents, because one client was refused too often.
    pub(super) fn access_lines_summarised(&self, lines: u64) {
        self.lines_summarised.add(lines);
    }
}

#[cfg(test)]
impl Metrics {
    /// The number of lines of the access log that have been lost.
    pub(super) fn access_lines_lost(&self) -> u64 {
        self.lines_dropped.get()
    }
}

/// New cells in `list`.
fn enter<C: Default>(list: &Mutex<Vec<Arc<C>>>) -> Arc<C> {
    let cells = Arc::<C>::default();
    list.lock().push(Arc::clone(&cells));
    cells
}

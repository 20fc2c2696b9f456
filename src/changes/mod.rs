//! What operators change while gateways run: a counter is emptied, at every gateway.
//!
//! In: an operator's request, from the admin listener. Out: the change, once the store has it and the gateways have
//! taken it over, or why there is none. One worker of a gateway with Redis asks about once a second whether there is
//! anything new.
//!
//! ```text
//! request   the request for a change, and its author
//! change    a change as it is shown
//! errors    why there is none
//! payload   a change as the store keeps it
//! counters  the counters of a limit and a key
//! ledger    the changes that this gateway knows
//! reset     a counter is emptied, step by step
//! reading   one worker reads what is new, and takes it over
//! ```

mod change;
mod counters;
mod errors;
mod ledger;
mod payload;
mod reading;
mod request;
mod reset;

pub use change::{ChangeView, OperatorChange};
pub use errors::ChangeError;
pub use request::{Author, CounterBefore, ResetReach, ResetRequest};

use crate::clock::{self, Clock};
use crate::snapshot::Snapshot;
use crate::store::changes::ChangeBook;
use crate::store::{Fleet, Invalidation, MemoryStore, Store};
use crate::telemetry::metrics::{ChangeResult, Metrics};
use arc_swap::ArcSwap;
use ledger::Ledger;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Requests that wait for the worker that answers them.
const WAITING: usize = 16;
/// The longest time of a request: what the store may take, and the wait for other gateways.
const WITHIN: Duration = Duration::from_secs(6);

/// The parts of a gateway that changes concern.
#[derive(Debug)]
pub struct ChangeParts {
    /// The present snapshot, whose limits are changed.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// The counters of this process.
    pub memory: Arc<MemoryStore>,
    /// What the workers know of counters.
    pub invalidation: Invalidation,
    /// The gateways that count together.
    pub fleet: Arc<Fleet>,
    /// The gateway's clock.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
}

/// The changes of this gateway. All workers and the admin listener share them.
#[derive(Debug)]
pub struct OperatorChanges {
    parts: ChangeParts,
    keeping: ChangeBackend,
    ledger: Mutex<Ledger>,
    /// The instant of the next look, in milliseconds since the start.
    due: AtomicU64,
    /// Why the changes cannot be read at present.
    trouble: Mutex<Option<String>>,
}

/// Where changes are kept.
#[derive(Debug)]
enum ChangeBackend {
    /// In this process, and lost with it.
    Memory(Mutex<ChangeBook>),
    /// In Redis. A worker does what needs a connection.
    Redis {
        jobs: mpsc::Sender<ResetJob>,
        waiting: Mutex<Option<mpsc::Receiver<ResetJob>>>,
    },
}

/// A reset for the worker that answers it.
#[derive(Debug)]
pub struct ResetJob {
    request: ResetRequest,
    author: Author,
    answer: oneshot::Sender<Result<OperatorChange, ChangeError>>,
}

impl OperatorChanges {
    /// No changes yet, of a gateway whose counters are in Redis or in this process.
    #[must_use]
    pub fn new(parts: ChangeParts, is_shared: bool) -> Arc<Self> {
        let keeping = if is_shared {
            let (jobs, waiting) = mpsc::channel(WAITING);
            parts.metrics.changes_read(clock::wall());
            ChangeBackend::Redis {
                jobs,
                waiting: Mutex::new(Some(waiting)),
            }
        } else {
            ChangeBackend::Memory(Mutex::default())
        };
        let ledger = Mutex::new(Ledger::new(parts.clock.now()));
        Arc::new(Self {
            parts,
            keeping,
            ledger,
            due: AtomicU64::new(0),
            trouble: Mutex::default(),
        })
    }

    /// Empties the counters of a limit and a key. Takes a few seconds at most.
    ///
    /// # Errors
    /// If nothing was emptied, or not at every place: see [`ChangeError`].
    pub async fn reset(
        &self,
        request: ResetRequest,
        author: Author,
    ) -> Result<OperatorChange, ChangeError> {
        let reset = match &self.keeping {
            ChangeBackend::Memory(book) => self.reset_here(book, &request, &author),
            ChangeBackend::Redis { jobs, .. } => {
                let (answer, answered) = oneshot::channel();
                let job = ResetJob {
                    request,
                    author,
                    answer,
                };
                let asked = async {
                    jobs.send(job).await.ok()?;
                    answered.await.ok()
                };
                let late = || ChangeError::StoreAway("no worker has answered in time".into());
                let answered = timeout(WITHIN, asked).await.ok().flatten();
                answered.unwrap_or_else(|| Err(late()))
            }
        };
        let result = match &reset {
            Ok(_) => ChangeResult::Done,
            Err(_) => ChangeResult::Refused,
        };
        self.parts.metrics.changed("reset", result);
        reset
    }

    /// The changes that hold, and those that have ended in the last hour.
    #[must_use]
    pub fn list(&self) -> ChangeView {
        let mut ledger = self.ledger.lock();
        ledger.view(self.scope(), self.parts.clock.now())
    }

    /// Which gateways changes concern.
    fn scope(&self) -> &'static str {
        match self.keeping {
            ChangeBackend::Memory(_) => "this_gateway",
            ChangeBackend::Redis { .. } => "all_gateways",
        }
    }

    /// Why the changes cannot be read at present, if they cannot.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// The time since the changes were last read, if they are read from Redis.
    #[must_use]
    pub fn read_age(&self) -> Option<Duration> {
        self.parts.metrics.changes_read_age()
    }

    /// The requests that need a worker, for the first worker that asks for them.
    pub fn jobs(&self) -> Option<mpsc::Receiver<ResetJob>> {
        match &self.keeping {
            ChangeBackend::Memory(_) => None,
            ChangeBackend::Redis { waiting, .. } => waiting.lock().take(),
        }
    }

    /// Answers requests from `store`, each in a task of its own, until the worker ends.
    pub async fn serve(self: Arc<Self>, store: Store, mut jobs: mpsc::Receiver<ResetJob>) {
        while let Some(job) = jobs.recv().await {
            let (changes, store) = (Arc::clone(&self), store.clone());
            tokio::task::spawn_local(async move {
                let Store::Shared(shared) = &store else {
                    return;
                };
                let reset = changes.reset_everywhere(&store, shared, &job.request, &job.author);
                // The operator may have left.
                let _ = job.answer.send(reset.await);
            });
        }
    }
}

//! Each worker on its own thread, with its share of connections and open files.

use super::worker::{WorkerSetup, WorkerThread};
use super::{GatewayState, StartError};
use crate::admin;
use crate::config::Boot;
use crate::descriptors::{self, Budget};
use crate::listen::accept::{left_for_upstreams, most_connections};
use crate::listen::dispatch::{ConnectionBounds, Dispatcher};
use crate::telemetry::access_log::AccessLog;
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;

fn count_workers(boot: &Boot) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match boot.workers {
        0 => cores,
        asked => asked,
    }
}

/// The channels that workers get beside the gateway's state.
pub(super) struct WorkerChannels {
    /// Peeks at counters. The first worker answers them: its connection to the store is like any other worker's.
    pub(super) peeks: Option<mpsc::Receiver<admin::PeekRequest>>,
    /// Closed when every worker's store has answered once.
    pub(super) store_ready: mpsc::Sender<()>,
}

pub(super) fn start_workers(
    boot: &Boot,
    shared: &GatewayState,
    log: &AccessLog,
    mut channels: WorkerChannels,
) -> Result<(Arc<Dispatcher>, Vec<WorkerThread>), StartError> {
    let open_files = descriptors::raise();
    let count = count_workers(boot);
    let bounds = ConnectionBounds {
        most: most_taken(boot.listen.max_connections, open_files),
        per_client: boot.listen.max_connections_per_client,
    };
    let (dispatcher, incoming) = Dispatcher::new(count, bounds, &shared.metrics);
    let descriptors = Budget::new(left_for_upstreams(bounds.most, open_files), count);
    let start = |(index, incoming)| {
        WorkerThread::start(WorkerSetup {
            index,
            dispatcher: Arc::clone(&dispatcher),
            incoming,
            descriptors: descriptors.share(),
            shared: shared.clone(),
            log: log.clone(),
            listen: boot.listen.clone(),
            store: boot.store.clone(),
            store_ready: channels.store_ready.clone(),
            peeks: channels.peeks.take(),
        })
    };
    let workers: io::Result<Vec<WorkerThread>> =
        incoming.into_iter().enumerate().map(start).collect();
    Ok((dispatcher, workers?))
}

/// The bound on connections, logged if it differs from the file's.
fn most_taken(asked: usize, files: Option<u64>) -> usize {
    let most = most_connections(asked, files);
    if let Some(files) = files.filter(|_| most < asked) {
        tracing::info!(
            "the system allows {files} open files: at most {most} connections are held at once, not {asked}; raise the number of files with `ulimit -n`"
        );
    }
    most
}

//! Clients that send requests without end, each on its own connection, and the record of these requests.

use super::gateway::Gateway;
use super::message::get;
use super::wire::{End, Wire};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// One request of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shot {
    /// The instant at which the request was sent.
    pub(crate) at: Instant,
    /// The time until the answer.
    pub(crate) took: Duration,
    /// The status of the answer; 0 if the connection ended without one.
    pub(crate) status: u16,
}

/// Running clients.
#[derive(Debug)]
pub(crate) struct Load {
    over: Arc<AtomicBool>,
    clients: JoinSet<Vec<Shot>>,
}

impl Load {
    /// Starts `clients` that ask for `/`, each `pause` after its last answer, spread evenly over `gateways`.
    pub(crate) async fn on(gateways: &[&Gateway], clients: usize, pause: Duration) -> Self {
        let mut wires = Vec::new();
        for n in 0..clients {
            wires.push(gateways[n % gateways.len()].connect().await);
        }
        let over = Arc::new(AtomicBool::new(false));
        let mut load = Self {
            over,
            clients: JoinSet::new(),
        };
        for wire in wires {
            load.clients
                .spawn(keep_asking(wire, pause, Arc::clone(&load.over)));
        }
        load
    }

    /// Lets the load run for `time`; no event marks the end of a load.
    pub(crate) async fn run(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Ends the load, and returns all requests in the order of sending.
    pub(crate) async fn stop(self) -> Vec<Shot> {
        self.over.store(true, Ordering::Relaxed);
        let mut shots: Vec<Shot> = self
            .clients
            .join_all()
            .await
            .into_iter()
            .flatten()
            .collect();
        shots.sort_by_key(|shot| shot.at);
        shots
    }
}

async fn keep_asking(mut wire: Wire, pause: Duration, over: Arc<AtomicBool>) -> Vec<Shot> {
    let mut shots = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let at = Instant::now();
        let answer = match wire.try_send(get("/")).await {
            Ok(()) => wire.try_answer().await,
            Err(_) => Err(End::Reset),
        };
        let status = answer.as_ref().map_or(0, |answer| answer.status);
        shots.push(Shot {
            at,
            took: at.elapsed(),
            status,
        });
        if answer.is_err() {
            break;
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    shots
}

/// The number of shots with each status.
pub(crate) fn statuses(shots: &[Shot]) -> std::collections::BTreeMap<u16, usize> {
    shots
        .iter()
        .fold(std::collections::BTreeMap::new(), |mut counts, shot| {
            *counts.entry(shot.status).or_insert(0) += 1;
            counts
        })
}

/// The time within which this share of the shots was answered.
pub(crate) fn within(shots: &[Shot], share: f64) -> Duration {
    let mut times: Vec<Duration> = shots.iter().map(|shot| shot.took).collect();
    times.sort();
    let at = ((times.len() as f64 * share).ceil() as usize).clamp(1, times.len());
    times[at - 1]
}

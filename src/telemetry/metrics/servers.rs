//! The counts of servers apart from requests: their states, ejections and probes. All of these events are rare.

use super::Metrics;
use super::family::{Sample, SampleValue, sample};
use super::label::{Labels, ProbeResult};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The state of a server of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReading {
    /// The upstream's name.
    pub upstream: String,
    /// The server's name in the metrics.
    pub server: String,
    /// 1: it gets requests; 0: it does not, by probes or its weight; -1: it is ejected.
    pub state: i64,
}

/// The counts.
#[derive(Debug, Default)]
pub(super) struct ServerTallies {
    states: Mutex<Vec<ServerReading>>,
    pub(super) ejections: Mutex<BTreeMap<Labels, u64>>,
    pub(super) probes: Mutex<BTreeMap<Labels, u64>>,
}

fn labels(upstream: &str, server: &str) -> Labels {
    Labels::of("upstream", upstream).and("server", server.to_owned())
}

impl Metrics {
    /// Sets the states of all servers.
    pub fn servers(&self, states: Vec<ServerReading>) {
        *self.servers.states.lock() = states;
    }

    /// Notes that a server was ejected.
    pub fn ejected(&self, upstream: &str, server: &str) {
        let mut counts = self.servers.ejections.lock();
        *counts.entry(labels(upstream, server)).or_default() += 1;
    }

    /// Notes the end of a probe.
    pub fn probed(&self, upstream: &str, server: &str, result: ProbeResult) {
        let labels = labels(upstream, server).and("result", result.as_str());
        *self.servers.probes.lock().entry(labels).or_default() += 1;
    }

    pub(super) fn server_states(&self) -> Vec<Sample> {
        let states = self.servers.states.lock();
        let samples = states.iter().map(|one| {
            let state = SampleValue::Signed(one.state);
            sample(labels(&one.upstream, &one.server), state)
        });
        samples.collect()
    }
}

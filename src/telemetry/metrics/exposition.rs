//! Every metric by name, with its help: the cells of all workers summed and handed to the encoder.

use super::family::{Encoder, counter, counters, gauge, gauges, histogram, histograms, sizes};
use super::instrument::{
    Counter, HistogramReading, OverheadBuckets, RoundTripBuckets, WaitBuckets,
};
use super::label::{
    CLASSES, CallOutcome, Combination, CostReport, DecidedBy, Decision, Failure, Label, Mode,
    Operation, Permits, Redirect, pairs,
};
use super::store::CallSizeReading;
use super::worker_cells::{WorkerCells, copy};
use super::{Metrics, StoreReach, process};
use prometheus_client::collector::Collector;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt::Result;
use std::sync::Arc;

impl Collector for Metrics {
    fn encode(&self, mut encoder: Encoder<'_>) -> Result {
        let e = &mut encoder;
        let workers = copy(&self.workers);
        requests(e, &workers)?;
        totals(e, &workers)?;
        self.connections.encode(e)?;
        decisions(e, &workers)?;
        waits(e, &workers)?;
        costs(e, &workers)?;
        self.store_metrics(e)?;
        upstreams(e, &workers)?;
        self.own_metrics(e)?;
        process_metrics(e)
    }
}

fn requests(e: &mut Encoder<'_>, workers: &[Arc<WorkerCells>]) -> Result {
    let mut counts: BTreeMap<(Box<str>, Combination), u64> = BTreeMap::new();
    let mut times: BTreeMap<_, HistogramReading> = BTreeMap::new();
    for cells in workers.iter().flat_map(|worker| copy(&worker.routes)) {
        for (seen, histogram) in cells.seen() {
            let reading = histogram.read();
            *counts.entry((cells.route.clone(), seen)).or_default() += reading.count();
            let group = (cells.route.clone(), seen.method(), seen.class());
            times.entry(group).or_default().merge(&reading);
        }
    }
    let counts = counts.into_iter().map(|((route, seen), count)| {
        let labels = [
            ("route", route.into_string()),
            ("method", seen.method().to_owned()),
            ("code", seen.code()),
            ("source", seen.source().to_owned()),
        ];
        (labels, count)
    });
    let help = "Requests answered, by the route that matched and by who wrote the answer.";
    counters(e, "tollgate_http_requests", help, counts)?;
    let times = times.iter().map(|((route, method, class), reading)| {
        let labels = [
            ("route", &**route),
            ("method", method),
            ("code_class", class),
        ];
        (labels, *reading)
    });
    let help = "Time from a request's head to the end of its answer, held time included.";
    histograms::<WaitBuckets, _>(e, "tollgate_http_request_duration", help, times)
}

fn totals(e: &mut Encoder<'_>, workers: &[Arc<WorkerCells>]) -> Result {
    let count =
        |pick: fn(&WorkerCells) -> u64| workers.iter().map(|worker| pick(worker)).sum::<u64>();
    let level =
        |pick: fn(&WorkerCells) -> i64| workers.iter().map(|worker| pick(worker)).sum::<i64>();
    let help = "Requests being served.";
    gauge(
        e,
        "tollgate_http_requests_in_flight",
        help,
        None,
        level(|w| w.totals.in_flight.get()),
    )?;
    let help = "Open connections of clients.";
    gauge(
        e,
        "tollgate_connections",
        help,
        None,
        level(|w| w.totals.connections.get()),
    )?;
    let help = "Connections of clients accepted.";
    counter(
        e,
        "tollgate_connections_accepted",
        help,
        None,
        count(|w| w.totals.accepted.get()),
    )?;
    let help =
        "Requests turned away since no open file was left for a connection to their upstream.";
    counter(
        e,
        "tollgate_http_requests_busy",
        help,
        None,
        count(|w| w.totals.busy.get()),
    )?;
    let bytes = Some(&Unit::Bytes);
    let help = "Bytes of request bodies received.";
    counter(
        e,
        "tollgate_http_received",
        help,
        bytes,
        count(|w| w.totals.received.get()),
    )?;
    let help = "Bytes of response bodies sent.";
    counter(
        e,
        "tollgate_http_sent",
        help,
        bytes,
        count(|w| w.totals.sent.get()),
    )?;
    let mut overhead = HistogramReading::default();
    for worker in workers {
        overhead.merge(&worker.overhead.read());
    }
    let help =
        "What the gateway adds to a forwarded request, without the upstream's time and the held.";
    histogram::<OverheadBuckets>(e, "tollgate_overhead", help, &overhead)
}

fn decisions(e: &mut Encoder<'_>, workers: &[Arc<WorkerCells>]) -> Result {
    let mut rows: BTreeMap<_, u64> = BTreeMap::new();
    for cells in workers.iter().flat_map(|worker| copy(&worker.decisions)) {
        for (decision, by) in pairs(Decision::ALL, DecidedBy::ALL) {
            let count = cells.count(decision, by).get();
            // The ordinary ones start at 0 so that their first increase is seen; the rest show up when they happen.
            if decision.is_of(cells.mode) && (count > 0 || by == DecidedBy::Store) {
                let (limit, route) = (cells.limit.clone(), cells.route.clone());
                let row = (
                    limit,
                    route,
                    cells.mode.as_str(),
                    decision.word(),
                    by.word(),
                );
                *rows.entry(row).or_default() += count;
            }
        }
    }
    let rows = rows
        .iter()
        .map(|((limit, route, mode, decision, by), count)| {
            let mut labels = vec![
                ("limit", &**limit),
                ("route", &**route),
                ("decision", decision),
                ("decided_by", by),
            ];
            if *mode != Mode::Enforce.as_str() {
                labels.push(("mode", mode));
            }
            (labels, *count)
        });
    let help = "What each limit said to each request it was asked about, and whose word that was.";
    counters(e, "tollgate_limit_decisions", help, rows)
}

fn waits(e: &mut Encoder<'_>, workers: &[Arc<WorkerCells>]) -> Result {
    let mut delays: BTreeMap<Box<str>, HistogramReading> = BTreeMap::new();
    let mut held: BTreeMap<Box<str>, i64> = BTreeMap::new();
    for cells in workers.iter().flat_map(|worker| copy(&worker.limits)) {
        let reading = cells.delays.read();
        delays
            .entry(cells.limit.clone())
            .or_default()
            .merge(&reading);
        *held.entry(cells.limit.clone()).or_default() += cells.held.0.get();
    }
    let delays = delays.iter().filter(|(_, reading)| reading.count() > 0);
    let delays = delays.map(|(limit, reading)| ([("limit", &**limit)], *reading));
    let help = "How long a limit held requests back.";
    histograms::<WaitBuckets, _>(e, "tollgate_limit_delay", help, delays)?;
    let held = held
        .iter()
        .map(|(limit, held)| ([("limit", &**limit)], *held));
    let help = "Requests waiting for a limit.";
    gauges(e, "tollgate_limit_held_requests", help, held)
}

fn costs(e: &mut Encoder<'_>, workers: &[Arc<WorkerCells>]) -> Result {
    let mut rows: BTreeMap<(Box<str>, &str), u64> = BTreeMap::new();
    for cells in workers.iter().flat_map(|worker| copy(&worker.limits)) {
        for told in CostReport::ALL {
            let count = cells.costs[told.position()].get();
            if count > 0 {
                *rows.entry((cells.limit.clone(), told.word())).or_default() += count;
            }
        }
    }
    let rows = rows.iter().map(|((limit, outcome), count)| {
        let labels = [("limit", &**limit), ("outcome", outcome)];
        (labels, *count)
    });
    let help = "Charges of limits that learn their cost from the response, by what it said.";
    counters(e, "tollgate_limit_costs", help, rows)
}

impl Metrics {
    fn store_metrics(&self, e: &mut Encoder<'_>) -> Result {
        let stores = copy(&self.stores);
        let calls = |operation, outcome| {
            let mut sum = HistogramReading::default();
            for store in &stores {
                sum.merge(&store.calls(operation, outcome));
            }
            let labels = [
                ("operation", Label::word(operation)),
                ("outcome", Label::word(outcome)),
            ];
            (labels, sum)
        };
        // Nobody waits longer for a decision than it takes.
        let calls: Vec<_> = pairs(Operation::ALL, CallOutcome::ALL)
            .filter(|pair| *pair != (Operation::Decide, CallOutcome::Lost))
            .map(|(operation, outcome)| calls(operation, outcome))
            .collect();
        let rows = calls
            .iter()
            .map(|(labels, reading)| (*labels, reading.count()));
        let help = "What the store was asked and told, what waited (down) while it was known to be away, and what was given up (lost).";
        counters(e, "tollgate_store_operations", help, rows)?;
        let rows = calls.into_iter().filter(|(labels, reading)| {
            let unasked = [CallOutcome::Down, CallOutcome::Lost].map(CallOutcome::as_str);
            !unasked.contains(&labels[1].1) && reading.count() > 0
        });
        let help = "Time of a call to the store, which may carry several decisions.";
        histograms::<RoundTripBuckets, _>(e, "tollgate_store_operation", help, rows)?;
        let mut call_sizes = CallSizeReading::new();
        for store in &stores {
            call_sizes.merge(store);
        }
        let help =
            "Decisions that went in one call to the store, of a cluster in one call to a slot.";
        sizes(e, "tollgate_store_decisions_per_call", help, &call_sizes)?;
        let rows = Redirect::ALL.iter().map(|to| {
            let count = stores.iter().map(|store| store.redirects(*to)).sum();
            ([("kind", to.as_str())], count)
        });
        let help = "Calls that a node of a cluster did not run, since another serves the slot.";
        counters(e, "tollgate_store_redirects", help, rows)?;
        let up = stores.iter().all(|store| store.reach() == StoreReach::All);
        let help = "1 when every worker reaches the store, of a cluster every slot; the memory store is always reached.";
        gauge(e, "tollgate_store_up", help, None, i64::from(up))?;
        let gateways = self.shared_store().map(|store| store.gateways);
        let help = "Gateways that count together, this one included, as last heard from the store.";
        gauge(e, "tollgate_gateways", help, None, gateways.unwrap_or(1))?;
        let answers = [DecidedBy::Local, DecidedBy::Open, DecidedBy::Closed];
        let rows = answers.map(|by| {
            let count = stores.iter().map(|store| store.fallbacks(by)).sum();
            ([("answer", by.as_str())], count)
        });
        let help = "Requests decided without the store, by what stood in for it.";
        counters(e, "tollgate_store_fallbacks", help, rows)?;
        let rows = Permits::ALL.iter().map(|of| {
            let count = stores.iter().map(|store| store.permits(*of)).sum();
            ([("what", of.as_str())], count)
        });
        let help =
            "Units charged for several requests at once, and those of them that went back unused.";
        counters(e, "tollgate_store_permits", help, rows)?;
        let help = "Keys in the memory store.";
        gauge(
            e,
            "tollgate_memory_keys",
            help,
            None,
            self.memory.keys.get(),
        )?;
        let help = "Requests with a new key that found the memory store full and shared one key.";
        counter(
            e,
            "tollgate_memory_overflows",
            help,
            None,
            self.memory.overflows.get(),
        )
    }

    fn own_metrics(&self, e: &mut Encoder<'_>) -> Result {
        let reloads = &self.reloads;
        let outcomes = [
            ([("outcome", "success")], reloads.succeeded.get()),
            ([("outcome", "failure")], reloads.failed.get()),
        ];
        let help = "Attempts to take over a changed configuration.";
        counters(e, "tollgate_config_reloads", help, outcomes)?;
        let successful = i64::from(reloads.last_failed.get() == 0);
        let help = "1 when the file as it was last read is in force.";
        gauge(
            e,
            "tollgate_config_last_reload_successful",
            help,
            None,
            successful,
        )?;
        let name = "tollgate_config_last_reload_success_timestamp";
        let help = "When the configuration in force was taken over, in Unix time.";
        gauge(
            e,
            name,
            help,
            Some(&Unit::Seconds),
            reloads.last_success.get(),
        )?;
        let help = "Number of the configuration in force, 1 at the start.";
        gauge(
            e,
            "tollgate_config_generation",
            help,
            None,
            reloads.generation.get(),
        )?;
        let lines = &self.access_log;
        let help = "Access-log lines lost because their reader is too slow or gone.";
        counter(
            e,
            "tollgate_access_log_lines_dropped",
            help,
            None,
            lines.dropped.get(),
        )?;
        let help = "Access-log lines that another line stands for, because one client was refused too often.";
        counter(
            e,
            "tollgate_access_log_lines_summarised",
            help,
            None,
            lines.summarised.get(),
        )?;
        let version = [([("version", env!("CARGO_PKG_VERSION"))], 1_u64)];
        let help = "1, labelled with what is running.";
        gauges(e, "tollgate_build_info", help, version)
    }
}

fn upstreams(e: &mut Encoder<'_>, workers: &[Arc<WorkerCells>]) -> Result {
    let mut opened: BTreeMap<Box<str>, u64> = BTreeMap::new();
    let mut failed: BTreeMap<_, u64> = BTreeMap::new();
    let mut answers: BTreeMap<_, HistogramReading> = BTreeMap::new();
    for cells in workers.iter().flat_map(|worker| copy(&worker.upstreams)) {
        let name = &cells.upstream;
        *opened.entry(name.clone()).or_default() += cells.opened.get();
        for reason in Failure::ALL {
            let count = cells.failures(*reason).get();
            *failed.entry((name.clone(), reason.word())).or_default() += count;
        }
        for (class, times) in CLASSES.iter().zip(&cells.answers) {
            let sum = answers.entry((name.clone(), *class)).or_default();
            sum.merge(&times.read());
        }
    }
    let rows = opened
        .iter()
        .map(|(name, count)| ([("upstream", &**name)], *count));
    let help = "Connections opened to an upstream's servers.";
    counters(e, "tollgate_upstream_connections_opened", help, rows)?;
    let mut unreached: BTreeMap<_, u64> = BTreeMap::new();
    for cells in workers.iter().flat_map(|worker| copy(&worker.servers)) {
        let server = (cells.upstream.clone(), cells.server.clone());
        *unreached.entry(server).or_default() += cells.unreached.get();
    }
    let rows = unreached.iter().map(|((name, server), count)| {
        let labels = [("upstream", &**name), ("server", &**server)];
        (labels, *count)
    });
    let help = "Connections that a server did not take, whatever became of the requests.";
    counters(e, "tollgate_upstream_connect_failures", help, rows)?;
    let rows = failed
        .iter()
        .map(|((name, reason), count)| ([("upstream", &**name), ("reason", reason)], *count));
    let help = "Requests that an upstream failed to answer, or to answer to the end.";
    counters(e, "tollgate_upstream_failures", help, rows)?;
    let seen = answers.iter().filter(|(_, reading)| reading.count() > 0);
    let rows = seen
        .map(|((name, class), reading)| ([("upstream", &**name), ("code_class", class)], *reading));
    let help = "Time from forwarding a request to the head of the upstream's answer.";
    histograms::<WaitBuckets, _>(e, "tollgate_upstream_request_duration", help, rows)
}

fn process_metrics(e: &mut Encoder<'_>) -> Result {
    let Some(process) = process::read() else {
        return Ok(());
    };
    let (seconds, bytes) = (Some(&Unit::Seconds), Some(&Unit::Bytes));
    let help = "User and system time this process has used.";
    counter(e, "process_cpu", help, seconds, process.cpu_seconds)?;
    let help = "Resident memory.";
    gauge(
        e,
        "process_resident_memory",
        help,
        bytes,
        process.resident_bytes,
    )?;
    let help = "Virtual memory.";
    gauge(
        e,
        "process_virtual_memory",
        help,
        bytes,
        process.virtual_bytes,
    )?;
    let help = "Open file descriptors.";
    gauge(e, "process_open_fds", help, None, process.open_files)?;
    if let Some(most) = process.max_files {
        let help = "Most file descriptors that may be open.";
        gauge(e, "process_max_fds", help, None, most)?;
    }
    let help = "Threads.";
    gauge(e, "process_threads", help, None, process.threads)?;
    let help = "When this process started, in Unix time.";
    gauge(e, "process_start_time", help, seconds, process.started)
}

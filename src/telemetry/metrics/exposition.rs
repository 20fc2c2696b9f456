//! Every metric of the program in one list: its descriptor, and how its samples are summed over the workers. The text
//! formats are written from this list.

use super::family::{
    Descriptor, Sample, SampleValue, Scrape, by_label, named, sample, single, sums,
};
use super::instrument::{
    Counter, HistogramReading, OverheadBuckets, RoundTripBuckets, WaitBuckets,
};
use super::label::{
    CLASSES, CallOutcome, CostReport, DecidedBy, Decision, Eviction, Failure, Label, Mode,
    Operation, Permits, Redirect, Rejection, pairs,
};
use super::store::CallSizeReading;
use super::worker_cells::copy;
use super::{Metrics, StoreReach, process};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt::Result;

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result {
        let scrape = Scrape {
            metrics: self,
            workers: copy(&self.workers),
            stores: copy(&self.stores),
            process: process::read(),
        };
        let mut metrics = METRICS.iter();
        metrics.try_for_each(|metric| metric.encode(&mut encoder, &scrape))
    }
}

static UNIT_BYTES: Unit = Unit::Bytes;
static UNIT_SECONDS: Unit = Unit::Seconds;
const BYTES: Option<&Unit> = Some(&UNIT_BYTES);
const SECONDS: Option<&Unit> = Some(&UNIT_SECONDS);
/// Without a unit in the name.
const NONE: Option<&Unit> = None;

/// A descriptor for each row: kind, unit, name and help; behind the arrow, what its samples are.
macro_rules! descriptors {
    ($($kind:ident $unit:ident $name:literal $help:literal => $samples:expr;)+) => {
        &[$(Descriptor {
            name: $name,
            help: $help,
            kind: MetricType::$kind,
            unit: $unit,
            samples: $samples,
        }),+]
    };
}

/// Every metric, in the order of the text.
static METRICS: &[Descriptor] = descriptors! {
    Counter NONE "tollgate_http_requests" "Requests answered, by the route that matched and by the source of the answer."
        => requests;
    Histogram SECONDS "tollgate_http_request_duration" "Time from a request's head to the end of its answer, held time included."
        => request_times;
    Gauge NONE "tollgate_http_requests_in_flight" "Requests being served."
        => |all| all.level(|worker| worker.totals.in_flight.get());
    Gauge NONE "tollgate_connections" "Open connections of clients."
        => |all| all.level(|worker| worker.totals.connections.get());
    Counter NONE "tollgate_connections_accepted" "Connections of clients accepted."
        => |all| all.count(|worker| worker.totals.accepted.get());
    Counter NONE "tollgate_http_requests_busy" "Requests turned away since no open file was left for a connection to their upstream."
        => |all| all.count(|worker| worker.totals.busy.get());
    Counter BYTES "tollgate_http_received" "Bytes of request bodies received."
        => |all| all.count(|worker| worker.totals.received.get());
    Counter BYTES "tollgate_http_sent" "Bytes of response bodies sent."
        => |all| all.count(|worker| worker.totals.sent.get());
    Histogram SECONDS "tollgate_overhead" "What the gateway adds to a forwarded request, without the upstream's time and the held."
        => overhead;
    Counter NONE "tollgate_connections_gave_way" "Connections of clients closed to make room for new ones, by what they waited for."
        => |all| by_label("kind", Eviction::ALL, |kind| all.metrics.connections.evictions(kind));
    Counter NONE "tollgate_connections_turned_away" "New connections of clients that were not taken."
        => |all| by_label("reason", Rejection::ALL, |reason| all.metrics.connections.rejections(reason));
    Counter NONE "tollgate_limit_decisions" "Verdicts of each limit, and what decided them."
        => decisions;
    Histogram SECONDS "tollgate_limit_delay" "How long a limit held requests back."
        => delays;
    Gauge NONE "tollgate_limit_held_requests" "Requests waiting for a limit."
        => held_requests;
    Counter NONE "tollgate_limit_costs" "Charges of limits that learn their cost from the response, by what the response gave."
        => costs;
    Counter NONE "tollgate_store_operations" "Decisions, slots freed, refunds and settlements at the store, by outcome: down while the store was known to be away, lost when given up."
        => |all| Some(calls(all, |_, reading| Some(reading.count().into())));
    Histogram SECONDS "tollgate_store_operation" "Time of a call to the store, which may carry several decisions."
        => |all| Some(calls(all, call_times));
    Histogram NONE "tollgate_store_decisions_per_call" "Decisions that went in one call to the store, of a cluster in one call to a slot."
        => call_sizes;
    Counter NONE "tollgate_store_redirects" "Calls that a node of a cluster did not run, since another serves the slot."
        => |all| by_label("kind", Redirect::ALL, |kind| all.store_count(|store| store.redirects(kind)));
    Gauge NONE "tollgate_store_up" "1 when every worker reaches the store, of a cluster every slot; the memory store is always reached."
        => |all| single(u64::from(all.stores.iter().all(|store| store.reach() == StoreReach::All)));
    Gauge NONE "tollgate_gateways" "Gateways that count together, this one included, as the store last answered."
        => |all| single(all.metrics.shared_store().map_or(1, |store| store.gateways));
    Counter NONE "tollgate_store_fallbacks" "Requests decided without the store, by what stood in for it."
        => |all| by_label("answer", &[DecidedBy::Local, DecidedBy::Open, DecidedBy::Closed], |by| all.store_count(|store| store.fallbacks(by)));
    Counter NONE "tollgate_store_permits" "Units charged for several requests at once, and those of them that went back unused."
        => |all| by_label("what", Permits::ALL, |what| all.store_count(|store| store.permits(what)));
    Gauge NONE "tollgate_memory_keys" "Keys in the memory store."
        => |all| single(all.metrics.memory.keys.get());
    Counter NONE "tollgate_memory_overflows" "Requests with a new key that found the memory store full and shared one key."
        => |all| single(all.metrics.memory.overflows.get());
    Counter NONE "tollgate_upstream_connections_opened" "Connections opened to an upstream's servers."
        => connections_opened;
    Counter NONE "tollgate_upstream_connect_failures" "Connections that a server did not take, whatever became of the requests."
        => connect_failures;
    Counter NONE "tollgate_upstream_failures" "Requests that an upstream failed to answer, or to answer to the end."
        => upstream_failures;
    Histogram SECONDS "tollgate_upstream_request_duration" "Time from forwarding a request to the head of the upstream's answer."
        => upstream_times;
    Counter NONE "tollgate_config_reloads" "Attempts to take over a changed configuration."
        => reloads;
    Gauge NONE "tollgate_config_last_reload_successful" "1 when the file as it was last read is in force."
        => |all| single(u64::from(all.metrics.reloads.last_failed.get() == 0));
    Gauge SECONDS "tollgate_config_last_reload_success_timestamp" "When the configuration in force was taken over, in Unix time."
        => |all| single(all.metrics.reloads.last_success.get());
    Gauge NONE "tollgate_config_generation" "Number of the configuration in force, 1 at the start."
        => |all| single(all.metrics.reloads.generation.get());
    Counter NONE "tollgate_access_log_lines_dropped" "Access-log lines lost because their reader is too slow or gone."
        => |all| single(all.metrics.access_log.dropped.get());
    Counter NONE "tollgate_access_log_lines_summarised" "Access-log lines that another line stands for, because one client was refused too often."
        => |all| single(all.metrics.access_log.summarised.get());
    Gauge NONE "tollgate_build_info" "1, labelled with what is running."
        => |_| Some(vec![sample([("version", env!("CARGO_PKG_VERSION").into())], 1_u64)]);
    Counter SECONDS "process_cpu" "User and system time this process has used."
        => |all| all.process(|process| Some(process.cpu_seconds));
    Gauge BYTES "process_resident_memory" "Resident memory."
        => |all| all.process(|process| Some(process.resident_bytes));
    Gauge BYTES "process_virtual_memory" "Virtual memory."
        => |all| all.process(|process| Some(process.virtual_bytes));
    Gauge NONE "process_open_fds" "Open file descriptors."
        => |all| all.process(|process| Some(process.open_files));
    Gauge NONE "process_max_fds" "Most file descriptors that may be open."
        => |all| all.process(|process| process.max_files);
    Gauge NONE "process_threads" "Threads."
        => |all| all.process(|process| Some(process.threads));
    Gauge SECONDS "process_start_time" "When this process started, in Unix time."
        => |all| all.process(|process| Some(process.started));
};

fn requests(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let routes = all.cells(|worker| &worker.routes);
    let counts = routes.flat_map(|cells| {
        let seen = cells.seen().into_iter();
        seen.map(move |(seen, times)| ((cells.route.clone(), seen), times.read().count()))
    });
    sums(counts, |(route, seen), count| {
        let [method, source] = [seen.method(), seen.source()].map(Into::into);
        let code = seen.code().into();
        let labels = [
            named("route", route),
            ("method", method),
            ("code", code),
            ("source", source),
        ];
        Some(sample(labels, count))
    })
}

fn request_times(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let routes = all.cells(|worker| &worker.routes);
    let times = routes.flat_map(|cells| {
        let seen = cells.seen().into_iter();
        seen.map(move |(seen, times)| {
            let group = (cells.route.clone(), seen.method(), seen.class());
            (group, times.read())
        })
    });
    sums(times, |(route, method, class), reading| {
        let class = ("code_class", class.into());
        let labels = [named("route", route), ("method", method.into()), class];
        Some(sample(labels, SampleValue::times::<WaitBuckets>(&reading)))
    })
}

fn overhead(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let times = all
        .workers
        .iter()
        .map(|worker| ((), worker.overhead.read()));
    // Without a worker there are no times, but an empty histogram.
    let none = ((), HistogramReading::default());
    sums(times.chain([none]), |(), reading| {
        Some(sample([], SampleValue::times::<OverheadBuckets>(&reading)))
    })
}

fn decisions(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let decisions = all.cells(|worker| &worker.decisions);
    let counts = decisions.flat_map(|cells| {
        pairs(Decision::ALL, DecidedBy::ALL).filter_map(move |(decision, by)| {
            let count = cells.count(decision, by).get();
            // The ordinary ones start at 0 so that their first increase is seen; the rest show up when they happen.
            let is_shown = count > 0 || by == DecidedBy::Store;
            let [limit, route] = [&cells.limit, &cells.route].map(Clone::clone);
            let row = (
                limit,
                route,
                cells.mode.as_str(),
                decision.word(),
                by.word(),
            );
            (decision.is_of(cells.mode) && is_shown).then_some((row, count))
        })
    });
    sums(counts, |(limit, route, mode, decision, by), count| {
        let decision = ("decision", decision.into());
        let by = ("decided_by", by.into());
        let mut sample = sample(
            [named("limit", limit), named("route", route), decision, by],
            count,
        );
        if mode != Mode::Enforce.as_str() {
            sample.labels.push(("mode", mode.into()));
        }
        Some(sample)
    })
}

fn delays(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let limits = all.cells(|worker| &worker.limits);
    let delays = limits.map(|cells| (cells.limit.clone(), cells.delays.read()));
    sums(delays, |limit, reading| {
        let times = SampleValue::times::<WaitBuckets>(&reading);
        (reading.count() > 0).then(|| sample([named("limit", limit)], times))
    })
}

fn held_requests(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let limits = all.cells(|worker| &worker.limits);
    let held = limits.map(|cells| (cells.limit.clone(), cells.held.0.get()));
    sums(held, |limit, held| {
        Some(sample([named("limit", limit)], held))
    })
}

fn costs(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let limits = all.cells(|worker| &worker.limits);
    let costs = limits.flat_map(|cells| {
        CostReport::ALL.iter().map(move |report| {
            let row = (cells.limit.clone(), report.word());
            (row, cells.costs[report.position()].get())
        })
    });
    sums(costs, |(limit, outcome), count| {
        let labels = [named("limit", limit), ("outcome", outcome.into())];
        (count > 0).then(|| sample(labels, count))
    })
}

/// A sample for each operation and outcome of calls to the store for which `value` has one.
fn calls(
    all: &Scrape<'_>,
    value: fn(CallOutcome, HistogramReading) -> Option<SampleValue>,
) -> Vec<Sample> {
    // No request waits longer for a decision than the decision takes: none is lost.
    let calls = pairs(Operation::ALL, CallOutcome::ALL)
        .filter(|pair| *pair != (Operation::Decide, CallOutcome::Lost));
    let samples = calls.filter_map(|(operation, outcome)| {
        let mut reading = HistogramReading::default();
        for store in &all.stores {
            reading += store.calls(operation, outcome);
        }
        let outcome_label = ("outcome", outcome.as_str().into());
        let labels = [("operation", operation.as_str().into()), outcome_label];
        Some(sample(labels, value(outcome, reading)?))
    });
    samples.collect()
}

/// The times of calls that were sent.
fn call_times(outcome: CallOutcome, reading: HistogramReading) -> Option<SampleValue> {
    let was_sent = !matches!(outcome, CallOutcome::Down | CallOutcome::Lost);
    (was_sent && reading.count() > 0).then(|| SampleValue::times::<RoundTripBuckets>(&reading))
}

#[allow(
    clippy::cast_precision_loss,
    reason = "far fewer than 2^53 are ever decided"
)]
fn call_sizes(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let mut sizes = CallSizeReading::new();
    for store in &all.stores {
        sizes.merge(store);
    }
    single(SampleValue::Histogram {
        sum: sizes.decisions as f64,
        count: sizes.calls.iter().map(|(_, calls)| calls).sum(),
        buckets: sizes.calls.to_vec(),
    })
}

fn connections_opened(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let upstreams = all.cells(|worker| &worker.upstreams);
    let opened = upstreams.map(|cells| (cells.upstream.clone(), cells.opened.get()));
    sums(opened, |name, count| {
        Some(sample([named("upstream", name)], count))
    })
}

fn connect_failures(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let servers = all.cells(|worker| &worker.servers);
    let failures = servers.map(|cells| {
        let server = (cells.upstream.clone(), cells.server.clone());
        (server, cells.unreached.get())
    });
    sums(failures, |(name, server), count| {
        Some(sample(
            [named("upstream", name), named("server", server)],
            count,
        ))
    })
}

fn upstream_failures(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let upstreams = all.cells(|worker| &worker.upstreams);
    let failures = upstreams.flat_map(|cells| {
        Failure::ALL.iter().map(move |reason| {
            let row = (cells.upstream.clone(), reason.word());
            (row, cells.failures(*reason).get())
        })
    });
    sums(failures, |(name, reason), count| {
        Some(sample(
            [named("upstream", name), ("reason", reason.into())],
            count,
        ))
    })
}

fn upstream_times(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let upstreams = all.cells(|worker| &worker.upstreams);
    let times = upstreams.flat_map(|cells| {
        let classes = CLASSES.iter().enumerate();
        classes.map(move |(at, class)| ((cells.upstream.clone(), *class), cells.answers[at].read()))
    });
    sums(times, |(name, class), reading| {
        let labels = [named("upstream", name), ("code_class", class.into())];
        let times = SampleValue::times::<WaitBuckets>(&reading);
        (reading.count() > 0).then(|| sample(labels, times))
    })
}

fn reloads(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let reloads = &all.metrics.reloads;
    Some(vec![
        sample([("outcome", "success".into())], reloads.succeeded.get()),
        sample([("outcome", "failure".into())], reloads.failed.get()),
    ])
}

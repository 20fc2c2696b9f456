//! Every metric of the program in one list: its descriptor, and the summation of its samples over the workers. The text
//! formats are written from this list.

use super::family::{
    FamilyDescriptor, HistogramSample, Sample, SampleValue, Scrape, by_label, kept, met, rows,
    sample, single, total,
};
use super::instrument::{Counter, HistogramReading, RoundTripBuckets, WaitBuckets};
use super::label::{
    CLASSES, CallOutcome, ClientUnnamed, Combination, CostReport, DecidedBy, DecisionLabel,
    EndedBy, Eviction, Failure, Flow, Handshake, KeyFetch, Label, Labels, Lookup, ModeLabel,
    Operation, OrderResult, Permits, Redirect, RefusedHead, Rejection, Resolution, pairs, words,
};
use super::store::CALL_SIZE_ENDS;
use super::worker_cells::{
    CallCells, DecisionCells, DecisionKey, GRPC_STATUSES, RouteCells, UpstreamCells,
};
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
            workers: self.workers.lock().clone(),
            stores: self.stores.lock().clone(),
            process: process::read_process(),
        };
        let mut metrics = METRICS.iter();
        metrics.try_for_each(|metric| metric.encode(&mut encoder, &scrape))
    }
}

/// The times that clients waited.
type Times = HistogramReading<WaitBuckets>;

static UNIT_BYTES: Unit = Unit::Bytes;
static UNIT_SECONDS: Unit = Unit::Seconds;
const BYTES: Option<&Unit> = Some(&UNIT_BYTES);
const SECONDS: Option<&Unit> = Some(&UNIT_SECONDS);
/// For metrics without a unit in the name.
const NONE: Option<&Unit> = None;

/// A descriptor for each row: kind, unit, name and help; after the arrow, the samples.
macro_rules! descriptors {
    ($($kind:ident $unit:ident $name:literal $help:literal => $samples:expr;)+) => {
        &[$(FamilyDescriptor {
            name: $name,
            help: $help,
            kind: MetricType::$kind,
            unit: $unit,
            samples: $samples,
        }),+]
    };
}

/// Every metric, in the order of the text.
static METRICS: &[FamilyDescriptor] = descriptors! {
    Counter NONE "tollgate_http_requests" "Requests answered, by the route that matched and by the source of the answer."
        => |all| all.sums(|worker| &worker.routes, counts_of_requests);
    Histogram SECONDS "tollgate_http_request_duration" "Time from a request's head to the end of its answer, held time included."
        => |all| all.sums(|worker| &worker.routes, times_of_requests);
    Counter NONE "tollgate_grpc_calls" "Calls of gRPC, by the status that the client got; other: none, or one that gRPC does not define."
        => |all| all.sums(|worker| &worker.calls, calls_of_routes);
    Gauge NONE "tollgate_http_requests_in_flight" "Requests being served."
        => |all| all.total(|worker| worker.totals.in_flight.get());
    Counter NONE "tollgate_client_unnamed" "Requests whose trusted peer named no client, and which count as the peer's, by the cause."
        => |all| by_label("cause", ClientUnnamed::ALL, |cause| total(&all.workers, |worker| worker.totals.clients_unnamed[cause as usize].get()));
    Counter NONE "tollgate_http_heads_refused" "Heads that were refused before they were requests, by the cause."
        => |all| by_label("cause", RefusedHead::ALL, |cause| total(&all.workers, |worker| worker.totals.refused_heads[cause as usize].get()));
    Counter NONE "tollgate_http_fields_dropped" "Fields of requests that were dropped since some servers read their names as others: with `_`, and over HTTP/2 with a quotation mark."
        => |all| all.total(|worker| worker.totals.dropped_fields.get());
    Counter NONE "tollgate_http_streams_ended" "WebSockets that have ended, and answers that ended before their end, by who or what ended them."
        => |all| Some(ended(all));
    Gauge NONE "tollgate_connections" "Open connections of clients."
        => |all| all.total(|worker| worker.totals.connections.get());
    Counter NONE "tollgate_connections_accepted" "Connections of clients accepted."
        => |all| all.total(|worker| worker.totals.accepted.get());
    Counter NONE "tollgate_http_requests_busy" "Requests turned away since no open file was left for a connection to their upstream."
        => |all| all.total(|worker| worker.totals.busy.get());
    Counter BYTES "tollgate_http_received" "Bytes of request bodies received."
        => |all| all.total(|worker| worker.totals.received.get());
    Counter BYTES "tollgate_http_sent" "Bytes of response bodies sent."
        => |all| all.total(|worker| worker.totals.sent.get());
    Histogram SECONDS "tollgate_overhead" "Time that the gateway adds to a forwarded request, without the upstream's time and the time of a delay."
        => |all| all.total(|worker| worker.overhead.read());
    Counter NONE "tollgate_connections_gave_way" "Connections of clients closed to make room for new ones, by their state."
        => |all| by_label("kind", Eviction::ALL, |kind| all.metrics.evicted[kind as usize].get());
    Counter NONE "tollgate_connections_turned_away" "New connections of clients that were not taken."
        => |all| by_label("reason", Rejection::ALL, |reason| all.metrics.rejected[reason as usize].get());
    Counter NONE "tollgate_tls_handshakes" "Handshakes with clients, by the identity that was chosen, the version and the result."
        => |all| all.sums(|worker| &worker.handshakes, |identity, cells| met(&identity, "result", words::<Handshake>(), &cells.0));
    Gauge SECONDS "tollgate_tls_certificate_not_after_timestamp" "Time at which the certificate of an identity ends, in Unix time."
        => |all| kept(&all.metrics.certificates, |identity| Labels::of("identity", identity));
    Gauge NONE "tollgate_tls_files_ok" "1 when the present files of an identity are in use, 0 while earlier files stay in use, or an ordered certificate has not come."
        => |all| kept(&all.metrics.tls_files, |identity| Labels::of("identity", identity));
    Gauge NONE "tollgate_customers" "Names of customers in a group that names them, or that consists of them."
        => |all| kept(&all.metrics.customers, |group| Labels::of("group", group));
    Counter NONE "tollgate_limit_decisions" "Verdicts of each limit, by their source."
        => |all| all.sums(|worker| &worker.decisions, decisions);
    Counter NONE "tollgate_limit_blocks" "Keys that a limit blocked after a refusal, by the refusals of this gateway."
        => |all| all.sums(|worker| &worker.limits, |limit, cells| [(limit, cells.blocks.get())]);
    Histogram SECONDS "tollgate_limit_delay" "Time for which a limit held requests back."
        => |all| all.sums(|worker| &worker.limits, |limit, cells| observed(limit, cells.delays.read()));
    Gauge NONE "tollgate_limit_held_requests" "Requests waiting for a limit."
        => |all| all.sums(|worker| &worker.limits, |limit, cells| [(limit, cells.held.0.get())]);
    Counter NONE "tollgate_limit_costs" "Charges of limits that learn their cost from the response, by what the response gave."
        => |all| all.sums(|worker| &worker.limits, |limit, cells| met(&limit, "outcome", words::<CostReport>(), &cells.costs));
    Counter NONE "tollgate_store_operations" "Decisions, slots freed, refunds and settlements at the store, by outcome: down while the store was known to be away, lost when given up."
        => |all| Some(calls(all, |_, reading| Some(reading.count())));
    Histogram SECONDS "tollgate_store_operation" "Time of a call to the store, which may carry several decisions."
        => |all| Some(calls(all, |outcome, reading| {
            let was_sent = !matches!(outcome, CallOutcome::Down | CallOutcome::Lost);
            Some(reading).filter(|reading| was_sent && reading.count() > 0)
        }));
    Histogram NONE "tollgate_store_decisions_per_call" "Decisions in one call to the store; in a cluster, in one call to a slot."
        => call_sizes;
    Counter NONE "tollgate_store_redirects" "Calls that a node of a cluster did not run, since another serves the slot."
        => |all| by_label("kind", Redirect::ALL, |kind| total(&all.stores, |store| store.redirects[kind as usize].get()));
    Gauge NONE "tollgate_store_up" "1 when every worker reaches the store and, in a cluster, every slot; the memory store is always reached."
        => |all| single(all.stores.iter().all(|store| store.reach() == StoreReach::All));
    Gauge NONE "tollgate_gateways" "Gateways that count together, this one included, as the store last answered."
        => |all| single(all.metrics.shared_store().map_or(1, |store| store.gateways));
    Counter NONE "tollgate_store_fallbacks" "Requests decided without the store, by the fallback that answered."
        => |all| by_label("answer", &[DecidedBy::Local, DecidedBy::Open, DecidedBy::Closed], |by| total(&all.stores, |store| store.fallbacks[by as usize].get()));
    Counter NONE "tollgate_store_permits" "Units charged for several requests at once, and units that went back unused."
        => |all| by_label("what", Permits::ALL, |what| total(&all.stores, |store| store.permits[what as usize].get()));
    Gauge NONE "tollgate_memory_keys" "Keys in the memory store."
        => |all| single(all.metrics.memory_keys.get());
    Counter NONE "tollgate_memory_overflows" "Requests with a new key that found the memory store full and shared one key."
        => |all| single(all.metrics.memory_overflows.get());
    Gauge NONE "tollgate_changes_active" "Changes by operators that hold, by their kind."
        => |all| kept(&all.metrics.changes_active, |kind| Labels::of("kind", kind));
    Counter NONE "tollgate_changes" "Changes by operators that this gateway made or took over, by what became of them."
        => |all| kept(&all.metrics.changes, |(kind, result)| Labels::of("kind", kind).and("result", *result));
    Gauge SECONDS "tollgate_changes_read_age" "Time since changes by operators were last read from Redis."
        => |all| single(all.metrics.changes_read_age()?.as_secs_f64());
    Counter NONE "tollgate_upstream_connections_opened" "Connections opened to an upstream's servers."
        => |all| all.sums(|worker| &worker.upstreams, |upstream, cells| [(upstream, cells.opened.get())]);
    Counter NONE "tollgate_upstream_connect_failures" "Connections that a server did not accept, whether or not the requests succeeded."
        => |all| all.sums(|worker| &worker.servers, |server, cells| [(server, cells.unreached.get())]);
    Gauge NONE "tollgate_upstream_server_state" "1 while a server gets requests, 0 while it gets none by probes or its weight, -1 while it is ejected."
        => |all| Some(all.metrics.server_states());
    Gauge NONE "tollgate_upstream_server_requests_in_flight" "Requests that a server is answering."
        => |all| all.sums(|worker| &worker.servers, |server, cells| [(server, cells.in_flight.get())]);
    Counter NONE "tollgate_upstream_server_requests" "Answers of each server."
        => |all| all.sums(|worker| &worker.servers, |server, cells| met(&server, "code_class", CLASSES, &cells.answers));
    Counter NONE "tollgate_upstream_ejections" "Times that a server was ejected for failures in a row."
        => |all| kept(&all.metrics.servers.ejections, Labels::clone);
    Counter NONE "tollgate_upstream_probes" "Probes of a server, by their result."
        => |all| kept(&all.metrics.servers.probes, Labels::clone);
    Counter NONE "tollgate_upstream_retries" "Requests that were sent once more, by the failure before and by their result; budget: they were not."
        => |all| all.sums(|worker| &worker.retries, |labels, count| [(labels, count.get())]);
    Histogram SECONDS "tollgate_upstream_queue" "Time that requests waited for a server to be free."
        => |all| all.sums(|worker| &worker.queues, |upstream, times| observed(upstream, times.read()));
    Counter NONE "tollgate_upstream_failures" "Requests that an upstream failed to answer, or to answer to the end."
        => |all| all.sums(|worker| &worker.upstreams, failures);
    Histogram SECONDS "tollgate_upstream_request_duration" "Time from forwarding a request to the head of the upstream's answer."
        => |all| all.sums(|worker| &worker.upstreams, times_of_answers);
    Counter NONE "tollgate_upstream_resolutions" "Resolutions of servers' names, by the answer."
        => |all| by_label("result", Resolution::ALL, |result| all.metrics.resolutions[result as usize].get());
    Counter NONE "tollgate_jwks_fetches" "Reads of the keys that issuers publish, by their result."
        => |all| by_label("result", KeyFetch::ALL, |result| all.metrics.key_fetches[result as usize].get());
    Gauge NONE "tollgate_jwks_read" "1 when the keys at a URL were read, 0 before: tokens that they may have signed are answered 503."
        => |all| kept(&all.metrics.keys_read, |url| Labels::of("url", url));
    Counter NONE "tollgate_http_requests_keys_unread" "Requests answered 503 since the keys of their tokens were never read, by limits, routes for members or identity."
        => |all| all.total(|worker| worker.totals.keys_unread.get());
    Counter NONE "tollgate_config_reloads" "Attempts to take over a changed configuration."
        => reloads;
    Gauge NONE "tollgate_config_last_reload_successful" "1 when the file as it was last read is in force."
        => |all| single(all.metrics.reloads.last_failed.get() == 0);
    Gauge SECONDS "tollgate_config_last_reload_success_timestamp" "Time at which the configuration in force was taken over, in Unix time."
        => |all| single(all.metrics.reloads.last_success.get());
    Gauge NONE "tollgate_config_generation" "Number of the configuration in force, 1 at the start."
        => |all| single(all.metrics.reloads.generation.get());
    Counter NONE "tollgate_handover_failures" "Successors that never served, so that this gateway went on."
        => |all| single(all.metrics.failed_handovers.get());
    Counter NONE "tollgate_acme_orders" "Orders for certificates, by how they ended."
        => |all| Some(orders(all.metrics));
    Counter NONE "tollgate_acme_taken" "Certificates taken from the store or a folder, where another gateway or process has put them."
        => |all| kept(&all.metrics.taken, |identity| Labels::of("identity", identity));
    Counter NONE "tollgate_acme_lookups" "Look-ups of challenges of other gateways, or of other processes on a folder, by how they ended."
        => |all| lookups(all.metrics);
    Gauge NONE "tollgate_acme_store_up" "1 while the store of certificates answers."
        => |all| single((*all.metrics.acme_store.lock())?);
    Counter NONE "tollgate_access_log_lines_dropped" "Access-log lines lost because their reader is too slow or gone."
        => |all| single(all.metrics.lines_dropped.get());
    Counter NONE "tollgate_access_log_lines_summarised" "Access-log lines that one further line represents, because one client was refused too often."
        => |all| single(all.metrics.lines_summarised.get());
    Gauge NONE "tollgate_build_info" "1, labelled with the version that is running."
        => |_| Some(vec![sample(Labels::of("version", env!("CARGO_PKG_VERSION")), 1_u64)]);
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
    Gauge SECONDS "process_start_time" "Time at which this process started, in Unix time."
        => |all| all.process(|process| Some(process.started));
};

fn counts_of_requests(route: Labels, cells: &RouteCells) -> Vec<((Labels, Combination), u64)> {
    let seen = cells.read().into_iter();
    seen.map(|(seen, times)| ((route.clone(), seen), times.count()))
        .collect()
}

fn calls_of_routes(route: Labels, cells: &CallCells) -> Vec<(Labels, u64)> {
    let statuses = (0..GRPC_STATUSES).map(|status| status.to_string());
    let statuses = statuses.chain(["other".to_owned()]);
    met(&route, "grpc_status", statuses, &cells.0)
}

fn times_of_requests(route: Labels, cells: &RouteCells) -> Vec<(Labels, Times)> {
    let seen = cells.read().into_iter();
    let times = seen.map(|(seen, times)| {
        let method = route.clone().and("method", seen.method());
        (method.and("code_class", seen.class()), times)
    });
    times.collect()
}

fn times_of_answers(upstream: Labels, cells: &UpstreamCells) -> Vec<(Labels, Times)> {
    let classes = CLASSES.into_iter().zip(&cells.answers);
    let times = classes.flat_map(|(class, times)| {
        observed(upstream.clone().and("code_class", class), times.read())
    });
    times.collect()
}

fn decisions(key: DecisionKey, cells: &DecisionCells) -> Vec<(DecisionRow, u64)> {
    let counts =
        pairs().filter(|(decision, _): &(DecisionLabel, DecidedBy)| decision.is_of(key.mode));
    let rows = counts.filter_map(|(decision, by)| {
        let count = cells.0[decision as usize][by as usize].get();
        // The ordinary deciders start at 0 so that their first increase is visible; the others appear at their first
        // decision.
        let is_shown = count > 0 || by == DecidedBy::Store;
        let row = DecisionRow(key.clone(), decision.word(), by.word());
        is_shown.then_some((row, count))
    });
    rows.collect()
}

/// The key by which decisions are summed, and their order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DecisionRow(DecisionKey, &'static str, &'static str);

impl From<DecisionRow> for Labels {
    fn from(DecisionRow(key, decision, by): DecisionRow) -> Self {
        let labels = key.labels.and("decision", decision).and("decided_by", by);
        match key.mode {
            ModeLabel::Enforce => labels,
            mode => labels.and("mode", mode.word()),
        }
    }
}

/// A sample for times, if any were observed.
fn observed(labels: Labels, times: Times) -> Option<(Labels, Times)> {
    (times.count() > 0).then_some((labels, times))
}

fn failures(upstream: Labels, cells: &UpstreamCells) -> Vec<(Labels, u64)> {
    rows(&upstream, "reason", Failure::ALL, |reason| {
        Some(cells.failures[reason as usize].get())
    })
}

/// A sample for each kind of stream and each end of it.
fn ended(all: &Scrape<'_>) -> Vec<Sample> {
    let ends = pairs().map(|(kind, by): (Flow, EndedBy)| {
        let count = total(&all.workers, |worker| {
            worker.totals.ended[kind as usize][by as usize].get()
        });
        let labels = Labels::default().and("kind", kind.word());
        sample(labels.and("ended_by", by.word()), count)
    });
    ends.collect()
}

/// A sample for each operation and outcome of calls to the store for which `value` returns one.
fn calls<V: Into<SampleValue>>(
    all: &Scrape<'_>,
    value: fn(CallOutcome, HistogramReading<RoundTripBuckets>) -> Option<V>,
) -> Vec<Sample> {
    // No decide call is ever `lost`: no request waits longer for a decision than the decision takes.
    let calls = pairs().filter(|pair| *pair != (Operation::Decide, CallOutcome::Lost));
    let samples = calls.filter_map(|(operation, outcome)| {
        let reading = total(&all.stores, |store| {
            store.calls[operation as usize][outcome as usize].read()
        });
        let labels = Labels::default().and("operation", operation.word());
        let labels = labels.and("outcome", outcome.word());
        Some(sample(labels, value(outcome, reading)?))
    });
    samples.collect()
}

#[allow(
    clippy::cast_precision_loss,
    reason = "far fewer than 2^53 are ever decided"
)]
fn call_sizes(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let ends = CALL_SIZE_ENDS.map(f64::from).into_iter();
    let ends = ends.chain([f64::INFINITY]).enumerate();
    let buckets = ends.map(|(at, end)| {
        let calls = total(&all.stores, |store| store.call_sizes.calls[at].get());
        (end, calls)
    });
    let buckets: Vec<(f64, u64)> = buckets.collect();
    single(HistogramSample {
        sum: total(&all.stores, |store| store.call_sizes.decisions.get()) as f64,
        count: buckets.iter().map(|(_, calls)| calls).sum(),
        buckets,
    })
}

fn reloads(all: &Scrape<'_>) -> Option<Vec<Sample>> {
    let reloads = &all.metrics.reloads;
    Some(vec![
        sample(Labels::of("outcome", "success"), reloads.succeeded.get()),
        sample(Labels::of("outcome", "failure"), reloads.failed.get()),
    ])
}

/// The ends of lookups, once the store or another process's folder is used.
fn lookups(metrics: &Metrics) -> Option<Vec<Sample>> {
    let counts = &metrics.lookups;
    let is_asked =
        metrics.acme_store.lock().is_some() || counts.iter().any(|count| count.get() > 0);
    by_label("result", Lookup::ALL, |result| {
        counts[result as usize].get()
    })
    .filter(|_| is_asked)
}

/// The ends of orders, for identities that were ordered at least once.
fn orders(metrics: &Metrics) -> Vec<Sample> {
    let orders = metrics.orders.lock();
    let rows = orders.iter().flat_map(|(identity, ends)| {
        let identity = Labels::of("identity", identity);
        rows(&identity, "result", OrderResult::ALL, |end| {
            Some(ends[end as usize])
        })
    });
    rows.map(|(labels, count)| sample(labels, count)).collect()
}

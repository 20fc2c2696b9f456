//! `check --connect`: can the store and the servers of the file be reached? Each is probed once, for a few seconds at most.

use super::{CheckOutput, Format};
use crate::app::key_sets::fetch_keys;
use crate::cli::{BAD, UNREACHABLE, admin_client, runtime};
use crate::config::suggest::counted;
use crate::config::{Compiled, PublishedKeys};
use crate::listen::listener::ListenAddress;
use crate::store::redis::RedisReport;
use crate::store::{self, Backend, RedisTarget, StoreError, StoreSettings};
use crate::telemetry::{printable_line, shown_url};
use crate::upstream::survey::{self, ReachedServer};
use crate::upstream::{Server, ServerUrl, Upstream, resolution};
use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde_json::json;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The longest that the probe of a Redis takes.
const REDIS_WITHIN: Duration = Duration::from_secs(3);
/// The longest that a read of keys takes.
const KEYS_WITHIN: Duration = Duration::from_secs(5);
/// Servers that are probed at once.
const AT_ONCE: usize = 64;

/// The result of the probe of a store or a server.
pub(super) struct Probe {
    what: &'static str,
    name: String,
    pub(super) place: String,
    /// The server's report, or the reason why there is no connection.
    outcome: Result<String, String>,
    /// Does the store accept every client that reaches it?
    pub(super) open: bool,
    /// The policy by which the store forgets counters when its memory is full, if it does.
    pub(super) evicts: Option<String>,
    /// Does the store forbid its user a command that the limits need?
    unpermitted: bool,
    /// The result of a health probe, if the file has probes.
    probe: Option<Result<(), String>>,
    /// The state of a server in the running gateway, if a gateway answers: the word, and the sentence.
    state: Option<(String, String)>,
}

impl Probe {
    /// The probe of a Redis.
    pub(super) fn of_redis(place: String, open: bool, outcome: Result<String, String>) -> Self {
        Self {
            open,
            ..Self::new("redis", place, outcome)
        }
    }

    fn new(what: &'static str, place: String, outcome: Result<String, String>) -> Self {
        Self {
            what,
            name: String::new(),
            place,
            outcome,
            open: false,
            evicts: None,
            unpermitted: false,
            probe: None,
            state: None,
        }
    }

    /// Is the result free of faults?
    fn is_good(&self) -> bool {
        self.outcome.is_ok() && !matches!(self.probe, Some(Err(_)))
    }

    /// The probe with the secrets of the file masked. The text of a server stays on one line.
    fn masked(self, compiled: &Compiled) -> Self {
        let hide = |text: String| printable_line(&compiled.hide(&text)).into_owned();
        Self {
            place: hide(self.place),
            outcome: self.outcome.map(hide).map_err(hide),
            probe: self.probe.map(|probe| probe.map_err(hide)),
            ..self
        }
    }
}

/// Probes the store and the servers of every upstream.
///
/// # Errors
/// If there is no runtime to probe them in.
pub(super) fn probe(compiled: &Compiled) -> Result<Vec<Probe>, String> {
    let runtime = runtime().map_err(|error| error.to_string())?;
    crate::telemetry::log::hear_http2();
    let probes = runtime.block_on(probe_all(compiled)).into_iter();
    // The lookup of a socket's path, on a disk that does not answer, may still block a thread.
    runtime.shutdown_background();
    Ok(probes.map(|probe| probe.masked(compiled)).collect())
}

/// Reads the keys of tokens from their URLs, for the verification of tokens afterwards.
///
/// # Errors
/// If the keys at one URL cannot be read.
pub(in crate::cli) fn read_keys(compiled: &Compiled) -> Result<(), String> {
    let runtime = runtime().map_err(|error| error.to_string())?;
    for published in &compiled.key_sets {
        let probe = runtime.block_on(keys(published)).masked(compiled);
        if let Err(why) = probe.outcome {
            return Err(format!("the keys at {} cannot be read: {why}", probe.place));
        }
    }
    Ok(())
}

/// Adds the results of the probes.
pub(super) fn show(probes: &Result<Vec<Probe>, String>, format: Format, output: &mut CheckOutput) {
    let probes = match probes {
        Ok(probes) => probes,
        Err(error) => {
            let _ = writeln!(output.err, "error: no server can be asked: {error}");
            output.code = UNREACHABLE;
            return;
        }
    };
    for probe in probes {
        line(probe, format, &mut output.out);
    }
    if probes.iter().any(|probe| probe.unpermitted) {
        output.code = BAD;
    } else if !probes.iter().all(Probe::is_good) {
        output.code = UNREACHABLE;
    }
}

async fn probe_all(compiled: &Compiled) -> Vec<Probe> {
    let mut probes = Vec::new();
    if let Backend::Redis(target) = &compiled.boot.store.source {
        target.try_for(compiled.outline.limits.iter());
        probes.extend(redis(target, &compiled.boot.store).await);
    }
    let upstreams = compiled.outline.upstreams.iter().map(|one| &one.upstream);
    let servers = upstreams.flat_map(|upstream| {
        let servers = upstream.servers.iter();
        servers.map(|server| self::server(Arc::clone(upstream), server.clone()))
    });
    let found: Vec<Vec<Probe>> = stream::iter(servers).buffered(AT_ONCE).collect().await;
    let mut servers: Vec<Probe> = found.into_iter().flatten().collect();
    if let Some(admin) = &compiled.boot.admin
        && let Some(listen) = admin.listen.first()
    {
        add_states(&mut servers, listen).await;
    }
    probes.extend(servers);
    for published in &compiled.key_sets {
        probes.push(keys(published).await);
    }
    probes
}

/// Reads the keys at a URL.
async fn keys(published: &PublishedKeys) -> Probe {
    let set = &published.set;
    let read = timeout(KEYS_WITHIN, fetch_keys(set.url(), &published.tls)).await;
    let read =
        read.unwrap_or_else(|_| Err(format!("no answer within {} s", KEYS_WITHIN.as_secs())));
    let outcome = read.and_then(|(document, _)| {
        set.install(&document)?;
        let (ids, count) = set.ids();
        let ids = if ids.is_empty() {
            String::new()
        } else {
            format!(": {}", ids.join(", "))
        };
        Ok(format!("{}{ids}", counted(count, "key")))
    });
    Probe::new("jwks", shown_url(set.url()).into_owned(), outcome)
}

/// Adds the states of the servers in the running gateway, if it answers at the file's admin listener.
async fn add_states(servers: &mut [Probe], admin: &ListenAddress) {
    let Ok(answer) = admin_client::get(admin, "/v1/upstreams").await else {
        return;
    };
    for upstream in answer["upstreams"].as_array().into_iter().flatten() {
        for known in upstream["servers"].as_array().into_iter().flatten() {
            let is_it =
                |one: &&mut Probe| known["server"] == *one.place && upstream["name"] == *one.name;
            let state = known["state"].as_str().unwrap_or_default();
            if let Some(server) = servers.iter_mut().find(is_it) {
                let says = in_gateway(state, known["ejected_ms"].as_u64());
                server.state = Some((state.to_owned(), says));
            }
        }
    }
}

/// The state of a server in the running gateway, in words.
fn in_gateway(state: &str, ejected_ms: Option<u64>) -> String {
    let why = match (state, ejected_ms) {
        ("down", _) => "it has failed its probes".to_owned(),
        ("draining", _) => "its weight is 0".to_owned(),
        ("ejected", Some(left)) => format!(
            "it is ejected for another {:.1} s",
            Duration::from_millis(left).as_secs_f64()
        ),
        _ => return format!("{state} in the running gateway"),
    };
    format!("{state} in the running gateway, which gives it no requests: {why}")
}

async fn redis(target: &RedisTarget, store: &StoreSettings) -> Vec<Probe> {
    let why = match timeout(REDIS_WITHIN, store::redis::probe(target, &store.prefix)).await {
        Ok(Ok(found)) => {
            let each = found.into_iter().map(|(node, found)| {
                let place = node.map_or_else(|| target.to_string(), |node| node.to_string());
                let open = found.as_ref().is_ok_and(|found| found.open);
                let evicts = found.as_ref().ok().and_then(|found| found.evicts.clone());
                let unpermitted = matches!(found, Err(StoreError::Unpermitted(_)));
                let outcome =
                    found.map(|found| format!("{found}{}", slowness_note(&found, store.timeout)));
                let outcome = outcome.map_err(|error| error.to_string());
                Probe {
                    evicts,
                    unpermitted,
                    ..Probe::of_redis(place, open, outcome)
                }
            });
            return each.collect();
        }
        Ok(Err(error)) => {
            let why = Err(error.to_string());
            return vec![Probe {
                unpermitted: matches!(error, StoreError::Unpermitted(_)),
                ..Probe::of_redis(target.to_string(), false, why)
            }];
        }
        Err(_) => format!("no answer within {} s", REDIS_WITHIN.as_secs()),
    };
    vec![Probe::of_redis(target.to_string(), false, Err(why))]
}

/// A warning if the time of a call leaves hardly any time for a decision to wait, or for a slower network.
fn slowness_note(found: &RedisReport, timeout: Duration) -> String {
    if found.took * 2 <= timeout {
        return String::new();
    }
    format!(
        "; warning: that is more than half of `timeout` ({}), which bounds the wait and the call together: write at least {} ms",
        milliseconds(timeout),
        found.took.as_millis() * 5 / 2 + 1
    )
}

/// Probes a server, at each of its addresses.
async fn server(upstream: Arc<Upstream>, server: Server) -> Vec<Probe> {
    let name = upstream.name.to_string();
    let probe = |place: String, outcome| Probe {
        name: name.clone(),
        ..Probe::new("upstream", place, outcome)
    };
    if server.url == ServerUrl::Demo {
        let says = "answers inside the gateway".to_owned();
        return vec![probe(server.url.to_string(), Ok(says))];
    }
    let found = survey::look(&upstream, &server, &resolution::by_system()).await;
    let probes = found.into_iter().map(|one| {
        let mut probed = None;
        let outcome = one.outcome.map(|reached| {
            let report = report(&reached);
            probed = reached.probe;
            report
        });
        Probe {
            probe: probed,
            ..probe(one.server, outcome)
        }
    });
    probes.collect()
}

/// `connected in 0.4 ms, TLS 1.3, HTTP/2; its certificate ends 2027-01-31T00:00:00Z`.
fn report(reached: &ReachedServer) -> String {
    let took = milliseconds(reached.took);
    let ends = reached
        .not_after
        .and_then(|end| Timestamp::from_second(end).ok());
    let ends = ends.map_or_else(String::new, |end| format!("; its certificate ends {end}"));
    format!("connected in {took}, {}{ends}", reached.speaks)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

fn line(probe: &Probe, format: Format, out: &mut String) {
    let (Ok(report) | Err(report)) = &probe.outcome;
    let reachable = probe.outcome.is_ok();
    let (what, name, place) = (probe.what, &probe.name, &probe.place);
    // Writing into a string cannot fail.
    let _ = if format == Format::Json {
        let mut line = json!({ "asked": what, "name": name, "place": place, "reachable": reachable, "says": report });
        if let Some(probe) = &probe.probe {
            line["probe"] = probe.as_ref().err().map_or("good", String::as_str).into();
        }
        if let Some((state, _)) = &probe.state {
            line["state"] = state.as_str().into();
        }
        writeln!(out, "{line}")
    } else {
        let gap = if name.is_empty() { "" } else { "  " };
        let mark = match (reachable, &probe.probe) {
            _ if probe.unpermitted => "DOES NOT SERVE: ",
            (false, _) => "NOT REACHABLE: ",
            (true, Some(Err(_))) => "DOES NOT SERVE: ",
            (true, _) => "",
        };
        let probed = match &probe.probe {
            None => String::new(),
            Some(Ok(())) => "; its probe is good".to_owned(),
            Some(Err(why)) => format!("; its probe fails: {why}"),
        };
        let state = probe.state.as_ref();
        let state = state.map_or_else(String::new, |(_, says)| format!("; {says}"));
        writeln!(
            out,
            "  {what}  {name}{gap}{place}  {mark}{report}{probed}{state}"
        )
    };
}

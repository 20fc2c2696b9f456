//! A request's client as named by a trusted peer, and the metrics and log lines if it names none.

use crate::client::spelled;
use crate::key::client_ip::{FoundClient, Trust, Unnamed};
use crate::telemetry::excerpt;
use crate::telemetry::log::{Throttle, Throttles};
use crate::telemetry::metrics::{ClientUnnamed, WorkerMetrics};
use http::HeaderMap;
use std::net::IpAddr;
use std::time::Duration;

/// The bytes of a field that a warning shows.
const SHOWN: usize = 64;
/// The least time between two lines about one cause.
const MINUTE: Duration = Duration::from_secs(60);

/// The client of a request that a trusted `peer` has sent; `None` if a Unix socket's peer names none.
pub(in crate::proxy) fn named_by(
    trust: &Trust,
    peer: Option<IpAddr>,
    fields: &HeaderMap,
    metrics: &WorkerMetrics,
) -> Option<IpAddr> {
    let found = trust.found(peer, fields);
    if let Some(cause) = found.unnamed {
        report(trust, &found, cause, peer, fields, metrics);
    }
    found.address
}

/// Notes a request on a connection whose proxy names no client in its header.
#[cold]
#[inline(never)]
pub(in crate::proxy) fn by_proxy_header(proxy: Option<IpAddr>, metrics: &WorkerMetrics) {
    static TOLD: Throttle = Throttle::every(MINUTE);
    metrics.client_unnamed(ClientUnnamed::Unknown);
    if let Some(more) = TOLD.pass() {
        let proxy = spelled(proxy);
        tracing::warn!(
            "a PROXY protocol header of {proxy} names no client: such connections count as those of {proxy}, and no field of their requests that names a client is trusted{more}"
        );
    }
}

#[cold]
#[inline(never)]
fn report(
    trust: &Trust,
    found: &FoundClient,
    cause: Unnamed,
    peer: Option<IpAddr>,
    fields: &HeaderMap,
    metrics: &WorkerMetrics,
) {
    static TOLD: Throttles<2> = Throttles::every(MINUTE);
    let label = match cause {
        Unnamed::Malformed => ClientUnnamed::Malformed,
        Unnamed::Hidden => ClientUnnamed::Unknown,
        // Probes of a load balancer, and peers that are clients themselves, have no client to name.
        Unnamed::Absent => return metrics.client_unnamed(ClientUnnamed::Absent),
    };
    metrics.client_unnamed(label);
    let (Some(field), Some(more)) = (found.field(), TOLD.pass(cause as usize)) else {
        return;
    };
    let why = match cause {
        Unnamed::Malformed => "malformed",
        Unnamed::Hidden | Unnamed::Absent => "unknown: a hop hides the one before it",
    };
    tracing::warn!(
        "the trusted peer {} names no client, its `{}` is {why}: \"{}\"; such requests count as those of {}{more}",
        spelled(peer),
        trust.name(field),
        beginning(fields, trust.name(field)),
        spelled(found.address),
    );
}

/// The first bytes of a field's lines, escaped.
fn beginning(fields: &HeaderMap, name: &str) -> String {
    let lines = fields.get_all(name).into_iter();
    let lines: Vec<&[u8]> = lines.map(|line| line.as_bytes()).collect();
    let all = lines.join(&b", "[..]);
    excerpt(&all, SHOWN)
}

//! Compiles `[upstreams.NAME]` into upstreams: the files of their certificates are read.

use super::client_tls::WrittenTls;
use crate::config::document::{Document, ServerEntry, Upstream, UpstreamTls};
use crate::config::input::files::fence::Fence;
use crate::config::input::grant::refusal::unreached;
use crate::config::input::{At, SideFiles, Source, Span};
use crate::upstream::ejection::EjectionRule;
use crate::upstream::retry_rule::RetryRule;
use crate::upstream::{self, ServerTls, ServerUrl, SocketFence, UpstreamRules, UpstreamState};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Compiles every upstream. The upstreams are complete if no mistake is noted.
pub(in crate::config) fn read_upstreams(
    document: &Document,
    side_files: &mut SideFiles<'_>,
) -> Vec<Arc<upstream::Upstream>> {
    let mut fences = HashMap::new();
    let all = document.upstreams.iter();
    all.map(|written| Arc::new(upstream(written, &mut fences, side_files)))
        .collect()
}

/// The fence of the sockets of each included file, by the start of the file.
type SocketFences = HashMap<usize, (Fence, SocketFence)>;

fn upstream(
    written: &Upstream,
    fences: &mut SocketFences,
    side_files: &mut SideFiles<'_>,
) -> upstream::Upstream {
    let entries = written.servers.entries().iter();
    let servers = entries.filter_map(|entry| server(&entry.value, fences, side_files));
    let servers: Vec<_> = servers.collect();
    upstream::Upstream {
        name: written.name.value.as_str().into(),
        state: Arc::new(UpstreamState::new(&servers)),
        servers,
        connect_timeout: written.connect_timeout(),
        host: written.host(),
        tls: tls(written, side_files),
        protocol: written.http(),
        resolve: written.resolve(),
        max_age: written.max_age.get().copied(),
        rules: rules(written),
        forward_client_cert: written.forward_client_cert(),
    }
}

/// A server, with the fence of its socket. A socket outside the fence is noted.
fn server(
    written: &ServerEntry,
    fences: &mut SocketFences,
    side_files: &mut SideFiles<'_>,
) -> Option<upstream::Server> {
    let mut server = written.compiled()?;
    let At { value: url, span } = written.url.at()?;
    if let ServerUrl::Unix(path) = url
        && let Some((fence, bound)) = socket_fence(span, fences, side_files.source)
    {
        let refusal = unreached(side_files.source, span, path, fence);
        side_files.found.extend(refusal);
        server.socket_fence = Some(bound.clone());
    }
    Some(server)
}

/// The fence of the sockets for the file that contains a place, if the file is included.
fn socket_fence<'f>(
    span: &Span,
    fences: &'f mut SocketFences,
    source: &Source,
) -> Option<&'f (Fence, SocketFence)> {
    match fences.entry(source.start(span.start)) {
        Entry::Occupied(known) => Some(known.into_mut()),
        Entry::Vacant(place) => {
            let fence = source.socket_fence(span.start)?;
            let (shown_fence, of_servers) = (format!("{fence:?}"), fence.clone());
            let bound =
                SocketFence::new(shown_fence, move |place| of_servers.contains_place(place));
            Some(place.insert((fence, bound)))
        }
    }
}

/// The rules of an upstream.
fn rules(written: &Upstream) -> UpstreamRules {
    UpstreamRules {
        balance: written.balance().rule,
        health: written.health.get().cloned(),
        eject: written
            .eject
            .get()
            .cloned()
            .unwrap_or_else(|| Some(EjectionRule::default())),
        retry: written
            .retry
            .get()
            .cloned()
            .unwrap_or_else(|| Some(RetryRule::default())),
        queue: written.queue.get().copied().unwrap_or_default(),
        ramp: written.ramp.get().copied(),
        none_left: written.none_left(),
    }
}

/// The TLS of connections, if a server uses TLS. `None` if its settings have a mistake, which has been noted.
fn tls(upstream: &Upstream, side_files: &mut SideFiles<'_>) -> Option<ServerTls> {
    let servers = upstream.servers.entries().iter();
    let mut urls = servers.filter_map(|entry| entry.value.url.at());
    let url = urls.find(|url| url.value.is_encrypted())?;
    if upstream.tls.is_bad() {
        return None;
    }
    let none = UpstreamTls::default();
    let written = upstream.tls.get().unwrap_or(&none);
    let tls = WrittenTls {
        ca: &written.ca,
        cert: &written.cert,
        key: &written.key,
        server_name: written.name.get().map(String::as_str),
        insecure: written.insecure(),
        url: Some((&url.span, "a server with TLS")),
        name_authority: "name the authority of its certificate: `tls = { ca = \"internal-ca.pem\" }`",
    };
    tls.read(side_files).map(ServerTls::new)
}

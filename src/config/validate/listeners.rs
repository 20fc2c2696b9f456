//! Rules about the entries of `listen`: their files, and the expected behaviour of their peers.

pub(super) mod listen_addresses;

use crate::config::document::{Document, ProxyProtocol};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Findings};
use crate::config::settings::trusted_networks::host_bits;
use crate::listen::listener::ListenAddress;

/// Checks the entries of `listen` against the rest of the file.
pub(super) fn check_listeners(document: &Document, found: &mut Findings) {
    let server = &document.server;
    if let Some(admin) = &document.admin {
        let all = admin.listen();
        let is_unix = |at: &At<ListenAddress>| matches!(at.value, ListenAddress::Unix(_));
        if let Some(other) = all.first().filter(|_| !all.iter().any(is_unix)) {
            rights(admin.mode.span(), &other.value, found);
        }
    }
    for entry in server.listen.entries() {
        let address = entry.value.listens_on();
        let address = address.map(|address| &address.value);
        if let Some(address) = address {
            rights(entry.value.mode.span(), address, found);
        }
        let is_unix = matches!(address, Some(ListenAddress::Unix(_)));
        let Some(At { value, span }) = entry.value.proxy_protocol.at() else {
            continue;
        };
        match value {
            ProxyProtocol::Trusted if is_unix => {}
            ProxyProtocol::Trusted if server.trust.is_absent() || is_empty(document) => {
                let message = "`proxy_protocol = true` is for the networks of `trust`, and `trust` names none";
                found
                    .error(Code::MissingKey, message)
                    .at(span, "no peer would be asked for its header")
                    .help("name the networks of your proxies: `proxy_protocol = [\"10.0.0.0/8\"]`");
            }
            ProxyProtocol::Within(_) if is_unix => {
                found
                    .conflict("the peers of a Unix socket have no address that a network could hold")
                    .at(span, "networks")
                    .help("write `proxy_protocol = true`: every peer of the socket must then send the header");
            }
            ProxyProtocol::Within(networks) => {
                for At { value, span } in networks {
                    host_bits(*value, span, found);
                }
            }
            ProxyProtocol::Trusted | ProxyProtocol::Off => {}
        }
    }
}

/// A mode applies to the file of a Unix socket.
fn rights(mode: Option<&Span>, address: &ListenAddress, found: &mut Findings) {
    let Some(mode) = mode.filter(|_| !matches!(address, ListenAddress::Unix(_))) else {
        return;
    };
    found
        .conflict(format!(
            "`mode` is for the file of a Unix socket, and {address} is none"
        ))
        .at(mode, "no file has these rights")
        .help("leave it out; for a socket of systemd it is `SocketMode` in the socket's unit");
}

/// Is `trust` an empty list?
fn is_empty(document: &Document) -> bool {
    let trust = document.server.trust.written();
    trust.is_some_and(Vec::is_empty)
}

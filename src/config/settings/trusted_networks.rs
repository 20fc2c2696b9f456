//! The networks of `[server] trust`: those that the file names, and those of other files.

use super::file_lines::lines;
use crate::client::Nat64;
use crate::config::document::{Document, TrustEntry};
use crate::config::input::{At, Reference, SideFiles, Span};
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::{network, quoted};
use ipnet::IpNet;

/// The largest file of networks.
const MOST_BYTES: u64 = 1024 * 1024;
/// The most networks of one file: each request looks through all.
const MOST_NETWORKS: usize = 2_000;

/// Reads the networks of all entries, in their order.
pub(in crate::config) fn read_trust(
    document: &Document,
    side_files: &mut SideFiles<'_>,
) -> Vec<IpNet> {
    let mut networks = Vec::new();
    let nat64 = document.server.translators();
    for at in document.server.trust.entries() {
        let path = match &at.value {
            TrustEntry::Network(network) => {
                if is_everyone(*network, &nat64) {
                    warn_of_everyone(&at.span, "every address", side_files.found);
                } else {
                    host_bits(*network, &at.span, side_files.found);
                }
                networks.push(*network);
                continue;
            }
            TrustEntry::File(path) => At::new(path.clone(), at.span.clone()),
        };
        let failure = format!("cannot read {}, networks of `trust`", quoted(&path.value));
        let reference = Reference {
            span: &path.span,
            failure: &failure,
            label: "a file with one network on a line",
        };
        let Some(content) = side_files.bytes(&path.value, MOST_BYTES, reference) else {
            continue;
        };
        if let Some(read) = of_file(&path, &content, side_files.found) {
            warn_of_lines(&path, &read, &nat64, side_files.found);
            networks.extend(read.into_iter().map(|(_, network)| network));
        }
    }
    networks
}

/// The networks of one file, each with the number of its line. A file without any, or with a line that is none, is an
/// error: a reload then changes nothing.
fn of_file(path: &At<String>, content: &[u8], found: &mut Findings) -> Option<Vec<(usize, IpNet)>> {
    let mut networks = Vec::new();
    for (line, text) in lines(content) {
        let place = format!("{}:{line}", path.value);
        let Ok(network) = network(&String::from_utf8_lossy(text)) else {
            found
                .error(Code::BadNetwork, format!("{place} is not a network"))
                .at(&path.span, "one network on a line")
                .help("write `10.0.0.0/8`, or an address alone");
            return None;
        };
        if networks.len() == MOST_NETWORKS {
            let message =
                format!("{place}: beyond the {MOST_NETWORKS} networks that a file has at most");
            found
                .error(Code::BadNetwork, message)
                .at(&path.span, "")
                .help("write larger networks");
            return None;
        }
        networks.push((line, network));
    }
    if networks.is_empty() {
        let message = format!("{} has no network", quoted(&path.value));
        found
            .error(Code::BadNetwork, message)
            .at(&path.span, "one network on a line")
            .help("leave the entry out if no proxy is meant");
        return None;
    }
    Some(networks)
}

/// Notes the first line of a file with every address, and the first with an address inside its network.
fn warn_of_lines(
    path: &At<String>,
    networks: &[(usize, IpNet)],
    nat64: &Nat64,
    found: &mut Findings,
) {
    let everyone = |(_, network): &&(usize, IpNet)| is_everyone(*network, nat64);
    if let Some((line, network)) = networks.iter().find(everyone) {
        let label = format!("{}:{line} is {network}, every address", path.value);
        warn_of_everyone(&path.span, label, found);
    }
    let has_bits = |one: &&(usize, IpNet)| !everyone(one) && one.1.addr() != one.1.network();
    if let Some((line, network)) = networks.iter().find(has_bits) {
        let (whole, one) = (network.trunc(), network.addr());
        found
            .warning(Code::HostBits, more_than_one(*network))
            .at(
                &path.span,
                format!("{}:{line} is all of {whole}", path.value),
            )
            .help(format!(
                "write `{whole}` for the network, or `{one}` for the address alone"
            ));
    }
}

fn is_everyone(network: IpNet, nat64: &Nat64) -> bool {
    network.prefix_len() == 0 || nat64.has(network)
}

fn warn_of_everyone(span: &Span, label: impl Into<String>, found: &mut Findings) {
    let message = "every client is trusted to state the address that it comes from";
    found
        .warning(Code::TrustsEveryone, message)
        .at(span, label)
        .help("name the networks of your own proxies only");
}

/// Notes a network that is written as an address inside it: perhaps only the address was meant.
pub(in crate::config) fn host_bits(network: IpNet, span: &Span, found: &mut Findings) {
    if network.addr() != network.network() {
        let (whole, one) = (network.trunc(), network.addr());
        found
            .warning(Code::HostBits, more_than_one(network))
            .at(span, format!("all of {whole}"))
            .help(format!(
                "write `\"{whole}\"` for the network, or `\"{one}\"` for the address alone"
            ));
    }
}

fn more_than_one(network: IpNet) -> String {
    format!("{network} is more than one address")
}

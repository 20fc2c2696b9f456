//! The networks of `[server] trust`: those that the file names, and those of other files.

use super::groups::lines;
use crate::config::document::{Document, TrustEntry};
use crate::config::input::{At, Reference, SideFiles};
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
        let read = of_file(&path, &content, side_files.found);
        let every = |network: &&IpNet| network.prefix_len() == 0 || nat64.has(**network);
        if let Some(network) = read.iter().find(every) {
            let message = "every client is trusted to state the address that it comes from";
            side_files
                .found
                .warning(Code::TrustsEveryone, message)
                .at(
                    &path.span,
                    format!("it has {network}, which is every address"),
                )
                .help("name the networks of your own proxies only");
        }
        networks.extend(read);
    }
    networks
}

/// The networks of one file. A file without any, or with a line that is none, is an error: a reload then changes
/// nothing.
fn of_file(path: &At<String>, content: &[u8], found: &mut Findings) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for (line, text) in lines(content) {
        let place = format!("{}:{line}", path.value);
        let text = String::from_utf8_lossy(text);
        match network(&text) {
            Ok(network) if networks.len() < MOST_NETWORKS => networks.push(network),
            Ok(_) => {
                found
                    .error(
                        Code::BadNetwork,
                        format!(
                            "{place}: beyond the {MOST_NETWORKS} networks that a file has at most"
                        ),
                    )
                    .at(&path.span, "")
                    .help("write larger networks");
                break;
            }
            Err(_) => {
                found
                    .error(Code::BadNetwork, format!("{place} is not a network"))
                    .at(&path.span, "one network on a line")
                    .help("write `10.0.0.0/8`, or an address alone");
                break;
            }
        }
    }
    if networks.is_empty() && !found.iter().any(|one| one.start() == Some(path.span.start)) {
        found
            .error(
                Code::BadNetwork,
                format!("{} has no network", quoted(&path.value)),
            )
            .at(&path.span, "one network on a line")
            .help("leave the entry out if no proxy is meant");
    }
    networks
}

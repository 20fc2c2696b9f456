//! The lines printed at the start: the addresses, the limits, and commands to try.

use crate::config::{Boot, describe};
use crate::limit::{Limit, Mode, Scope};
use crate::listen::bind::{Families, reachable};
use crate::listen::listener::ListenAddress;
use crate::snapshot::{Service, Snapshot, StaticReply};
use crate::store::Backend;
use crate::telemetry::printable;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

/// Longest list of one kind that is printed in full.
const MOST_LINES: usize = 8;

/// Prints the lines on standard error.
pub(super) fn print(
    boot: &Boot,
    snapshot: &Snapshot,
    addresses: &[OpenAddress],
    admin: &[ListenAddress],
) {
    let mut text = format!("tollgate {}\n", env!("CARGO_PKG_VERSION"));
    for open in addresses {
        let _ = writeln!(text, "  listening  {}", open.url());
        if let Some(families) = open.families {
            let _ = writeln!(text, "             on {families}");
        }
    }
    for admin in admin {
        let _ = writeln!(
            text,
            "  admin      {}  (/metrics /healthz /readyz)",
            url(admin, "http")
        );
    }
    let _ = writeln!(text, "  counting   {}", counting(boot));
    routes(&mut text, boot, snapshot);
    limits(&mut text, snapshot);
    let mut asked = addresses.iter().filter(|open| !open.redirects);
    let asked = asked.find_map(OpenAddress::asked_by_curl);
    if let Some(asked) = asked {
        let _ = writeln!(
            text,
            "  try it     for i in $(seq 15); do curl {asked}/; done; echo",
        );
    }
    // Standard error may be closed.
    let _ = std::io::stderr().write_all(printable(&text).as_bytes());
}

/// An address that clients can connect to.
#[derive(Debug)]
pub(super) struct OpenAddress {
    pub(super) address: ListenAddress,
    /// The address families of a socket on every address.
    pub(super) families: Option<Families>,
    pub(super) has_tls: bool,
    /// Are all requests redirected to `https`?
    pub(super) redirects: bool,
}

impl OpenAddress {
    fn scheme(&self) -> &'static str {
        if self.has_tls { "https" } else { "http" }
    }

    fn url(&self) -> String {
        url(&self.address, self.scheme())
    }

    /// The arguments with which curl requests the address.
    fn asked_by_curl(&self) -> Option<String> {
        // The certificate of a trial may be self-signed.
        let flags = if self.has_tls { "-sko" } else { "-so" };
        let asked = format!("{flags} /dev/null -w '%{{http_code}} '");
        match &self.address {
            ListenAddress::Tcp(_) | ListenAddress::EveryAddress(_) => {
                Some(format!("{asked} {}", self.url()))
            }
            ListenAddress::Unix(path) => {
                let (path, scheme) = (path.display(), self.scheme());
                Some(format!("{asked} --unix-socket {path} {scheme}://localhost"))
            }
            ListenAddress::Systemd(_) => None,
        }
    }
}

/// The address as a client on this machine writes it.
fn url(address: &ListenAddress, scheme: &str) -> String {
    match address.socket_address() {
        Some(address) => format!("{scheme}://{}", reachable(address)),
        None => address.to_string(),
    }
}

fn counting(boot: &Boot) -> String {
    match &boot.store.source {
        Backend::Memory => "in memory, this gateway alone".to_owned(),
        Backend::Redis(target) => {
            let there = target.to_string();
            let there = boot.secrets.hide(&there);
            format!("in {there}, shared by all gateways there")
        }
    }
}

fn routes(text: &mut String, boot: &Boot, snapshot: &Snapshot) {
    for service in snapshot.services.iter().take(MOST_LINES) {
        let upstream = service.upstream.map(|at| &snapshot.upstreams[at]);
        let servers: Vec<String> = upstream
            .into_iter()
            .flat_map(|upstream| upstream.servers.iter().map(ToString::to_string))
            .collect();
        let deciding = service.limits.iter();
        let deciding = deciding.filter(|limit| limit.mode != Mode::Candidate);
        let mut limits: Vec<&str> = deciding.map(|limit| &*limit.name).collect();
        limits.dedup();
        let limits = if limits.is_empty() {
            "no limit".to_owned()
        } else {
            limits.join(", ")
        };
        let to = upstream.map_or_else(|| answered(service), |_| servers.join(", "));
        let _ = writeln!(
            text,
            "  route      {}  ->  {}  [{limits}]",
            service.route().unwrap_or("(none matches)"),
            boot.secrets.hide(&to)
        );
    }
    more(text, snapshot.services.len());
}

/// The answer to requests that go to no upstream.
fn answered(service: &Service) -> String {
    match &service.static_reply {
        Some(StaticReply::Redirect { to, status }) => {
            format!("{} to {}", status.as_u16(), to.written())
        }
        Some(StaticReply::Respond { status, .. }) => status.as_u16().to_string(),
        None => "404".to_owned(),
    }
}

fn limits(text: &mut String, snapshot: &Snapshot) {
    let used: BTreeMap<(&str, Option<&str>), &Limit> = snapshot
        .services
        .iter()
        .flat_map(|service| service.limits.iter())
        .filter(|limit| limit.mode != Mode::Candidate)
        .map(|limit| ((&*limit.name, limit.window.as_deref()), &**limit))
        .collect();
    for ((name, _), limit) in used.iter().take(MOST_LINES) {
        let alone = match limit.scope {
            Scope::Gateway => ", this gateway alone",
            Scope::Cluster => "",
        };
        let only = match limit.mode {
            Mode::Shadow => ", shadow: only counted",
            Mode::Enforce | Mode::Candidate => "",
        };
        let tiers = limit.tiers.iter();
        let tiers: String = tiers
            .map(|tier| format!("; {}: {}", tier.group.name, describe::brief(&tier.limit)))
            .collect();
        let numbers = describe::customer_numbers(limit);
        let numbers = numbers.map_or(String::new(), |numbers| format!("; {numbers}"));
        let _ = writeln!(
            text,
            "  limit      {name}  {}{tiers}{numbers}{alone}{only}",
            describe::brief(limit)
        );
    }
    more(text, used.len());
}

fn more(text: &mut String, count: usize) {
    if count > MOST_LINES {
        let _ = writeln!(text, "             and {} more", count - MOST_LINES);
    }
}

//! The notes on networks that strictly contain the network of a NAT64 translator. Clients behind a translator are in
//! none of these networks, since they count by their IPv4 addresses.

use crate::client::Nat64;
use crate::config::Compiled;
use crate::listen::listener::ProxyPeers;
use ipnet::{IpNet, Ipv6Net};

/// A note for each network.
pub(super) fn list_notes(compiled: &Compiled) -> Vec<String> {
    let outline = &compiled.outline;
    let networks = outline.nat64.iter().map(Ipv6Net::addr);
    let nat64 = Nat64::of(networks);
    let mut notes: Vec<String> = Vec::new();
    let mut look = |place: &str, networks: &[IpNet]| {
        for network in networks {
            let Some(translator) = nat64.lost_by(*network, networks) else {
                continue;
            };
            let note = format!(
                "clients behind NAT64 count by their IPv4 addresses, which {network} ({place}) does not contain: write {translator} beside it to include all of them"
            );
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    };
    look("`trust`", &outline.trust);
    for listener in &outline.boot.listen.listeners {
        if let Some(ProxyPeers::Within(networks)) = &listener.proxies {
            look("`proxy_protocol`", networks);
        }
    }
    for group in &outline.groups {
        look(
            &format!("members of group {}", group.name),
            &group.networks(),
        );
    }
    for limit in &outline.limits {
        if let Some(exempt) = &limit.exempt {
            look(
                &format!("`exempt` of limit {}", limit.name),
                &exempt.networks,
            );
        }
    }
    notes
}

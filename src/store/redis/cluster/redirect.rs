//! A cluster's redirections, which replace an answer. In each case the call was not run.

use crate::store::endpoint::Address;
use crate::store::redis::wire::slot::{SLOTS, Slot};
use std::sync::Arc;

/// Causes for which a node of a cluster did not run a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirection {
    /// The slot has a new owner.
    Moved(Slot, Address),
    /// The slot is being moved to another node, and the counters are already there, or new.
    Ask(Address),
    /// The slot is being moved to another node, and some of the counters are in each place.
    TryAgain,
    /// No node serves the slot.
    Unserved,
    /// The keys are in different slots: a fault of this program.
    Crossed,
}

/// Reads the text of an error of the node at `from`.
pub(crate) fn read_redirection(reason: &str, from: &Address) -> Option<Redirection> {
    let mut words = reason.split_ascii_whitespace();
    match words.next()? {
        "MOVED" => {
            let slot: Slot = words.next()?.parse().ok()?;
            let known = usize::from(slot) < SLOTS;
            known.then(|| Some(Redirection::Moved(slot, address(words.next()?, from)?)))?
        }
        "ASK" => Some(Redirection::Ask(address(words.nth(1)?, from)?)),
        "TRYAGAIN" => Some(Redirection::TryAgain),
        "CROSSSLOT" => Some(Redirection::Crossed),
        // If the error means that the cluster as a whole is down, it concerns the node itself.
        "CLUSTERDOWN" if reason.contains("not served") => Some(Redirection::Unserved),
        _ => None,
    }
}

/// `host:port`. An address without a host means the host of the answering node.
fn address(text: &str, from: &Address) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = match host {
        "" | "?" => Arc::clone(&from.host),
        host => Arc::from(host),
    };
    let port = port.parse().ok().filter(|port| *port != 0)?;
    Some(Address { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let from = Address::new("here", 7000);
        let at = Address::new;
        for (reason, instead) in [
            (
                "MOVED 3999 127.0.0.1:6381",
                Some(Redirection::Moved(3999, at("127.0.0.1", 6381))),
            ),
            (
                "MOVED 1 :6381",
                Some(Redirection::Moved(1, at("here", 6381))),
            ),
            (
                "MOVED 1 ::1:6381",
                Some(Redirection::Moved(1, at("::1", 6381))),
            ),
            (
                "ASK 3999 redis-4:6381",
                Some(Redirection::Ask(at("redis-4", 6381))),
            ),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                Some(Redirection::TryAgain),
            ),
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                Some(Redirection::Crossed),
            ),
            (
                "CLUSTERDOWN Hash slot not served",
                Some(Redirection::Unserved),
            ),
            ("CLUSTERDOWN The cluster is down", None),
            ("MOVED 99999 127.0.0.1:6381", None),
            ("MOVED 1 127.0.0.1:none", None),
            ("MOVED", None),
            ("OOM command not allowed", None),
            ("", None),
        ] {
            assert_eq!(read_redirection(reason, &from), instead, "{reason}");
        }
    }
}

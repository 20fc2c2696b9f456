//! The identities that one listener offers, and the choice among them for a client.

use super::ServerIdentity;
use super::served_name::{rests_below, wildcard_rest};
use std::collections::HashMap;
use std::sync::Arc;

type Names = HashMap<Box<str>, usize, foldhash::fast::RandomState>;

/// The identities of one listener.
#[derive(Debug)]
pub struct Offer {
    identities: Vec<Arc<ServerIdentity>>,
    /// Positions of identities by the names of their tables.
    by_table: Names,
    /// Positions of identities by exact names.
    exact: Names,
    /// Positions of identities by the suffixes of their wildcards, without the `*`.
    wildcards: Names,
    /// The wildcards whose identities demand certificates: their demand covers hosts at any depth.
    demanding: Names,
    /// The length of the longest of these. No longer part of a host is looked up among them, for any number of dots in
    /// a client's host.
    longest_demanding: usize,
    default: Option<usize>,
    /// An identity requests clients' certificates.
    asks_clients: bool,
    /// There is at least one identity, and each demands certificates.
    demands_everywhere: bool,
    /// The number of the listener's offers so far, including this one.
    generation: u64,
}

/// A name that two identities of one listener claim, or two identities that both want to be the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedTwice {
    /// The name; `None` if both claim to be the default.
    pub name: Option<String>,
    /// The names of the two identities, in the order of the listener.
    pub identities: [String; 2],
}

/// The reason for the choice of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenBy {
    /// The identity has a name for the host.
    Name,
    /// The identity demands certificates for every host below one of its wildcards.
    Demand,
    /// The identity is the default.
    Default,
}

impl Offer {
    /// The offer of a listener, each identity once. A single identity is the default. A listener without identities
    /// refuses all handshakes.
    ///
    /// # Errors
    /// All names that two of the identities claim.
    pub fn new(identities: Vec<Arc<ServerIdentity>>) -> Result<Self, Vec<ClaimedTwice>> {
        let by_table = identities.iter().enumerate();
        let by_table = by_table.map(|(at, one)| (one.name().into(), at)).collect();
        let mut offer = Self {
            by_table,
            exact: Names::default(),
            wildcards: Names::default(),
            demanding: Names::default(),
            longest_demanding: 0,
            default: (identities.len() == 1).then_some(0),
            asks_clients: identities.iter().any(|one| one.client().is_some()),
            demands_everywhere: !identities.is_empty()
                && identities.iter().all(|one| one.demands_certificates()),
            generation: 1,
            identities,
        };
        let mut twice = Vec::new();
        for at in 0..offer.identities.len() {
            offer.enter(at, &mut twice);
        }
        if twice.is_empty() {
            Ok(offer)
        } else {
            Err(twice)
        }
    }

    fn enter(&mut self, at: usize, twice: &mut Vec<ClaimedTwice>) {
        let served = Arc::clone(&self.identities[at]);
        let mut claimed = |name: Option<String>, first: usize| {
            let first = self.identities[first].name();
            twice.push(ClaimedTwice {
                name,
                identities: [first.into(), served.name().into()],
            });
        };
        for host in served.hosts() {
            let (names, key) = match host.rest() {
                Some(rest) => (&mut self.wildcards, rest),
                None => (&mut self.exact, host.as_str()),
            };
            match names.get(key) {
                Some(first) if *first != at => claimed(Some(host.to_string()), *first),
                _ => drop(names.insert(key.into(), at)),
            }
            if let Some(rest) = host.rest().filter(|_| served.demands_certificates()) {
                self.longest_demanding = self.longest_demanding.max(rest.len());
                self.demanding.insert(rest.into(), at);
            }
        }
        if served.is_default() {
            match self.default {
                Some(first) if first != at => claimed(None, first),
                _ => self.default = Some(at),
            }
        }
    }

    /// The identities, in the order of the listener.
    #[must_use]
    pub fn identities(&self) -> &[Arc<ServerIdentity>] {
        &self.identities
    }

    /// The identity of the table of this name.
    #[must_use]
    pub fn named(&self, table: &str) -> Option<&Arc<ServerIdentity>> {
        Some(&self.identities[*self.by_table.get(table)?])
    }

    /// Does an identity request clients' certificates?
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.asks_clients
    }

    /// Does no handshake succeed without a certificate?
    #[must_use]
    pub fn demands_everywhere(&self) -> bool {
        self.demands_everywhere
    }

    /// The identity for clients that name no host, or a host that no other identity serves.
    #[must_use]
    pub fn default_identity(&self) -> Option<&Arc<ServerIdentity>> {
        Some(&self.identities[self.default?])
    }

    /// The identity for a host: by its exact name, then by a wildcard for its first label, then by the nearest wildcard
    /// above it whose identity demands certificates, then the default. `host` is in lower case, without port and
    /// trailing dot; `None` if the client named none.
    ///
    /// Routes match all hosts below one of their wildcards. So a demand covers all of these too, though the shown
    /// certificate is for one label.
    #[must_use]
    pub fn choose(&self, host: Option<&str>) -> Option<&Arc<ServerIdentity>> {
        self.choice(host).map(|(identity, _)| identity)
    }

    /// Like [`Self::choose`], with the reason.
    #[must_use]
    pub fn choice(&self, host: Option<&str>) -> Option<(&Arc<ServerIdentity>, ChosenBy)> {
        let by_name = host.and_then(|host| {
            let by_rest = || self.wildcards.get(wildcard_rest(host)?);
            let named = self.exact.get(host).or_else(by_rest);
            let named = named.map(|at| (at, ChosenBy::Name));
            named.or_else(|| Some((self.demanding_above(host)?, ChosenBy::Demand)))
        });
        let by_default = || Some((self.default.as_ref()?, ChosenBy::Default));
        let (at, by) = by_name.or_else(by_default)?;
        Some((&self.identities[*at], by))
    }

    fn demanding_above(&self, host: &str) -> Option<&usize> {
        rests_below(host, self.longest_demanding).find_map(|rest| self.demanding.get(rest))
    }

    /// The identities for hosts below `suffix` (with its leading dot) that no longer name covers: for hosts with one
    /// label before it, and for hosts with more.
    #[must_use]
    pub fn below(&self, suffix: &str) -> [Option<&Arc<ServerIdentity>>; 2] {
        let served = self.demanding.get(suffix);
        let more = served.or_else(|| self.demanding_above(suffix)).copied();
        let one = self.wildcards.get(suffix).copied().or(more);
        [one, more].map(|at| Some(&self.identities[at.or(self.default)?]))
    }

    /// May a request for `host` be served on a connection whose handshake was by `identity`? If not, the request
    /// belongs on another connection (421, RFC 9110 section 15.5.20). `host` as in [`Self::choose`].
    ///
    /// The request may, unless the host belongs to another identity and one of the two identities asks for clients'
    /// certificates. If a reload has added requirements for clients that the handshake did not meet, the table contains
    /// a different identity.
    #[must_use]
    pub fn may_serve(&self, identity: &Arc<ServerIdentity>, host: Option<&str>) -> bool {
        if !self.looks_at_hosts(identity) {
            return true;
        }
        let Some(served) = self.choose(host) else {
            // No handshake leads to this host: no other connection would help, and the host has no rules of its own.
            return true;
        };
        Arc::ptr_eq(served, identity) || is_as_strict(identity, served)
    }

    /// Is there a host that a connection by `identity` may not serve ([`Self::may_serve`])?
    #[must_use]
    pub fn looks_at_hosts(&self, identity: &ServerIdentity) -> bool {
        self.asks_clients || identity.client().is_some()
    }

    /// The number of the installed offer among those of its listener, unique there. Before the installation it is 1, or
    /// the number of the offer from which this one was made.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// This offer as a replacement of `old`, with equal identities taken from `old`, so that their sessions and tickets
    /// stay valid.
    #[must_use]
    pub fn keeping(mut self, old: &Self) -> Self {
        self.generation = old.generation + 1;
        let old = old.identities.iter();
        let old: HashMap<[u8; 32], _> = old.map(|one| (one.digest(), one)).collect();
        for served in &mut self.identities {
            if let Some(same) = old.get(&served.digest()) {
                *served = Arc::clone(same);
            }
        }
        self
    }
}

impl Offer {
    /// This offer with other certificates: those that `certified` has for identities of that name. Names and
    /// requirements for clients stay unchanged.
    #[must_use]
    pub fn certified(&self, certified: &HashMap<String, Arc<ServerIdentity>>) -> Self {
        let of =
            |served: &Arc<ServerIdentity>| certified.get(served.name()).unwrap_or(served).clone();
        Self {
            identities: self.identities.iter().map(of).collect(),
            by_table: self.by_table.clone(),
            exact: self.exact.clone(),
            wildcards: self.wildcards.clone(),
            demanding: self.demanding.clone(),
            longest_demanding: self.longest_demanding,
            default: self.default,
            asks_clients: self.asks_clients,
            demands_everywhere: self.demands_everywhere,
            generation: self.generation,
        }
    }
}

/// Was a handshake by `had` at least as strict as one by `own`?
fn is_as_strict(had: &ServerIdentity, served: &ServerIdentity) -> bool {
    let is_same_table = had.name() == served.name();
    match (had.client(), served.client()) {
        (None, None) => true,
        (_, None) => is_same_table,
        (None, Some(_)) => false,
        (Some(had), Some(served)) => is_same_table && served.is_met_by(had),
    }
}

#[cfg(test)]
mod tests;

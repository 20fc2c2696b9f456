//! The client's address: the peer's own, or found by a walk from the right through trusted hops.

use super::forwarded;
use super::node::{Node, read_node};
use crate::client::Nat64;
use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use std::cell::RefCell;
use std::net::IpAddr;

/// Networks whose entries in `Forwarded` and `X-Forwarded-For` are believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    networks: Vec<IpNet>,
    /// The field that their peers write; either field where that is not known.
    field: Option<Field>,
    /// The networks of translators: their addresses stand for others.
    nat64: Nat64,
}

/// Most hops of a walk; a longer chain ends at the last hop of these.
const MOST_HOPS: usize = 32;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A field that holds the addresses of a request's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded`.
    Forwarded,
}

impl Field {
    /// The field's name in a file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}

/// The fields of a trusted peer that give a request's original scheme and host. Where both are there, `Forwarded` is
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OriginFields {
    /// `Forwarded`.
    pub forwarded: bool,
    /// `X-Forwarded-Proto` and `X-Forwarded-Host`.
    pub listed: bool,
}

/// The end of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WalkEnd {
    client: Option<IpAddr>,
    /// Why the walk has ended at an entry that names no address, if it has.
    unnamed: Option<Unnamed>,
}

/// Causes for which a trusted peer names no client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unnamed {
    /// The field has a text that its grammar does not allow.
    Malformed,
    /// A hop hides the one before it: `unknown`, or a name that begins with an underscore.
    Hidden,
    /// No field says anything.
    Absent,
}

/// The client of a request, and whether a trusted peer was to name it and did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundClient {
    /// The address; nothing where the peer of a Unix socket names none.
    pub address: Option<IpAddr>,
    /// The cause for which a trusted peer has named no client; nothing where it has, or is not trusted.
    pub unnamed: Option<Unnamed>,
    why: AddressReason,
}

/// Reasons for which an address is taken for the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressReason {
    /// The address is the peer's, and no peer is trusted.
    NobodyTrusted,
    /// The address is the peer's, which is not trusted.
    Stranger,
    /// The address is that of a trusted peer, which names no other.
    Unsaid,
    /// The walk over this field ended with the address.
    Said(Field),
    /// The two fields name different strangers; the address is that of this field.
    Disagree(Field),
}

/// An entry of a field on the way of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The field of the entry.
    pub field: Field,
    /// The address; nothing where the entry has no readable one, which ends the walk.
    pub address: Option<IpAddr>,
    /// Is the address trusted? A trusted one leads on to the next entry.
    pub trusted: bool,
}

/// The client's address, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// The address; nothing where the peer of a Unix socket names none.
    pub client: Option<IpAddr>,
    /// The reason for this address.
    pub why: AddressReason,
    /// The entries of the walk in its order: from the right.
    pub hops: Vec<Hop>,
}

impl FoundClient {
    /// The field that was to name the client; nothing where no field is there, or the peer is not trusted.
    #[must_use]
    pub fn field(&self) -> Option<Field> {
        match self.why {
            AddressReason::Said(field) | AddressReason::Disagree(field) => Some(field),
            AddressReason::NobodyTrusted | AddressReason::Stranger | AddressReason::Unsaid => None,
        }
    }
}

impl Trust {
    /// Believes peers in `networks`.
    #[must_use]
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self {
            networks,
            ..Self::default()
        }
    }

    /// Takes addresses in these networks for the addresses inside them, those of trusted networks too.
    #[must_use]
    pub fn translating(self, nat64: Nat64) -> Self {
        let networks = self.networks.iter();
        let networks = networks.flat_map(|network| nat64.networks(*network));
        Self {
            networks: networks.collect(),
            nat64,
            ..self
        }
    }

    /// The address that counts for this one ([`Nat64::client`]).
    #[must_use]
    pub fn counted(&self, address: IpAddr) -> IpAddr {
        self.nat64.client(address)
    }

    /// Reads this field alone, where one is given.
    #[must_use]
    pub fn reading(self, field: Option<Field>) -> Self {
        Self { field, ..self }
    }

    /// Is this peer believed? The peer of a Unix socket has no address, and is believed: only processes of this machine
    /// that have the right to reach it can be such a peer.
    #[must_use]
    pub fn believes(&self, peer: Option<IpAddr>) -> bool {
        peer.is_none_or(|peer| self.has(peer))
    }

    /// Is the address in a trusted network?
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        // Most files trust no proxy.
        if self.networks.is_empty() {
            return false;
        }
        let address = self.counted(address);
        let mut networks = self.networks.iter();
        networks.any(|network| network.contains(&address))
    }

    /// Walks from the peer towards the client and stops at the first address that is not trusted.
    ///
    /// An entry that names no address ends the walk at the hop that vouched for it. The left end, which any client can write, is
    /// reached only through hops that are all trusted. Trusted proxies write one of the two fields and often pass the
    /// other on as a stranger sent it. If [`reading`](Self::reading) names a field, only that one is walked. Otherwise
    /// both are, and a walk that ends within the trusted networks yields to one that leads out of them. In every other
    /// case `X-Forwarded-For` decides, since nearly every proxy writes it.
    #[must_use]
    pub fn client(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> Option<IpAddr> {
        self.find(peer, fields, |_| {}).address
    }

    /// As [`Self::client`], and whether a trusted peer has named no client.
    #[must_use]
    pub fn found(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> FoundClient {
        self.find(peer, fields, |_| {})
    }

    /// As [`Self::client`], with its reasons.
    #[must_use]
    pub fn explain(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> Walk {
        let hops = RefCell::new(Vec::new());
        let found = self.find(peer, fields, |hop| hops.borrow_mut().push(hop));
        Walk {
            client: found.address,
            why: found.why,
            hops: hops.into_inner(),
        }
    }

    fn find(&self, peer: Option<IpAddr>, fields: &HeaderMap, seen: impl Fn(Hop)) -> FoundClient {
        let peer = peer.map(|peer| self.counted(peer));
        let of_peer = |why, unnamed| FoundClient {
            address: peer,
            unnamed,
            why,
        };
        if !self.believes(peer) {
            let why = if self.networks.is_empty() {
                AddressReason::NobodyTrusted
            } else {
                AddressReason::Stranger
            };
            return of_peer(why, None);
        }
        let listed = || self.listed(peer, fields, &seen);
        let forwarded = || self.forwarded(peer, fields, &seen);
        match self.told(fields) {
            (false, false) => of_peer(AddressReason::Unsaid, Some(Unnamed::Absent)),
            (true, false) => listed().found(AddressReason::Said(Field::XForwardedFor)),
            (false, true) => forwarded().found(AddressReason::Said(Field::Forwarded)),
            (true, true) => self.weigh(listed(), forwarded()),
        }
    }

    /// The only one of a trusted peer's fields that is believed. Nothing where either may be, or both name the same
    /// client.
    #[must_use]
    pub fn leading(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> Option<Field> {
        if self.field.is_some() || self.told(fields) != (true, true) {
            return self.field;
        }
        let peer = peer.map(|peer| self.counted(peer));
        let listed = self.listed(peer, fields, &|_| {});
        let forwarded = self.forwarded(peer, fields, &|_| {});
        match self.weigh(listed, forwarded).why {
            AddressReason::Said(field) | AddressReason::Disagree(field)
                if listed.client != forwarded.client =>
            {
                Some(field)
            }
            _ => None,
        }
    }

    /// The field of a trusted peer from which a request's scheme and host are read: the field that names the client.
    /// Where two fields agree about the client, a stranger that knows its own address may have written `Forwarded`, so
    /// it is not read.
    #[must_use]
    pub fn speaks(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> OriginFields {
        let forwarded = match (self.field, self.told(fields)) {
            (Some(field), _) => field == Field::Forwarded,
            (None, (true, true)) => self.leading(peer, fields) == Some(Field::Forwarded),
            (None, (_, forwarded)) => forwarded,
        };
        OriginFields {
            forwarded,
            listed: self.field != Some(Field::Forwarded),
        }
    }

    /// Presence of the fields that are read: `X-Forwarded-For`, `Forwarded`.
    fn told(&self, fields: &HeaderMap) -> (bool, bool) {
        let has = |name: HeaderName, field| {
            self.field.is_none_or(|only| only == field) && fields.contains_key(name)
        };
        (
            has(X_FORWARDED_FOR, Field::XForwardedFor),
            has(header::FORWARDED, Field::Forwarded),
        )
    }

    fn listed(&self, peer: Option<IpAddr>, fields: &HeaderMap, seen: &impl Fn(Hop)) -> WalkEnd {
        let lines = fields.get_all(X_FORWARDED_FOR).into_iter().rev();
        let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        // Empty elements are none (RFC 9110, section 5.6.1).
        let entries = entries.filter(|entry| !entry.trim_ascii().is_empty());
        self.walk(peer, Field::XForwardedFor, entries.map(read_node), seen)
    }

    fn forwarded(&self, peer: Option<IpAddr>, fields: &HeaderMap, seen: &impl Fn(Hop)) -> WalkEnd {
        let lines = fields.get_all(header::FORWARDED).into_iter().rev();
        let nodes = lines.flat_map(|line| forwarded::nodes(line.as_bytes()));
        self.walk(peer, Field::Forwarded, nodes, seen)
    }

    /// The result of two walks together.
    fn weigh(&self, listed: WalkEnd, forwarded: WalkEnd) -> FoundClient {
        let leads_out = |end: WalkEnd| end.client.is_some_and(|client| !self.has(client));
        match (leads_out(listed), leads_out(forwarded)) {
            (true, true) if listed.client != forwarded.client => {
                listed.found(AddressReason::Disagree(Field::XForwardedFor))
            }
            (false, true) if listed.unnamed.is_none() => {
                forwarded.found(AddressReason::Said(Field::Forwarded))
            }
            _ => listed.found(AddressReason::Said(Field::XForwardedFor)),
        }
    }

    fn walk(
        &self,
        peer: Option<IpAddr>,
        field: Field,
        nodes: impl Iterator<Item = Node>,
        seen: impl Fn(Hop),
    ) -> WalkEnd {
        // A field without an entry says nothing.
        let (mut client, mut unnamed) = (peer, Some(Unnamed::Absent));
        for node in nodes.take(MOST_HOPS) {
            let address = node.address().map(|address| self.counted(address));
            let trusted = address.is_some_and(|address| self.has(address));
            seen(Hop {
                field,
                address,
                trusted,
            });
            unnamed = match node {
                Node::Address(_) => None,
                Node::Unnamed => Some(Unnamed::Hidden),
                Node::Malformed => Some(Unnamed::Malformed),
            };
            client = address.or(client);
            if !trusted {
                break;
            }
        }
        WalkEnd { client, unnamed }
    }
}

impl WalkEnd {
    fn found(self, why: AddressReason) -> FoundClient {
        FoundClient {
            address: self.client,
            unnamed: self.unnamed,
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(trust: &[&str], peer: &str, name: &'static str, lines: &[&str]) -> String {
        let trust = Trust::new(
            trust
                .iter()
                .map(|network| network.parse().unwrap())
                .collect(),
        );
        let mut fields = HeaderMap::new();
        for line in lines {
            fields.append(HeaderName::from_static(name), line.parse().unwrap());
        }
        let client = trust.client(peer.parse().ok(), &fields);
        client.unwrap().to_string()
    }

    #[test]
    fn a_stranger_is_never_believed() {
        assert_eq!(
            client(&[], "198.51.100.1", "x-forwarded-for", &["1.1.1.1"]),
            "198.51.100.1"
        );
        assert_eq!(
            client(
                &["10.0.0.0/8"],
                "198.51.100.1",
                "x-forwarded-for",
                &["1.1.1.1"]
            ),
            "198.51.100.1"
        );
    }

    #[test]
    fn the_walk_stops_at_the_first_untrusted_hop() {
        let walk = |line: &str| client(&["10.0.0.0/8"], "10.0.0.1", "x-forwarded-for", &[line]);
        assert_eq!(walk("6.6.6.6, 203.0.113.9, 10.0.0.7"), "203.0.113.9");
        assert_eq!(walk("6.6.6.6, nonsense, 10.0.0.7"), "10.0.0.7");
        assert_eq!(walk("[2001:db8::1]:443"), "2001:db8::1");
        assert_eq!(walk("203.0.113.9:5000"), "203.0.113.9");
        assert_eq!(walk("::ffff:203.0.113.9"), "203.0.113.9");
        assert_eq!(walk("fe80::1%eth0"), "fe80::1");
        assert_eq!(walk(""), "10.0.0.1");
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = ["6.6.6.6", "203.0.113.9", "10.0.0.7"];
        assert_eq!(
            client(&["10.0.0.0/8"], "10.0.0.1", "x-forwarded-for", &lines),
            "203.0.113.9"
        );
    }

    #[test]
    fn forwarded_is_read_by_its_for() {
        let walk = |line: &str| client(&["10.0.0.0/8"], "10.0.0.1", "forwarded", &[line]);
        assert_eq!(
            walk("for=6.6.6.6, proto=https;For=\"[2001:db8::1]:47011\";by=10.0.0.2"),
            "2001:db8::1"
        );
        assert_eq!(walk("for=unknown"), "10.0.0.1");
        assert_eq!(walk("for=_hidden, for=10.0.0.9"), "10.0.0.9");
    }

    /// The client that these two fields name to a gateway that trusts 10.0.0.0/8.
    fn of_both(only: Option<Field>, listed: &str, forwarded: &str) -> String {
        let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]).reading(only);
        let mut fields = HeaderMap::new();
        fields.append("x-forwarded-for", listed.parse().unwrap());
        fields.append("forwarded", forwarded.parse().unwrap());
        let client = trust.client("10.0.0.1".parse().ok(), &fields);
        client.unwrap().to_string()
    }

    #[test]
    fn a_field_that_no_proxy_has_written_moves_nobody() {
        let own = "203.0.113.9";
        for forged in ["for=6.6.6.6", "for=10.0.0.7", "for=unknown", "x", ""] {
            assert_eq!(of_both(None, own, forged), own, "{forged}");
            let only = Some(Field::XForwardedFor);
            assert_eq!(of_both(only, own, forged), own, "{forged}");
        }
        for forged in ["6.6.6.6", "10.0.0.7", "nonsense", ""] {
            let only = Some(Field::Forwarded);
            assert_eq!(of_both(only, forged, "for=203.0.113.9"), own, "{forged}");
        }
    }

    #[test]
    fn of_two_walks_one_that_leads_out_counts() {
        // The outer proxy writes one of the fields, the inner one both.
        assert_eq!(
            of_both(None, "203.0.113.9, 10.0.0.2", "for=10.0.0.2"),
            "203.0.113.9"
        );
        assert_eq!(
            of_both(None, "10.0.0.2", "for=203.0.113.9, for=10.0.0.2"),
            "203.0.113.9"
        );
        assert_eq!(of_both(None, "10.0.0.2", "for=10.0.0.3"), "10.0.0.2");
        // Where the inner proxy names no address, no other field may name one.
        for unnamed in [
            "unknown",
            "",
            "6.6.6.6, unknown",
            "6.6.6.6, unknown, 10.0.0.2",
        ] {
            let client = of_both(None, unnamed, "for=6.6.6.6");
            assert!(client.starts_with("10."), "{unnamed}: {client}");
        }
    }

    #[test]
    fn an_element_with_two_nodes_has_none() {
        let walk = |line: &str| client(&["10.0.0.0/8"], "10.0.0.1", "forwarded", &[line]);
        assert_eq!(walk("for=6.6.6.6;for=7.7.7.7"), "10.0.0.1");
        let blank = "\u{a0}6.6.6.6";
        assert_eq!(read_node(blank.as_bytes()), Node::Malformed);
    }

    #[test]
    fn the_peer_of_a_unix_socket_is_believed_and_has_no_address() {
        let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]);
        for trust in [Trust::default(), trust] {
            let mut fields = HeaderMap::new();
            let walk = trust.explain(None, &fields);
            assert_eq!((walk.client, walk.why), (None, AddressReason::Unsaid));
            fields.append("x-forwarded-for", "6.6.6.6, 203.0.113.9".parse().unwrap());
            let client = trust.client(None, &fields);
            assert_eq!(client, "203.0.113.9".parse().ok());
            fields.append("forwarded", "for=_hidden".parse().unwrap());
            assert_eq!(trust.client(None, &fields), client);
            fields.insert("x-forwarded-for", "unknown".parse().unwrap());
            fields.remove("forwarded");
            assert_eq!(trust.client(None, &fields), None);
        }
    }

    #[test]
    fn a_walk_is_explained_as_it_is_gone() {
        let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]);
        let explain = |peer: &str, lines: &[(&'static str, &'static str)]| {
            let mut fields = HeaderMap::new();
            for (name, line) in lines {
                fields.append(*name, line.parse().unwrap());
            }
            let peer = peer.parse().ok();
            let walk = trust.explain(peer, &fields);
            assert_eq!(walk.client, trust.client(peer, &fields));
            (walk.client.unwrap().to_string(), walk.why, walk.hops.len())
        };
        let listed = ("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.7");
        let own = |address: &str, why| (address.to_owned(), why, 0);
        assert_eq!(
            explain("192.0.2.1", &[listed]),
            own("192.0.2.1", AddressReason::Stranger)
        );
        assert_eq!(
            explain("10.0.0.1", &[]),
            own("10.0.0.1", AddressReason::Unsaid)
        );
        assert_eq!(
            explain("10.0.0.1", &[listed]),
            (
                "203.0.113.9".into(),
                AddressReason::Said(Field::XForwardedFor),
                2
            )
        );
        let other = ("forwarded", "for=7.7.7.7");
        assert_eq!(
            explain("10.0.0.1", &[listed, other]),
            (
                "203.0.113.9".into(),
                AddressReason::Disagree(Field::XForwardedFor),
                3
            )
        );
        let alone = explain("10.0.0.1", &[("forwarded", "for=7.7.7.7, for=unknown")]);
        assert_eq!(
            alone,
            ("10.0.0.1".into(), AddressReason::Said(Field::Forwarded), 1)
        );
    }
}

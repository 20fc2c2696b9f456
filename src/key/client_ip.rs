//! The client's address: the peer's own, or through trusted hops, walked from the right.

use super::address::read_address;
use super::forwarded;
use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use std::cell::RefCell;
use std::net::IpAddr;

/// Networks whose word on `Forwarded` and `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    networks: Vec<IpNet>,
    /// The one that they write; either where that is not known.
    field: Option<Field>,
}

/// Hops that are walked at most; a longer chain ends at the last one walked.
const MOST_HOPS: usize = 32;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A field that says where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded`.
    Forwarded,
}

impl Field {
    /// As a file names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}

/// Which of a trusted peer's fields say how a request came to it, its scheme and its host; where both do, `Forwarded` first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OriginFields {
    /// `Forwarded`.
    pub forwarded: bool,
    /// `X-Forwarded-Proto` and `X-Forwarded-Host`.
    pub listed: bool,
}

/// Where a walk has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WalkEnd {
    client: IpAddr,
    /// At an entry that cannot be read: its writer has named no address.
    unread: bool,
}

/// Why an address is taken for the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressReason {
    /// It is the peer's, and no peer is trusted.
    NobodyTrusted,
    /// It is the peer's, which is not trusted.
    Stranger,
    /// It is that of a trusted peer, which names no other.
    Unsaid,
    /// The walk over this field ended with it.
    Said(Field),
    /// The two fields name different strangers; it is the one of this field.
    Disagree(Field),
}

/// An entry of a field, as a walk comes by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Where it stands.
    pub field: Field,
    /// The address; nothing where there is none that can be read, which ends the walk.
    pub address: Option<IpAddr>,
    /// A trusted one leads on to the next.
    pub trusted: bool,
}

/// How the client's address is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// The address.
    pub client: IpAddr,
    /// Why this one.
    pub why: AddressReason,
    /// What the walk has come by, in its order: from the right.
    pub hops: Vec<Hop>,
}

impl Trust {
    /// Believes peers in `networks`.
    #[must_use]
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self {
            networks,
            field: None,
        }
    }

    /// Reads this field alone, where one is given.
    #[must_use]
    pub fn reading(self, field: Option<Field>) -> Self {
        Self { field, ..self }
    }

    /// Is this peer's word believed?
    #[must_use]
    pub fn believes(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.networks.iter().any(|network| network.contains(&peer))
    }

    /// Walks from the peer towards the client and stops at the first address that is not trusted.
    ///
    /// An entry that cannot be read ends the walk at the hop that vouched for it; the left end, which anyone can write,
    /// is reached only through hops that are all trusted. Trusted proxies write one of the two fields and often pass the
    /// other on as a stranger sent it. [`reading`](Self::reading) says which one; else both are walked, one that
    /// ends within the trusted networks yields to one that leads out of them, and `X-Forwarded-For`, which nearly every
    /// proxy writes, has the last word.
    #[must_use]
    pub fn client(&self, peer: IpAddr, fields: &HeaderMap) -> IpAddr {
        self.find(peer, fields, |_| {}).0
    }

    /// The same, with its reasons.
    #[must_use]
    pub fn explain(&self, peer: IpAddr, fields: &HeaderMap) -> Walk {
        let hops = RefCell::new(Vec::new());
        let (client, why) = self.find(peer, fields, |hop| hops.borrow_mut().push(hop));
        Walk {
            client,
            why,
            hops: hops.into_inner(),
        }
    }

    fn find(
        &self,
        peer: IpAddr,
        fields: &HeaderMap,
        seen: impl Fn(Hop),
    ) -> (IpAddr, AddressReason) {
        let peer = peer.to_canonical();
        if self.networks.is_empty() {
            return (peer, AddressReason::NobodyTrusted);
        }
        if !self.believes(peer) {
            return (peer, AddressReason::Stranger);
        }
        let listed = || self.listed(peer, fields, &seen);
        let forwarded = || self.forwarded(peer, fields, &seen);
        match self.told(fields) {
            (false, false) => (peer, AddressReason::Unsaid),
            (true, false) => (listed().client, AddressReason::Said(Field::XForwardedFor)),
            (false, true) => (forwarded().client, AddressReason::Said(Field::Forwarded)),
            (true, true) => self.weigh(listed(), forwarded()),
        }
    }

    /// Of a trusted peer's fields the one that is believed alone; nothing where either is, or both say the same.
    #[must_use]
    pub fn leading(&self, peer: IpAddr, fields: &HeaderMap) -> Option<Field> {
        if self.field.is_some() || self.told(fields) != (true, true) {
            return self.field;
        }
        let peer = peer.to_canonical();
        let listed = self.listed(peer, fields, &|_| {});
        let forwarded = self.forwarded(peer, fields, &|_| {});
        match self.weigh(listed, forwarded).1 {
            AddressReason::Said(field) | AddressReason::Disagree(field)
                if listed.client != forwarded.client =>
            {
                Some(field)
            }
            _ => None,
        }
    }

    /// By which of a trusted peer's fields a request's scheme and host are read. The one that names the client: of
    /// two that agree about it a stranger, who knows his own address, may have written `Forwarded`.
    #[must_use]
    pub fn speaks(&self, peer: IpAddr, fields: &HeaderMap) -> OriginFields {
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

    /// Which of the fields that are read are there: `X-Forwarded-For`, `Forwarded`.
    fn told(&self, fields: &HeaderMap) -> (bool, bool) {
        let has = |name: HeaderName, field| {
            self.field.is_none_or(|only| only == field) && fields.contains_key(name)
        };
        (
            has(X_FORWARDED_FOR, Field::XForwardedFor),
            has(header::FORWARDED, Field::Forwarded),
        )
    }

    fn listed(&self, peer: IpAddr, fields: &HeaderMap, seen: &impl Fn(Hop)) -> WalkEnd {
        let lines = fields.get_all(X_FORWARDED_FOR).into_iter().rev();
        let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        let addresses = entries.map(|entry| read_address(str::from_utf8(entry).ok()?));
        self.walk(peer, Field::XForwardedFor, addresses, seen)
    }

    fn forwarded(&self, peer: IpAddr, fields: &HeaderMap, seen: &impl Fn(Hop)) -> WalkEnd {
        let lines = fields.get_all(header::FORWARDED).into_iter().rev();
        let addresses = lines.flat_map(|line| forwarded::nodes(line.as_bytes()));
        self.walk(peer, Field::Forwarded, addresses, seen)
    }

    /// What two walks together say.
    fn weigh(&self, listed: WalkEnd, forwarded: WalkEnd) -> (IpAddr, AddressReason) {
        let leads_out = |end: WalkEnd| !self.believes(end.client);
        match (leads_out(listed), leads_out(forwarded)) {
            (true, true) if listed.client != forwarded.client => {
                (listed.client, AddressReason::Disagree(Field::XForwardedFor))
            }
            (false, true) if !listed.unread => {
                (forwarded.client, AddressReason::Said(Field::Forwarded))
            }
            _ => (listed.client, AddressReason::Said(Field::XForwardedFor)),
        }
    }

    fn walk(
        &self,
        peer: IpAddr,
        field: Field,
        entries: impl Iterator<Item = Option<IpAddr>>,
        seen: impl Fn(Hop),
    ) -> WalkEnd {
        let (mut client, mut unread) = (peer, false);
        for address in entries.take(MOST_HOPS) {
            let trusted = address.is_some_and(|address| self.believes(address));
            seen(Hop {
                field,
                address,
                trusted,
            });
            unread = address.is_none();
            client = address.unwrap_or(client);
            if !trusted {
                break;
            }
        }
        WalkEnd { client, unread }
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
        trust.client(peer.parse().unwrap(), &fields).to_string()
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
        trust
            .client("10.0.0.1".parse().unwrap(), &fields)
            .to_string()
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
        // What the inner one cannot or will not name is nobody else's to say.
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
        assert_eq!(read_address(blank), None);
    }

    #[test]
    fn a_walk_is_explained_as_it_is_gone() {
        let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]);
        let explain = |peer: &str, lines: &[(&'static str, &'static str)]| {
            let mut fields = HeaderMap::new();
            for (name, line) in lines {
                fields.append(*name, line.parse().unwrap());
            }
            let peer = peer.parse().unwrap();
            let walk = trust.explain(peer, &fields);
            assert_eq!(walk.client, trust.client(peer, &fields));
            (walk.client.to_string(), walk.why, walk.hops.len())
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

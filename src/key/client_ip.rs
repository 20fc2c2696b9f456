//! The client's address: the peer's own, or found by a walk from the right through trusted hops.

use super::forwarded;
use super::node::{ForwardedNode, read_node};
use crate::client::Nat64;
use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use std::cell::RefCell;
use std::net::IpAddr;

/// Networks whose entries in `Forwarded` and `X-Forwarded-For` are trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    networks: Vec<IpNet>,
    /// The field that their peers write; `None` if either chain may be written.
    field: Option<Field>,
    /// The name of the field with one address, if the peers write that one.
    single: Option<HeaderName>,
    /// The networks of translators, whose addresses represent others.
    nat64: Nat64,
}

/// The most hops of a walk. In a longer chain the walk ends at the last of these hops.
const MOST_HOPS: usize = 32;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A field that holds the addresses of a request's hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded`.
    Forwarded,
    /// A field with the address of the client alone, whose name [`Trust`] has.
    Single,
}

/// The field in which trusted peers name the client, as a file writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamingField {
    /// A chain of hops.
    Chain(Field),
    /// A field with one address.
    Single(HeaderName),
}

impl NamingField {
    /// The field's name in a file.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Chain(Field::Forwarded) => "forwarded",
            Self::Chain(_) => "x-forwarded-for",
            Self::Single(name) => name.as_str(),
        }
    }
}

/// The fields of a trusted peer that give a request's original scheme and host. If both are present, `Forwarded` has
/// precedence.
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
    /// The reason why the walk has ended at an entry without an address, if it has.
    unnamed: Option<Unnamed>,
}

/// Causes for which a trusted peer names no client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unnamed {
    /// The field has a text that its grammar does not allow.
    Malformed,
    /// A hop hides the one before it: `unknown`, or a name that begins with an underscore.
    Hidden,
    /// No field has an entry.
    Absent,
}

/// The client of a request, and whether a trusted peer failed to name the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundClient {
    /// The address; `None` if the peer of a Unix socket names none.
    pub address: Option<IpAddr>,
    /// The reason why a trusted peer has named no client; `None` if it has, or is not trusted.
    pub unnamed: Option<Unnamed>,
    why: AddressReason,
}

/// Reasons for the choice of the client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressReason {
    /// The address is the peer's, and no peer is trusted.
    NobodyTrusted,
    /// The address is the peer's, which is not trusted.
    Stranger,
    /// The address belongs to a trusted peer, which names no other.
    Unsaid,
    /// The walk over this field ended with the address.
    Said(Field),
    /// The two fields name different untrusted addresses; the address comes from this field.
    Disagree(Field),
}

/// An entry of a field in a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The field of the entry.
    pub field: Field,
    /// The address; `None` if the entry has no readable one, which ends the walk.
    pub address: Option<IpAddr>,
    /// Is the address trusted? After a trusted address the walk continues with the next entry.
    pub trusted: bool,
}

/// The client's address, and the walk to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// The address; `None` if the peer of a Unix socket names none.
    pub client: Option<IpAddr>,
    /// The reason for this address.
    pub why: AddressReason,
    /// The entries of the walk in its order: from the right.
    pub hops: Vec<Hop>,
    /// The field with one address, if peers name clients there.
    pub single: Option<HeaderName>,
}

impl FoundClient {
    /// The field that should name the client; `None` if no field is present, or the peer is not trusted.
    #[must_use]
    pub fn field(&self) -> Option<Field> {
        match self.why {
            AddressReason::Said(field) | AddressReason::Disagree(field) => Some(field),
            AddressReason::NobodyTrusted | AddressReason::Stranger | AddressReason::Unsaid => None,
        }
    }
}

impl Trust {
    /// Trusts peers in `networks`.
    #[must_use]
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self {
            networks,
            ..Self::default()
        }
    }

    /// Replaces addresses in these networks by the addresses inside them, also in trusted networks.
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

    /// Reads this field alone, if one is given.
    #[must_use]
    pub fn reading(self, field: Option<&NamingField>) -> Self {
        let (field, single) = match field {
            None => (None, None),
            Some(NamingField::Chain(field)) => (Some(*field), None),
            Some(NamingField::Single(name)) => (Some(Field::Single), Some(name.clone())),
        };
        Self {
            field,
            single,
            ..self
        }
    }

    /// The field with one address, if peers name clients there.
    #[must_use]
    pub fn single(&self) -> Option<&HeaderName> {
        self.single.as_ref()
    }

    /// The name of a field, in lower case.
    #[must_use]
    pub fn name(&self, field: Field) -> &str {
        match (field, &self.single) {
            (Field::Single, Some(name)) => name.as_str(),
            (Field::Forwarded, _) => "forwarded",
            _ => "x-forwarded-for",
        }
    }

    /// Is this peer trusted? The peer of a Unix socket has no address, and is trusted: only processes of this machine
    /// with access to the socket can be such a peer.
    #[must_use]
    pub fn trusts(&self, peer: Option<IpAddr>) -> bool {
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
    /// An entry that names no address ends the walk at the hop that vouched for it. The left end, which any client can
    /// write, is reached only through hops that are all trusted. Trusted proxies write one of the two fields and often
    /// pass the other on as an untrusted client sent it. If [`reading`](Self::reading) names a field, only that one is
    /// walked. Otherwise both fields are read, and a walk that ends inside the trusted networks yields to a walk that
    /// leaves them. In every other case `X-Forwarded-For` decides, since nearly every proxy writes it.
    #[must_use]
    pub fn client(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> Option<IpAddr> {
        self.find(peer, fields, |_| {}).address
    }

    /// Like [`Self::client`], with the reason why a trusted peer has named no client.
    #[must_use]
    pub fn found(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> FoundClient {
        self.find(peer, fields, |_| {})
    }

    /// Like [`Self::client`], with the reasons.
    #[must_use]
    pub fn explain(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> Walk {
        let hops = RefCell::new(Vec::new());
        let found = self.find(peer, fields, |hop| hops.borrow_mut().push(hop));
        Walk {
            client: found.address,
            why: found.why,
            hops: hops.into_inner(),
            single: self.single.clone(),
        }
    }

    fn find(&self, peer: Option<IpAddr>, fields: &HeaderMap, seen: impl Fn(Hop)) -> FoundClient {
        let peer = peer.map(|peer| self.counted(peer));
        let of_peer = |why, unnamed| FoundClient {
            address: peer,
            unnamed,
            why,
        };
        if !self.trusts(peer) {
            let why = if self.networks.is_empty() {
                AddressReason::NobodyTrusted
            } else {
                AddressReason::Stranger
            };
            return of_peer(why, None);
        }
        if let Some(name) = &self.single {
            return self.named_alone(peer, fields, name, &seen);
        }
        let listed = || self.listed(peer, fields, &seen);
        let forwarded = || self.forwarded(peer, fields, &seen);
        match self.present_fields(fields) {
            (false, false) => of_peer(AddressReason::Unsaid, Some(Unnamed::Absent)),
            (true, false) => listed().found(AddressReason::Said(Field::XForwardedFor)),
            (false, true) => forwarded().found(AddressReason::Said(Field::Forwarded)),
            (true, true) => self.weigh(listed(), forwarded()),
        }
    }

    /// The client in a field of one address. Two lines, or a list, name nobody: nothing says which of them the peer
    /// has written.
    #[cold]
    fn named_alone(
        &self,
        peer: Option<IpAddr>,
        fields: &HeaderMap,
        name: &HeaderName,
        seen: &impl Fn(Hop),
    ) -> FoundClient {
        let mut lines = fields.get_all(name).into_iter();
        let node = match (lines.next(), lines.next()) {
            (None, _) => {
                return FoundClient {
                    address: peer,
                    unnamed: Some(Unnamed::Absent),
                    why: AddressReason::Unsaid,
                };
            }
            (Some(line), None) => read_node(line.as_bytes()),
            (Some(_), Some(_)) => ForwardedNode::Malformed,
        };
        let end = self.walk(peer, Field::Single, std::iter::once(node), seen);
        end.found(AddressReason::Said(Field::Single))
    }

    /// The only one of a trusted peer's fields that is used. `None` if either may be used, or both name the same
    /// client.
    #[must_use]
    pub fn leading(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> Option<Field> {
        if self.field.is_some() || self.present_fields(fields) != (true, true) {
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

    /// The field of a trusted peer from which a request's scheme and host are read: the field that names the client. If
    /// two fields agree about the client, an untrusted client that knows its own address may have written `Forwarded`,
    /// so that the field is not read.
    #[must_use]
    pub fn speaks(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> OriginFields {
        let forwarded = match (self.field, self.present_fields(fields)) {
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
    fn present_fields(&self, fields: &HeaderMap) -> (bool, bool) {
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
        // Empty elements do not count (RFC 9110, section 5.6.1).
        let entries = entries.filter(|entry| !entry.trim_ascii().is_empty());
        self.walk(peer, Field::XForwardedFor, entries.map(read_node), seen)
    }

    fn forwarded(&self, peer: Option<IpAddr>, fields: &HeaderMap, seen: &impl Fn(Hop)) -> WalkEnd {
        let lines = fields.get_all(header::FORWARDED).into_iter().rev();
        let nodes = lines.flat_map(|line| forwarded::nodes(line.as_bytes()));
        self.walk(peer, Field::Forwarded, nodes, seen)
    }

    /// The combined result of two walks.
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
        nodes: impl Iterator<Item = ForwardedNode>,
        seen: impl Fn(Hop),
    ) -> WalkEnd {
        // A field without an entry gives no information.
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
                ForwardedNode::Address(_) => None,
                ForwardedNode::Unnamed => Some(Unnamed::Hidden),
                ForwardedNode::Malformed => Some(Unnamed::Malformed),
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
mod tests;

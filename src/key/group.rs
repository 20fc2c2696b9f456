//! Groups: the clients that are members, by lists, files and networks that the gateway has read itself.
//!
//! A value is known by its digest alone, which is also the digest that stands for secrets in keys. So the process and
//! its log show no member, and a written key holds all data that a lookup needs.
//!
//! ```text
//! customers      names behind credentials
//! named_members  the customers among the members
//! networks       networks around an address
//! ```

mod customers;
mod named_members;
mod networks;

pub use customers::{
    CustomerIndex, CustomerName, CustomerReading, CustomerSearch, Customers, CustomersBuilder,
    NAME_FORM, is_name,
};
pub use named_members::NamedMembers;

use super::caller::CUSTOMER;
use super::part::{PartReading, piece_digest, write_part};
use super::{Caller, Digest, Doubt, KeyCase, KeyPart, KeyTemplate, digest};
use foldhash::fast::RandomState;
use ipnet::IpNet;
use networks::Networks;
use smallvec::SmallVec;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

type MemberSet<T> = hashbrown::HashSet<T, RandomState>;

/// Members of one kind.
pub struct Group {
    /// Its name.
    pub name: Arc<str>,
    /// The part of a request that is looked up among the members.
    pub by: KeyPart,
    members: Members,
    named: Option<NamedMembers>,
}

enum Members {
    Values(MemberSet<Digest>),
    Networks(Networks<()>),
}

impl Group {
    /// A group of values, known by their digests.
    #[must_use]
    pub fn of_values(
        name: Arc<str>,
        by: KeyPart,
        members: impl IntoIterator<Item = Digest>,
    ) -> Self {
        Self {
            name,
            by,
            members: Members::Values(members.into_iter().collect()),
            named: None,
        }
    }

    /// A group of the clients in these networks.
    #[must_use]
    pub fn of_networks(
        name: Arc<str>,
        by: KeyPart,
        members: impl IntoIterator<Item = IpNet>,
    ) -> Self {
        let mut networks = Networks::default();
        for member in members {
            networks.insert(member, ());
        }
        Self {
            name,
            by,
            members: Members::Networks(networks),
            named: None,
        }
    }

    /// The same group with these customers as further members.
    #[must_use]
    pub fn naming(self, named: NamedMembers) -> Self {
        Self {
            named: Some(named),
            ..self
        }
    }

    /// The customers among its members, if the group names customers or consists of them.
    #[must_use]
    pub fn named(&self) -> Option<&NamedMembers> {
        self.named.as_ref()
    }

    /// Does the group say which credentials are a customer's?
    #[must_use]
    pub fn names_customers(&self) -> bool {
        self.named.is_some() && self.by != KeyPart::Customer
    }

    /// The networks of its clients, in order; empty if its members are of another kind.
    #[must_use]
    pub fn networks(&self) -> Vec<IpNet> {
        let Members::Networks(networks) = &self.members else {
            return Vec::new();
        };
        let mut all: Vec<IpNet> = networks.all.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Are the members shown by a token?
    #[must_use]
    pub fn uses_token(&self) -> bool {
        let named = self.named.as_ref();
        self.by.claim().is_some() || named.is_some_and(|named| named.all().ask_token())
    }

    /// The digest a member is known by.
    #[must_use]
    pub fn digest(value: &[u8]) -> Digest {
        digest::value_digest(value)
    }

    /// The same digest for a member given by its SHA-256.
    #[must_use]
    pub fn shortened(sha256: &[u8; 32]) -> Digest {
        digest::shortened(sha256)
    }

    /// Is the value with this digest a member?
    #[must_use]
    pub fn has(&self, digest: &Digest) -> bool {
        let is_named = |named: &NamedMembers| {
            let holder = named.all().holder(&self.by, digest);
            named.is_open() || holder.is_some_and(|index| named.has(index))
        };
        matches!(&self.members, Members::Values(values) if values.contains(digest))
            || self.named.as_ref().is_some_and(is_named)
    }

    /// The number of its members; a customer counts once.
    #[must_use]
    pub fn len(&self) -> usize {
        let named = self.named.as_ref().map_or(0, NamedMembers::len);
        named + self.unnamed()
    }

    /// The number of its members without a name.
    fn unnamed(&self) -> usize {
        match &self.members {
            Members::Values(values) => values.len(),
            Members::Networks(networks) => networks.all.len(),
        }
    }

    /// Is the group empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of customers that `self` has gained and lost since `before`, and of credentials that came or went
    /// of customers that stayed.
    #[must_use]
    pub fn customer_changes(&self, before: &Self) -> (usize, usize, usize) {
        let (Some(now), Some(then)) = (&self.named, &before.named) else {
            let many = |group: &Self| group.named.as_ref().map_or(0, NamedMembers::len);
            return (many(self), many(before), 0);
        };
        let more = now.names().filter(|name| !then.has_name(name)).count();
        let fewer = then.names().filter(|name| !now.has_name(name)).count();
        let changed = self.credentials_without(now, then) + self.credentials_without(then, now);
        (more, fewer, changed)
    }

    /// Has a customer of `before`, or a credential of one, gone?
    #[must_use]
    pub fn has_lost_customers(&self, before: &Self) -> bool {
        let (Some(now), Some(then)) = (&self.named, &before.named) else {
            return false;
        };
        then.names().any(|name| !now.has_name(name)) || self.credentials_without(then, now) > 0
    }

    /// The number of credentials in `here` that are not in `there`, of customers that are in both.
    fn credentials_without(&self, here: &NamedMembers, there: &NamedMembers) -> usize {
        // Each name is looked up once, not once for each credential.
        let places = here.all().names().map(|name| there.all().find(name));
        let places: Vec<Option<CustomerIndex>> = places.collect();
        let has_moved = |index: CustomerIndex, holder: Option<CustomerIndex>| {
            let there_too = places.get(index.position()).copied().flatten();
            let stays = here.has(index) && there_too.is_some_and(|place| there.has(place));
            stays && holder != there_too
        };
        let values = here.all().known(&self.by);
        let values = values
            .filter(|(digest, index)| has_moved(*index, there.all().holder(&self.by, digest)));
        let networks = here.all().networks().all.iter();
        let networks = networks.filter(|(network, index)| {
            let holder = there.all().networks().all.get(*network).copied();
            self.by.is_by_address() && has_moved(**index, holder)
        });
        values.count() + networks.count()
    }

    /// The numbers of members that `self` has gained and lost since `before`.
    #[must_use]
    pub fn joined_and_left(&self, before: &Self) -> (usize, usize) {
        match (&self.members, &before.members) {
            (Members::Values(now), Members::Values(then)) => differences(now, then),
            (Members::Networks(now), Members::Networks(then)) => {
                let missing = |here: &Networks<()>, there: &Networks<()>| {
                    let gone = here.all.keys().filter(|one| !there.all.contains_key(*one));
                    gone.count()
                };
                (missing(now, then), missing(then, now))
            }
            _ => (self.unnamed(), before.unnamed()),
        }
    }
}

/// The output shows no member.
impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("name", &self.name)
            .field("by", &self.by)
            .field("members", &self.len())
            .finish_non_exhaustive()
    }
}

/// Groups of one file differ by their names.
impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.by == other.by
    }
}

impl Eq for Group {}

/// The numbers of entries in `now` alone, and in `then` alone.
fn differences<T: Eq + Hash>(now: &MemberSet<T>, then: &MemberSet<T>) -> (usize, usize) {
    (now.difference(then).count(), then.difference(now).count())
}

/// Is the customer of the request a member of the group?
fn is_named<'a>(
    group: &'a Group,
    named: &'a NamedMembers,
    caller: &Caller<'_>,
    room: &mut Vec<u8>,
) -> Result<bool, Doubt<'a>> {
    let source = |position: usize| named.all().source(position).unwrap_or(&group.by);
    let is_listed = match caller.customers.read(caller, room) {
        CustomerReading::Named { name, .. } => match name {
            CustomerName::Listed(index) => named.has(*index),
            CustomerName::Claimed(_) => false,
        },
        CustomerReading::Several(at) => return Err(Doubt::Several(source(*at))),
        CustomerReading::Malformed(at) => return Err(Doubt::Malformed(source(*at))),
        CustomerReading::Different => return Err(Doubt::Several(&CUSTOMER)),
        CustomerReading::Untrusted(at) => return Err(Doubt::Untrusted(source(*at))),
        CustomerReading::Nothing | CustomerReading::Unknown(_) => false,
    };
    if is_listed || !named.is_open() {
        return Ok(is_listed);
    }
    let start = room.len();
    let shown = write_part(&group.by, KeyCase::Sensitive, caller, room);
    room.truncate(start);
    Ok(shown == PartReading::One)
}

/// The digests of the request's values of `by`, each of which may be a credential.
#[must_use]
pub fn shown_digests(by: &KeyPart, caller: &Caller<'_>) -> Vec<Digest> {
    let mut room = Vec::new();
    let reading = write_part(by, KeyCase::Sensitive, caller, &mut room);
    let mut digests = Vec::new();
    match (reading, by) {
        (PartReading::One, _) => digests.extend(piece_digest(&room)),
        (PartReading::Several, KeyPart::Cookie(name)) => {
            let values = caller.cookies.values(name);
            digests.extend(values.map(|value| Group::digest(&value)));
        }
        _ => {}
    }
    if let Some(claim) = by.claim() {
        let mut add = |entry: &str| digests.push(Group::digest(entry.as_bytes()));
        caller.identity.listed(claim, &mut add);
    }
    digests
}

/// The memberships of one request that have been looked up. Each value is digested once.
#[derive(Debug, Default)]
pub struct Memberships<'a> {
    seen: SmallVec<[(&'a KeyPart, Digest); 2]>,
}

impl<'a> Memberships<'a> {
    /// Is `caller` in `group`? `keys` has room after its end. `written` is the start of a key of the same request in
    /// `keys`, with the template that has written it. That key is at the end of `keys`.
    ///
    /// # Errors
    /// If an upstream may read the part that the group depends on differently. A request that states the part twice, or
    /// in a token that only the upstream trusts, would be in no group at all.
    pub fn is_in(
        &mut self,
        group: &'a Group,
        caller: &Caller<'_>,
        keys: &mut Vec<u8>,
        written: Option<(&KeyTemplate, usize)>,
    ) -> Result<bool, Doubt<'a>> {
        if let Some(named) = &group.named
            && is_named(group, named, caller, keys)?
        {
            return Ok(true);
        }
        self.is_unnamed(group, caller, keys, written)
    }

    /// Is `caller` in `group` by a proof: as a customer whose credential is one, or by a value that is a proof itself?
    /// `keys` has room after its end. A request in doubt is in no group.
    pub fn is_proven(&mut self, group: &'a Group, caller: &Caller<'_>, keys: &mut Vec<u8>) -> bool {
        if let Some(named) = &group.named {
            let is_proven = caller.is_proven_customer(keys);
            match is_named(group, named, caller, keys) {
                Ok(true) if is_proven => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        group.by.is_proof() && self.is_unnamed(group, caller, keys, None) == Ok(true)
    }

    /// Is `caller` one of the members of `group` that have no names?
    fn is_unnamed(
        &mut self,
        group: &'a Group,
        caller: &Caller<'_>,
        keys: &mut Vec<u8>,
        written: Option<(&KeyTemplate, usize)>,
    ) -> Result<bool, Doubt<'a>> {
        match &group.members {
            Members::Networks(networks) => Ok(caller
                .address
                .is_some_and(|address| networks.contains(address))),
            Members::Values(values) => {
                self.learn(&group.by, caller, keys, written)?;
                let mut said = self.said(&group.by).peekable();
                if said.peek().is_some() {
                    return Ok(said.any(|digest| values.contains(digest)));
                }
                // A key that was written without the value shows that the value is absent, or known to no group. For a
                // claim the absence may also mean a list, which cannot be a key.
                let is_part =
                    |(template, _): (&KeyTemplate, usize)| template.parts.contains(&group.by);
                let may_be = group.uses_token() || !written.is_some_and(is_part);
                Ok(may_be && caller.identity.tells_group(&group.name))
            }
        }
    }

    /// The digests of the request's values of `by`.
    fn said(&self, by: &KeyPart) -> impl Iterator<Item = &Digest> {
        let those = self.seen.iter().filter(move |(part, _)| *part == by);
        those.map(|(_, digest)| digest)
    }

    /// Digests the request's values of `by`, if they are not known yet: a claim may have several values.
    fn learn(
        &mut self,
        by: &'a KeyPart,
        caller: &Caller<'_>,
        keys: &mut Vec<u8>,
        written: Option<(&KeyTemplate, usize)>,
    ) -> Result<(), Doubt<'a>> {
        if self.said(by).next().is_some() {
            return Ok(());
        }
        // Members are compared as they are written.
        let written = written.filter(|(template, _)| template.case == KeyCase::Sensitive);
        let piece = written.and_then(|(template, start)| {
            let at = template.parts.iter().position(|part| part == by)?;
            keys.get(start..)?.split(|byte| *byte == b'|').nth(at)
        });
        let digest = match piece {
            Some(piece) => piece_digest(piece),
            None => {
                let start = keys.len();
                let said = write_part(by, KeyCase::Sensitive, caller, keys);
                let digest = match said {
                    PartReading::One => piece_digest(&keys[start..]),
                    _ => None,
                };
                keys.truncate(start);
                match said {
                    PartReading::Untrusted => return Err(Doubt::Untrusted(by)),
                    PartReading::Malformed => return Err(Doubt::Malformed(by)),
                    PartReading::Several if !by.may_repeat() => {
                        return Err(Doubt::Several(by));
                    }
                    _ => digest,
                }
            }
        };
        self.seen.extend(digest.map(|digest| (by, digest)));
        if let Some(claim) = by.claim() {
            caller.identity.listed(claim, &mut |entry| {
                if !entry.is_empty() {
                    self.seen.push((by, Group::digest(entry.as_bytes())));
                }
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

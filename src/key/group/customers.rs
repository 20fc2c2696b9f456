//! Customers: the names behind credentials, as groups with `customers` state them.
//!
//! One name is one customer in all groups. A credential is known by its digest alone; each name is kept once. A lookup
//! digests one value and probes one table for each part of a request that any of these groups goes by.
//!
//! ```text
//! names    each name once, with its number
//! reading  what a lookup finds
//! search   the customer of one request, looked up once
//! builder  reads what groups state, and finds credentials under two names
//! ```

mod builder;
mod names;
mod reading;
mod search;

pub use builder::CustomersBuilder;
pub use names::{CustomerIndex, NAME_FORM, is_name};
pub use reading::{CustomerName, CustomerReading};
pub use search::CustomerSearch;

use super::networks::Networks;
use crate::key::part::{PartReading, piece_digest, write_part};
use crate::key::{Caller, Digest, KeyCase, KeyPart, digest};
use foldhash::fast::RandomState;
use names::{CustomerNames, claimed_name};
use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

type CredentialTable = hashbrown::HashMap<Digest, CustomerIndex, RandomState>;

/// All customers of a file.
#[derive(Default)]
pub struct Customers {
    names: CustomerNames,
    /// The parts of requests that are credentials, in the file's order; addresses are not among them.
    sources: Vec<CredentialSource>,
    networks: Networks<CustomerIndex>,
    /// The number of names that have a credential, which come first; `None` if all have one.
    with_credential: Option<u32>,
}

/// The credentials in one part of requests.
struct CredentialSource {
    by: KeyPart,
    known: CredentialTable,
    /// Is the verified value itself the name of a customer, where no line knows it?
    is_name: bool,
}

/// The output shows no credential.
impl fmt::Debug for Customers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Customers")
            .field("names", &self.names.len())
            .field("credentials", &self.credentials())
            .finish_non_exhaustive()
    }
}

impl Customers {
    /// The number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Is no name known?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of credentials.
    #[must_use]
    pub fn credentials(&self) -> usize {
        let values = self.sources.iter().map(|source| source.known.len());
        values.sum::<usize>() + self.networks.len()
    }

    /// Are some customers known by claims of tokens?
    #[must_use]
    pub fn ask_token(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| source.by.claim().is_some())
    }

    /// The name with this number.
    #[must_use]
    pub fn name(&self, index: CustomerIndex) -> &str {
        self.names.text(index)
    }

    /// The text of a customer's name.
    #[must_use]
    pub fn text<'c>(&'c self, name: &'c CustomerName) -> &'c str {
        match name {
            CustomerName::Listed(index) => self.name(*index),
            CustomerName::Claimed(name) => name,
        }
    }

    /// The number of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<CustomerIndex> {
        self.names.find(name)
    }

    /// Has the customer with this number a credential, rather than only a plan or numbers?
    #[must_use]
    pub fn has_credential(&self, index: CustomerIndex) -> bool {
        let many = self.with_credential;
        many.is_none_or(|many| index.position() < many as usize)
    }

    /// The customer of this name, as if a credential had named it.
    #[must_use]
    pub fn assumed(&self, name: &str) -> Rc<CustomerReading> {
        let name = match self.find(name) {
            Some(index) => CustomerName::Listed(index),
            None => CustomerName::Claimed(name.into()),
        };
        Rc::new(CustomerReading::Named {
            name,
            is_proven: true,
        })
    }

    /// Can customers have names that no line has, since a verified value is the name?
    #[must_use]
    pub fn are_open(&self) -> bool {
        self.sources.iter().any(|source| source.is_name)
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.all()
    }

    /// The credentials in the part `by`, with their customers.
    pub(super) fn known(
        &self,
        by: &KeyPart,
    ) -> impl Iterator<Item = (&Digest, CustomerIndex)> + use<'_> {
        let source = self.sources.iter().find(|source| source.by == *by);
        let known = source.into_iter().flat_map(|source| &source.known);
        known.map(|(digest, index)| (digest, *index))
    }

    /// The networks whose clients are customers.
    pub(super) fn networks(&self) -> &Networks<CustomerIndex> {
        &self.networks
    }

    /// The customer whose credential in the part `by` has this digest.
    pub(super) fn holder(&self, by: &KeyPart, digest: &Digest) -> Option<CustomerIndex> {
        let source = self.sources.iter().find(|source| source.by == *by)?;
        source.known.get(digest).copied()
    }

    /// Would an upstream find a credential in one of the parts where this gateway finds none?
    fn are_elsewhere(&self, is_elsewhere: impl Fn(&KeyPart) -> bool) -> bool {
        self.sources.iter().any(|source| is_elsewhere(&source.by))
    }

    /// Calls `each` with every source in which the request has a credential that no line knows.
    #[cold]
    fn each_unknown(
        &self,
        caller: &Caller<'_>,
        room: &mut Vec<u8>,
        each: &mut dyn FnMut(&KeyPart),
    ) {
        for (position, source) in self.sources.iter().enumerate() {
            let reading = source.look(self, caller, position, room);
            if matches!(reading, CustomerReading::Unknown(_)) {
                each(&source.by);
            }
        }
    }

    /// Is a credential a part of the route's path, so that it is unknown until the route is?
    #[must_use]
    pub fn depend_on_route(&self) -> bool {
        self.sources.iter().any(|source| source.by.is_of_route())
    }

    /// The part of a request that the source at this position is.
    pub(super) fn source(&self, position: usize) -> Option<&KeyPart> {
        Some(&self.sources.get(position)?.by)
    }

    /// Finds the customer of `caller`. `room` has room after its end.
    fn look(&self, caller: &Caller<'_>, room: &mut Vec<u8>) -> CustomerReading {
        if let Some(name) = caller.identity.tells_customer() {
            let name = match self.names.find(&name) {
                Some(index) => CustomerName::Listed(index),
                None => CustomerName::Claimed(name.into()),
            };
            return CustomerReading::Named {
                name,
                is_proven: false,
            };
        }
        let mut found = CustomerReading::Nothing;
        for (position, source) in self.sources.iter().enumerate() {
            found = match (found, source.look(self, caller, position, room)) {
                (found, CustomerReading::Nothing) => found,
                (
                    _,
                    doubt @ (CustomerReading::Several(_)
                    | CustomerReading::Malformed(_)
                    | CustomerReading::Different
                    | CustomerReading::Untrusted(_)),
                ) => return doubt,
                (
                    CustomerReading::Named { name, is_proven },
                    CustomerReading::Named {
                        name: other,
                        is_proven: also,
                    },
                ) => {
                    if name != other {
                        return CustomerReading::Different;
                    }
                    let is_proven = is_proven || also;
                    CustomerReading::Named { name, is_proven }
                }
                (_, named @ CustomerReading::Named { .. }) => named,
                (CustomerReading::Nothing, unknown) => unknown,
                (found, _) => found,
            };
        }
        if matches!(found, CustomerReading::Named { .. }) {
            return found;
        }
        let holder = caller.address.and_then(|at| self.networks.holder(at));
        holder.map_or(found, |index| CustomerReading::Named {
            name: CustomerName::Listed(index),
            is_proven: false,
        })
    }
}

impl CredentialSource {
    fn look(
        &self,
        all: &Customers,
        caller: &Caller<'_>,
        position: usize,
        room: &mut Vec<u8>,
    ) -> CustomerReading {
        let start = room.len();
        let reading = write_part(&self.by, KeyCase::Sensitive, caller, room);
        let digest = piece_digest(&room[start..]);
        room.truncate(start);
        match reading {
            PartReading::One => {}
            PartReading::Several => {
                return match &self.by {
                    // The upstream may read any one of them.
                    KeyPart::Cookie(name) => {
                        let values = caller.cookies.values(name);
                        self.look_in_values(values, position)
                    }
                    _ => CustomerReading::Several(position),
                };
            }
            PartReading::Malformed => return CustomerReading::Malformed(position),
            PartReading::Untrusted => return CustomerReading::Untrusted(position),
            PartReading::Nothing | PartReading::Unknown => {
                return self.look_in_list(caller, position);
            }
        }
        let is_proven = self.by.is_proof();
        let listed = digest.and_then(|digest| self.known.get(&digest));
        if let Some(index) = listed {
            let name = CustomerName::Listed(*index);
            return CustomerReading::Named { name, is_proven };
        }
        // A claim may be one text of several words, as `scope` is.
        if let found @ (CustomerReading::Named { .. } | CustomerReading::Different) =
            self.look_in_list(caller, position)
        {
            return found;
        }
        let claimed = self.is_name.then(|| verified_value(&self.by, caller));
        match claimed.flatten() {
            Some(value) => {
                let name = claimed_name(value.as_bytes());
                let name = match all.names.find(&name) {
                    Some(index) => CustomerName::Listed(index),
                    None => CustomerName::Claimed(Rc::from(name)),
                };
                CustomerReading::Named { name, is_proven }
            }
            None if self.by.can_be_absent() => CustomerReading::Unknown(position),
            // Every request has a host and a path: one that no line has is no credential.
            None => CustomerReading::Nothing,
        }
    }

    /// The customer whom an entry of a claim names, where the claim is a list.
    fn look_in_list(&self, caller: &Caller<'_>, position: usize) -> CustomerReading {
        let Some(claim) = self.by.claim() else {
            return CustomerReading::Nothing;
        };
        let mut found = CustomerReading::Nothing;
        caller.identity.listed(claim, &mut |entry| {
            self.join(&mut found, entry.as_bytes(), position);
        });
        found
    }

    /// The customer whom one of several values of the part names.
    fn look_in_values<V: AsRef<[u8]>>(
        &self,
        values: impl Iterator<Item = V>,
        position: usize,
    ) -> CustomerReading {
        let mut found = CustomerReading::Nothing;
        values.for_each(|value| self.join(&mut found, value.as_ref(), position));
        found
    }

    /// Adds one of several values to what the others have shown: a known value counts more than unknown ones.
    fn join(&self, found: &mut CustomerReading, value: &[u8], position: usize) {
        let known = self.known.get(&digest::value_digest(value));
        match (&*found, known) {
            (CustomerReading::Nothing, None) => *found = CustomerReading::Unknown(position),
            (CustomerReading::Nothing | CustomerReading::Unknown(_), Some(index)) => {
                *found = CustomerReading::Named {
                    name: CustomerName::Listed(*index),
                    is_proven: self.by.is_proof(),
                };
            }
            (CustomerReading::Named { name, .. }, Some(index))
                if *name != CustomerName::Listed(*index) =>
            {
                *found = CustomerReading::Different;
            }
            _ => {}
        }
    }
}

/// The text of a part that the client has proved.
fn verified_value<'c>(by: &KeyPart, caller: &Caller<'c>) -> Option<Cow<'c, str>> {
    match by {
        KeyPart::Jwt { claim, .. } => caller.identity.claim(claim),
        KeyPart::TlsSubject => Some(Cow::Borrowed(caller.certificate?.subject)),
        KeyPart::TlsFingerprint => {
            let digits = caller.certificate?.fingerprint;
            Some(digits.iter().map(|byte| format!("{byte:02x}")).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests;

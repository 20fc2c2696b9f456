//! Puts the customers of all groups together.

use super::names::CustomerNames;
use super::{CredentialSource, CredentialTable, CustomerIndex, Customers};
use crate::key::{Digest, KeyPart};
use ipnet::IpNet;

/// Customers that are being read.
#[derive(Debug, Default)]
pub struct CustomersBuilder(Customers);

impl CustomersBuilder {
    /// The number of a name, which is added if it is new; `None` if the names of the file are too long to be kept.
    pub fn name(&mut self, name: &str) -> Option<CustomerIndex> {
        self.0.names.add(name)
    }

    /// States that all credentials have been added: names that are added later have none.
    pub fn end_credentials(&mut self) {
        self.0.with_credential = u32::try_from(self.0.len()).ok();
    }

    /// Has a customer of this name a credential?
    #[must_use]
    pub fn has_credential(&self, name: &str) -> bool {
        let index = self.0.names.find(name);
        index.is_some_and(|index| self.0.has_credential(index))
    }

    /// The name with this number.
    #[must_use]
    pub fn text(&self, index: CustomerIndex) -> &str {
        self.0.names.text(index)
    }

    /// Adds a credential in the part `by`. A credential that another customer has stays that one's.
    pub fn value(&mut self, by: &KeyPart, digest: Digest, customer: CustomerIndex) {
        let known = &mut source(&mut self.0, by).known;
        known.entry(digest).or_insert(customer);
    }

    /// Adds a network, whose clients are a customer where no credential names another. A network that another customer
    /// has stays that one's.
    pub fn network(&mut self, network: IpNet, customer: CustomerIndex) {
        self.0.networks.insert(network, customer);
    }

    /// From now on the verified value of `by` is a name.
    pub fn verified(&mut self, by: &KeyPart) {
        source(&mut self.0, by).is_name = true;
    }

    /// Does no group name customers?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.sources.is_empty() && self.0.networks.len() == 0 && self.0.is_empty()
    }

    /// The customers.
    #[must_use]
    pub fn build(mut self) -> Customers {
        for source in &mut self.0.sources {
            source.known.shrink_to_fit();
        }
        CustomerNames::shrink(&mut self.0.names);
        self.0
    }
}

/// The source of the part, which is added if it is new.
fn source<'c>(all: &'c mut Customers, by: &KeyPart) -> &'c mut CredentialSource {
    let position = all.sources.iter().position(|source| source.by == *by);
    let position = position.unwrap_or_else(|| {
        all.sources.push(CredentialSource {
            by: by.clone(),
            known: CredentialTable::default(),
            is_name: false,
        });
        all.sources.len() - 1
    });
    &mut all.sources[position]
}

//! What a lookup of a request's customer finds.

use super::CustomerIndex;
use std::rc::Rc;

/// The name of a customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CustomerName {
    /// A line of a file has the name.
    Listed(CustomerIndex),
    /// The name is a verified value that no file has.
    Claimed(Rc<str>),
}

/// The result of a lookup. A source is a position among the parts that are credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CustomerReading {
    /// The request has a credential of this customer.
    Named {
        /// The customer.
        name: CustomerName,
        /// Is the credential a proof, rather than an address or an open text?
        is_proven: bool,
    },
    /// The request has no credential.
    Nothing,
    /// The request has a credential that no group knows, in this source.
    Unknown(usize),
    /// The request has several different values in this source.
    Several(usize),
    /// The request has a credential in this source that cannot be read in one way only.
    Malformed(usize),
    /// The request has credentials of different customers.
    Different,
    /// The request has a token that is not trusted, in this source.
    Untrusted(usize),
}

//! What stands in a revocation list: whose it is, and the end of the time for which it holds.

use super::distinguished_name;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

/// What stands in one list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationList {
    /// The position of its file in `ClientParts::crl_pem`.
    pub file: usize,
    /// The authority that wrote it, as RFC 4514 writes it.
    pub issuer: String,
    /// The time from which its authority's certificates are all refused, in seconds since 1970 by the wall clock.
    pub next_update: Option<i64>,
}

impl RevocationList {
    /// The facts of a list; nothing where it cannot be read.
    pub(super) fn read(der: &[u8], file: usize) -> Option<Self> {
        let (_, list) = CertificateRevocationList::from_der(der).ok()?;
        Some(Self {
            file,
            issuer: distinguished_name::write(list.issuer()),
            next_update: list.next_update().map(|time| time.timestamp()),
        })
    }

    /// Has it ended at `now`, so that it refuses every client?
    #[must_use]
    pub fn has_ended(&self, now: i64) -> bool {
        self.next_update.is_some_and(|end| end < now)
    }
}

/// The subject of an authority; nothing where its certificate cannot be read.
pub(super) fn subject(authority: &[u8]) -> Option<String> {
    let (_, read) = X509Certificate::from_der(authority).ok()?;
    Some(distinguished_name::write(read.subject()))
}

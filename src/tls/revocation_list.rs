//! The facts in a revocation list: its issuer, the time of its writing, and the end of its validity.

use super::distinguished_name;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::oid_registry::{
    OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, OID_X509_EXT_ISSUER_DISTRIBUTION_POINT,
};
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

/// The facts in one list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationList {
    /// The position of its file in `ClientParts::crl_pem`.
    pub file: usize,
    /// The authority that wrote it, as RFC 4514 writes it.
    pub issuer: String,
    /// The time from which all certificates of its authority are refused, in seconds since 1970 by the wall clock.
    pub next_update: Option<i64>,
    /// The key that signed it, and the part of the authority's certificates that it covers, as stated in the list.
    scope: [Option<Vec<u8>>; 2],
    age: Age,
}

/// The order by age of an authority's lists: the time of writing, the end of validity, then the number, shorter ones
/// first.
pub(super) type Age = (i64, i64, Option<(usize, Vec<u8>)>);

impl RevocationList {
    /// The facts of a list; `None` if it cannot be read.
    pub(super) fn read(der: &[u8], file: usize) -> Option<Self> {
        let (_, list) = CertificateRevocationList::from_der(der).ok()?;
        let number = list.crl_number().map(|number| number.to_bytes_be());
        let extension = |oid| {
            let mut all = list.extensions().iter();
            Some(all.find(|one| one.oid == oid)?.value.to_vec())
        };
        Some(Self {
            file,
            issuer: distinguished_name::write(list.issuer()),
            next_update: list.next_update().map(|time| time.timestamp()),
            scope: [
                extension(OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER),
                extension(OID_X509_EXT_ISSUER_DISTRIBUTION_POINT),
            ],
            age: (
                list.last_update().timestamp(),
                list.next_update().map_or(i64::MAX, |end| end.timestamp()),
                number.map(|number| (number.len(), number)),
            ),
        })
    }

    /// The key that signed it, as named in the list.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.scope[0].as_deref()
    }

    /// The properties that lists of one series share, the newest of which replaces the others: their issuer, and the
    /// certificates that they cover.
    pub(super) fn series(&self) -> (&str, &[Option<Vec<u8>>; 2]) {
        (&self.issuer, &self.scope)
    }

    /// The age within a series.
    pub(super) fn age(&self) -> &Age {
        &self.age
    }

    /// A sort key that puts newer lists first.
    pub(super) fn newest_first(&self) -> impl Ord + use<> {
        Reverse(self.age.clone())
    }

    /// Has the list expired at `now`, so that it refuses every client?
    #[must_use]
    pub fn has_ended(&self, now: i64) -> bool {
        self.next_update.is_some_and(|end| end < now)
    }
}

/// Authorities by their subjects, as encoded in their certificates.
pub(super) type BySubject<'a> = HashMap<Vec<u8>, Vec<X509Certificate<'a>>>;

/// The authorities that can be read.
pub(super) fn by_subject<'a>(authorities: &'a [CertificateDer<'_>]) -> BySubject<'a> {
    let mut all = BySubject::new();
    for one in authorities {
        if let Ok((_, read)) = X509Certificate::from_der(one) {
            let subject = read.subject().as_raw().to_vec();
            all.entry(subject).or_default().push(read);
        }
    }
    all
}

/// The serial numbers of the certificates that lists revoke, by the name of their authority, all as bytes.
type Revoked = HashMap<Vec<u8>, HashSet<Box<[u8]>>>;

/// The certificates that these lists revoke. A list without revoked certificates has an entry with its authority alone.
pub(super) fn revoked<'a>(
    lists: impl Iterator<Item = CertificateRevocationListDer<'a>>,
) -> Revoked {
    let mut all = Revoked::new();
    for list in lists {
        let Ok((_, list)) = CertificateRevocationList::from_der(&list) else {
            continue;
        };
        let serials = all.entry(list.issuer().as_raw().to_vec()).or_default();
        serials.extend(
            list.iter_revoked_certificates()
                .map(|one| one.raw_serial().into()),
        );
    }
    all
}

/// Is the list signed by a key that none of the authorities has, though some of them have the name of its issuer? Every
/// client of that name is then refused.
pub(super) fn is_missigned(list: &[u8], authorities: &BySubject<'_>) -> bool {
    let Ok((_, list)) = CertificateRevocationList::from_der(list) else {
        return false;
    };
    let of_name = authorities.get(list.issuer().as_raw());
    // A signature that cannot be verified here may be valid.
    let is_wrong = |one: &X509Certificate<'_>| {
        let judged = list.verify_signature(one.public_key());
        matches!(judged, Err(X509Error::SignatureVerificationError))
    };
    of_name.is_some_and(|of_name| of_name.iter().all(is_wrong))
}

/// The subject of an authority; `None` if its certificate cannot be read.
pub(super) fn subject(authority: &[u8]) -> Option<String> {
    let (_, read) = X509Certificate::from_der(authority).ok()?;
    Some(distinguished_name::write(read.subject()))
}

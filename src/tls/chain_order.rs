//! The order of the certificates in a file: the identity's own first, then the one that signed it, and so on (RFC 5246
//! section 7.4.2). Many clients sort a chain by themselves, and some do not.

use super::distinguished_name;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// A certificate of a file that did not sign the previous one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfPlace {
    /// Its position; the identity's own certificate is the first.
    pub position: usize,
    /// Its subject, as RFC 4514 writes it.
    pub subject: String,
}

/// The first certificate that is out of place.
pub(super) fn first_out_of_place(chain: &[CertificateDer<'_>]) -> Option<OutOfPlace> {
    let read = |one| X509Certificate::from_der(one).ok().map(|(_, read)| read);
    let links = chain.iter().zip(chain.iter().skip(1));
    links.enumerate().find_map(|(index, (signed, behind))| {
        let (signed, behind) = (read(signed)?, read(behind)?);
        let has_signed = behind.subject().as_raw() == signed.issuer().as_raw();
        (!has_signed).then(|| OutOfPlace {
            position: index + 2,
            subject: distinguished_name::write(behind.subject()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair};

    #[test]
    fn each_certificate_has_signed_the_one_before_it() {
        let params = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params
        };
        let key = || KeyPair::generate().unwrap();
        let root = CertifiedIssuer::self_signed(params("root"), key()).unwrap();
        let middle = CertifiedIssuer::signed_by(params("middle"), key(), &root).unwrap();
        let leaf = params("leaf").signed_by(&key(), &middle).unwrap();
        let (leaf, middle, root) = (leaf.der(), middle.der(), root.der());
        for (chain, expected) in [
            (vec![leaf], None),
            (vec![leaf, middle], None),
            (vec![leaf, middle, root], None),
            (vec![leaf, root], Some((2, "CN=root"))),
            (vec![leaf, leaf, middle], Some((2, "CN=leaf"))),
            (vec![leaf, middle, root, middle], Some((4, "CN=middle"))),
        ] {
            let chain: Vec<_> = chain.into_iter().cloned().collect();
            let found = first_out_of_place(&chain);
            let found = found.as_ref().map(|one| (one.position, &*one.subject));
            assert_eq!(found, expected);
        }
    }
}

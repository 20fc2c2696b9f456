//! The facts in a certificate: its names, the end of its validity, its subject, its key.

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::distinguished_name;

/// The facts in one certificate. Times are seconds since 1970, by the wall clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateFacts {
    /// Its DNS names (RFC 5280 section 4.2.1.6), in lower case, in the order of the certificate.
    pub names: Vec<String>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The time before which it is not valid.
    pub not_before: i64,
    /// The time after which it is not valid.
    pub not_after: i64,
    /// Its subject, as RFC 4514 writes it.
    pub subject: String,
    /// The authority that signed it, in the form of RFC 4514.
    pub issuer: String,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// SHA-256 of the whole certificate.
    pub fingerprint: [u8; 32],
    /// The kind of its key and the key's size, such as `ECDSA P-256` or `RSA 2048`.
    pub key: String,
}

impl CertificateFacts {
    /// The facts of a certificate; `None` if it cannot be read.
    #[must_use]
    pub fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, read) = X509Certificate::from_der(certificate).ok()?;
        let (names, addresses) = names(&read);
        Some(Self {
            names,
            addresses,
            not_before: read.validity().not_before.timestamp(),
            not_after: read.validity().not_after.timestamp(),
            subject: distinguished_name::write(read.subject()),
            issuer: distinguished_name::write(read.issuer()),
            serial: hex(read.raw_serial()),
            fingerprint: Sha256::digest(certificate).into(),
            key: key_kind(read.public_key()),
        })
    }

    /// The facts of the first certificate of a PEM file.
    ///
    /// # Errors
    /// The file's fault, as words that follow "it".
    pub fn of_pem(pem: &[u8]) -> Result<Self, String> {
        let chain = super::certificates(pem)?;
        let leaf = chain.first().and_then(Self::read);
        leaf.ok_or_else(|| "its first certificate is broken".into())
    }

    /// The fingerprint in lower-case hexadecimal digits, as people compare it.
    #[must_use]
    pub fn fingerprint_text(&self) -> String {
        hex(&self.fingerprint)
    }
}

fn names(certificate: &X509Certificate<'_>) -> (Vec<String>, Vec<IpAddr>) {
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    if let Ok(Some(extension)) = certificate.subject_alternative_name() {
        for name in &extension.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                _ => {}
            }
        }
    }
    (names, addresses)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::V4(Ipv4Addr::from(bytes)));
    }
    let bytes = <[u8; 16]>::try_from(bytes).ok()?;
    Some(IpAddr::V6(Ipv6Addr::from(bytes)))
}

fn key_kind(key: &SubjectPublicKeyInfo<'_>) -> String {
    let algorithm = &key.algorithm.algorithm;
    if *algorithm == OID_PKCS1_RSAENCRYPTION
        && let Ok(PublicKey::RSA(rsa)) = key.parsed()
    {
        return format!("RSA {}", rsa.key_size());
    }
    if *algorithm == OID_SIG_ED25519 {
        return "Ed25519".into();
    }
    let parameters = key.algorithm.parameters.as_ref();
    let curve = parameters.and_then(|any| any.as_oid().ok());
    let curves = [
        (OID_EC_P256, "ECDSA P-256"),
        (OID_NIST_EC_P384, "ECDSA P-384"),
        (OID_NIST_EC_P521, "ECDSA P-521"),
    ];
    let known = curves.iter().find(|(oid, _)| curve.as_ref() == Some(oid));
    match known {
        Some((_, name)) => (*name).into(),
        None => algorithm.to_id_string(),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};

    #[test]
    fn a_certificate_tells_its_names_dates_subject_and_key() {
        let mut params = CertificateParams::new(vec!["Api.Example.com".to_owned()]).unwrap();
        let address = SanType::IpAddress("192.0.2.1".parse().unwrap());
        params.subject_alt_names.push(address);
        let name = &mut params.distinguished_name;
        *name = rcgen::DistinguishedName::new();
        name.push(DnType::CountryName, "DE");
        name.push(DnType::OrganizationName, "Shop, Inc. ");
        name.push(DnType::CommonName, "#api+one");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let facts = CertificateFacts::read(certificate.der()).unwrap();
        assert_eq!(facts.names, ["api.example.com"]);
        assert_eq!(facts.addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(
            (facts.not_before, facts.not_after),
            (1_577_836_800, 1_893_456_000)
        );
        assert_eq!(facts.subject, r"CN=\#api\+one,O=Shop\, Inc.\ ,C=DE");
        assert_eq!(facts.issuer, facts.subject);
        assert_eq!(facts.key, "ECDSA P-256");
        assert_eq!(facts.fingerprint_text().len(), 64);
        assert!(CertificateFacts::read(&CertificateDer::from(vec![1, 2, 3])).is_none());
    }
}

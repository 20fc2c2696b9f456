//! Identities from PEM, and the faults of files.

use super::*;
use crate::tls::ClientVerify;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// An authority that signs certificates.
pub(crate) struct Authority {
    pem: Vec<u8>,
    pub(crate) issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem().into_bytes();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        self.pem.clone()
    }
}

/// The parts of an identity whose certificate has the names that it serves. The certificate is followed by its
/// authority's own.
pub(crate) fn parts(name: &str, hosts: &[&str]) -> IdentityParts {
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let names = hosts
        .iter()
        .map(|host| (*host).to_owned())
        .collect::<Vec<_>>();
    let params = CertificateParams::new(names).unwrap();
    let cert = params.signed_by(&key, &authority.issuer);
    IdentityParts {
        name: name.into(),
        cert_pem: [cert.unwrap().pem().into_bytes(), authority.pem()].concat(),
        key_pem: key.serialize_pem().into_bytes(),
        hosts: None,
        is_default: false,
        least_version: TlsVersion::Tls12,
        alpn: vec![Alpn::H2, Alpn::Http11],
        client: None,
    }
}

fn mistakes(parts: IdentityParts) -> Vec<IdentityMistake> {
    ServerIdentity::new(parts).unwrap_err()
}

fn asking(ca_pem: Vec<Vec<u8>>, crl_pem: Vec<Vec<u8>>) -> Option<ClientParts> {
    Some(ClientParts {
        ca_pem,
        verify: ClientVerify::Required,
        crl_pem,
    })
}

#[test]
fn an_identity_answers_for_the_names_of_its_certificate_or_for_those_written() {
    let mut parts = parts("api", &["API.test", "*.api.test"]);
    let identity = ServerIdentity::new(parts.clone()).unwrap();
    let hosts: Vec<_> = identity.hosts().iter().map(ServedName::as_str).collect();
    assert_eq!(hosts, ["api.test", "*.api.test"]);
    let other = ServedName::read("other.test").unwrap();
    parts.hosts = Some(vec![other.clone()]);
    let identity = ServerIdentity::new(parts).unwrap();
    assert_eq!(identity.hosts(), std::slice::from_ref(&other));
    assert!(!identity.certifies(&other));
    assert!(identity.certifies(&ServedName::read("x.api.test").unwrap()));
}

#[test]
fn sessions_are_taken_up_again_only_where_no_certificate_is_asked_of_clients() {
    let mut parts = parts("api", &["api.test"]);
    let open = ServerIdentity::new(parts.clone()).unwrap();
    assert!(open.config().ticketer.enabled());
    assert!(!open.config().session_storage.can_cache());
    assert_eq!(open.config().send_tls13_tickets, 2);
    assert_eq!(open.config().max_early_data_size, 0);
    parts.client = asking(vec![Authority::new().pem()], Vec::new());
    let asking = ServerIdentity::new(parts).unwrap();
    assert!(!asking.config().ticketer.enabled());
    assert!(!asking.config().session_storage.can_cache());
    assert_eq!(asking.config().send_tls13_tickets, 0);
}

#[test]
fn every_part_counts_where_identities_are_compared() {
    let base = parts("api", &["api.test"]);
    let made = |parts: &IdentityParts| ServerIdentity::new(parts.clone()).unwrap();
    let first = made(&base);
    assert_eq!(first, made(&base));
    let other = parts("api", &["api.test"]);
    let ca = Authority::new().pem();
    type Change<'a> = &'a dyn Fn(&mut IdentityParts);
    let changes: [Change<'_>; 8] = [
        &|parts| parts.name = "other".into(),
        &|parts| {
            parts.cert_pem.clone_from(&other.cert_pem);
            parts.key_pem.clone_from(&other.key_pem);
        },
        &|parts| parts.hosts = Some(Vec::new()),
        &|parts| parts.hosts = Some(vec![ServedName::read("api.test").unwrap()]),
        &|parts| parts.is_default = true,
        &|parts| parts.least_version = TlsVersion::Tls13,
        &|parts| parts.alpn.truncate(1),
        &|parts| parts.client = asking(vec![ca.clone()], Vec::new()),
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut parts = base.clone();
        change(&mut parts);
        assert_ne!(first, made(&parts), "{at}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    use IdentityMistake as Bad;
    let mut bad = parts("api", &["api.test"]);
    bad.cert_pem = b"nothing".to_vec();
    bad.client = asking(
        vec![Authority::new().pem(), b"nothing".to_vec()],
        vec![b"nothing".to_vec()],
    );
    let found = mistakes(bad);
    assert!(
        matches!(
            &found[..],
            [
                Bad::Certificate(_),
                Bad::Authority(1, _),
                Bad::RevocationList(0, _)
            ]
        ),
        "{found:?}"
    );
}

#[test]
fn a_key_fits_its_certificate() {
    let mut bad = parts("api", &["api.test"]);
    let other = parts("api", &["api.test"]);
    bad.key_pem.clone_from(&other.key_pem);
    assert_eq!(mistakes(bad.clone()), [IdentityMistake::KeyMismatch]);
    bad.key_pem.clone_from(&bad.cert_pem);
    assert!(matches!(&mistakes(bad)[..], [IdentityMistake::Key(_)]));
}

#[test]
fn the_key_is_never_shown() {
    let parts = parts("api", &["api.test"]);
    let key = String::from_utf8(parts.key_pem.clone()).unwrap();
    let shown = format!("{:?}", ServerIdentity::new(parts).unwrap());
    for line in key.lines().filter(|line| !line.starts_with("--")) {
        assert!(!shown.contains(line));
    }
    assert!(!shown.contains("PRIVATE"));
}

#[test]
fn a_certificate_of_version_1_needs_its_own_key_too() {
    let mut version1 = parts("own", &["own.test"]);
    version1.cert_pem = include_bytes!("../identity/version1.pem").to_vec();
    assert_eq!(mistakes(version1.clone()), [IdentityMistake::KeyMismatch]);
    version1.key_pem = include_bytes!("../identity/version1.key.pem").to_vec();
    let identity = ServerIdentity::new(version1).unwrap();
    assert!(identity.hosts().is_empty());
}

#[test]
fn a_key_of_another_kind_is_refused_in_words() {
    let mut parts = parts("api", &["api.test"]);
    parts.key_pem = include_bytes!("secp256k1.key").to_vec();
    let [IdentityMistake::Key(why)] = &mistakes(parts)[..] else {
        panic!("another mistake");
    };
    assert!(why.contains("P-256, P-384, P-521"), "{why}");
}

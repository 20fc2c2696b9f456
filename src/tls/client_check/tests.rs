//! The choice among several revocation lists of one authority, and the reasons why a certificate is refused.

use super::*;
use crate::tls::server_identity::tests::Authority;
use rcgen::{
    CertificateParams, CertificateRevocationListParams, KeyIdMethod, KeyPair, RevokedCertParams,
    date_time_ymd,
};

/// The number of the certificate that the newer list has revoked.
const REVOKED: u64 = 7;
/// A day in 2031, in seconds since 1970.
const NOW: u64 = 1_925_000_000;

impl Authority {
    fn client(&self) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.serial_number = Some(REVOKED.into());
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer);
        signed.unwrap().pem().into_bytes()
    }

    /// A list of the year `from` that is valid until the year `until`.
    fn list(&self, from: i32, until: i32, number: u64, revoked: &[u64]) -> Vec<u8> {
        let revoked = revoked.iter().map(|number| RevokedCertParams {
            serial_number: (*number).into(),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(from, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: number.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).unwrap();
        list.pem().unwrap().into_bytes()
    }

    fn check(&self, crl_pem: Vec<Vec<u8>>) -> ClientCheck {
        let made = ClientCheck::new(&ClientParts {
            ca_pem: vec![self.pem()],
            verify: ClientVerify::Required,
            crl_pem,
        });
        made.unwrap()
    }
}

#[test]
fn the_newest_list_of_an_authority_holds_wherever_it_stands() {
    let ca = Authority::new();
    let client = ca.client();
    let older = ca.list(2029, 2040, 9, &[]);
    let newer = ca.list(2030, 2040, 1, &[REVOKED]);
    // For lists of one instant, the number decides.
    let corrected = ca.list(2030, 2040, 256, &[]);
    let ended = ca.list(2028, 2029, 8, &[]);
    for (files, is_taken) in [
        (vec![older.clone()], true),
        (vec![newer.clone()], false),
        (vec![older.clone(), newer.clone()], false),
        (vec![newer.clone(), older.clone()], false),
        (vec![[older.clone(), newer.clone()].concat()], false),
        (vec![newer.clone(), corrected.clone()], true),
        (vec![corrected, newer.clone()], true),
        (vec![ended.clone(), older.clone()], true),
        (vec![older.clone(), ended.clone()], true),
        (vec![ended.clone()], false),
        // For lists of one instant, longer validity counts before the number.
        (vec![ca.list(2029, 2030, 10, &[]), older.clone()], true),
    ] {
        let count = files.len();
        let judged = ca.check(files).judge(&client, NOW);
        assert_eq!(judged.is_ok(), is_taken, "{count}: {judged:?}");
    }
}

#[test]
fn a_list_that_a_newer_one_replaces_is_not_told_of() {
    let (ca, other) = (Authority::new(), Authority::new());
    let ended = ca.list(2028, 2029, 8, &[]);
    let newer = ca.list(2030, 2040, 9, &[]);
    let check = ca.check(vec![ended.clone(), newer]);
    let files: Vec<usize> = check.lists().iter().map(|list| list.file).collect();
    assert_eq!(files, [1]);
    // The other authority has the same name, and another key.
    let check = ca.check(vec![ended, other.list(2030, 2040, 9, &[])]);
    let files: Vec<usize> = check.lists().iter().map(|list| list.file).collect();
    assert_eq!(files, [0, 1]);
}

#[test]
fn a_list_by_another_key_than_its_authoritys_is_told_of() {
    let (authority, other) = (Authority::new(), Authority::new());
    let [matching, foreign] = [&authority, &other].map(|one| one.list(2030, 2040, 1, &[]));
    let files = |check: &ClientCheck| {
        let lists = check.missigned().iter();
        lists.map(|list| list.file).collect::<Vec<_>>()
    };
    assert_eq!(files(&authority.check(vec![matching.clone()])), [0; 0]);
    assert_eq!(
        files(&authority.check(vec![matching.clone(), foreign.clone()])),
        [1]
    );
    let check = authority.check(vec![foreign.clone()]);
    assert_eq!(files(&check), [0]);
    assert!(check.judge(&authority.client(), NOW).is_err());
    // The other key belongs to the same authority if its certificate is in the file too.
    let both = ClientCheck::new(&ClientParts {
        ca_pem: vec![authority.pem(), other.pem()],
        verify: ClientVerify::Required,
        crl_pem: vec![matching, foreign],
    });
    assert_eq!(files(&both.unwrap()), [0; 0]);
}

/// An authority that continues with a new key has two certificates of one name, and a list by each key.
#[test]
fn lists_of_two_keys_of_one_name_hold_for_their_own_certificates() {
    let (old, new) = (Authority::new(), Authority::new());
    let lists = [old.list(2029, 2040, 1, &[]), new.list(2030, 2040, 1, &[])];
    let revoking = [
        old.list(2029, 2040, 1, &[REVOKED]),
        new.list(2030, 2040, 1, &[REVOKED]),
    ];
    let taken = |lists: Vec<Vec<u8>>| {
        let check = ClientCheck::new(&ClientParts {
            ca_pem: vec![old.pem(), new.pem()],
            verify: ClientVerify::Required,
            crl_pem: lists,
        });
        let check = check.unwrap();
        [&old, &new].map(|authority| check.judge(&authority.client(), NOW).is_ok())
    };
    let [of_old, of_new] = &lists;
    let [revokes_old, revokes_new] = &revoking;
    for (lists, expected) in [
        ([of_old, of_new], [true, true]),
        ([of_new, of_old], [true, true]),
        ([revokes_old, of_new], [false, true]),
        ([of_new, revokes_old], [false, true]),
        ([of_old, revokes_new], [true, false]),
        ([revokes_new, revokes_old], [false, false]),
        // A list of one key alone: the other key's clients are refused in any case.
        ([of_old, of_old], [true, false]),
        ([of_new, of_new], [false, true]),
    ] {
        assert_eq!(taken(lists.map(Vec::clone).to_vec()), expected);
    }
}

#[test]
fn a_weak_certificate_is_refused_in_words() {
    let check = ClientCheck::new(&ClientParts {
        ca_pem: vec![include_bytes!("authority.pem").to_vec()],
        verify: ClientVerify::Required,
        crl_pem: Vec::new(),
    });
    let check = check.unwrap();
    for (client, why) in [
        (&include_bytes!("sha1.pem")[..], "sign it with SHA-256"),
        (
            include_bytes!("short.pem"),
            "its key is too short, with 1024 bits",
        ),
    ] {
        let refused = check.judge(client, NOW).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

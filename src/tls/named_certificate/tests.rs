//! Handshakes with self-signed certificates, as `openssl req -x509` makes them.

use crate::tls::server_identity::tests::Authority;
use crate::tls::{
    Alpn, ClientParts, ClientTls, ClientVerify, IdentityParts, PemFiles, ServerIdentity,
    TlsVersion, server_name,
};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};
use rustls::{ClientConnection, ServerConnection};
use std::sync::Arc;

/// A certificate and its key, as PEM.
type Pair = (Vec<u8>, Vec<u8>);

/// A certificate of this name that is self-signed and marked as an authority.
fn self_signed(name: &str, edit: impl FnOnce(&mut CertificateParams)) -> Pair {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    edit(&mut params);
    let cert = params.self_signed(&key).unwrap().pem();
    (cert.into_bytes(), key.serialize_pem().into_bytes())
}

fn identity((cert_pem, key_pem): &Pair, client: Option<ClientParts>) -> ServerIdentity {
    ServerIdentity::new(IdentityParts {
        name: "own".into(),
        cert_pem: cert_pem.clone(),
        key_pem: key_pem.clone(),
        hosts: None,
        is_default: true,
        least_version: TlsVersion::Tls12,
        alpn: vec![Alpn::Http11],
        client,
    })
    .unwrap()
}

/// The result of a handshake in memory: `Ok`, or the words of the side that refuses.
fn shake(server: &ServerIdentity, client: &ClientTls, name: &str) -> Result<(), String> {
    let config = client.config().unwrap();
    let mut client = ClientConnection::new(config, server_name(name).unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server.config())).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut &bytes[..]).unwrap();
        server
            .process_new_packets()
            .map_err(|error| error.to_string())?;
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut &bytes[..]).unwrap();
        client
            .process_new_packets()
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn trusting(ca: &[u8], identity: Option<&Pair>) -> ClientTls {
    ClientTls::new(PemFiles {
        ca: Some(ca),
        identity: identity.map(|(cert, key)| (&cert[..], &key[..])),
        ..PemFiles::default()
    })
    .unwrap()
}

#[test]
fn a_server_that_signs_itself_is_believed_where_it_is_named() {
    let pair = self_signed("own.test", |_| {});
    let server = identity(&pair, None);
    let client = trusting(&pair.0, None);
    assert_eq!(shake(&server, &client, "own.test"), Ok(()));
    let other = shake(&server, &client, "other.test").unwrap_err();
    assert!(other.contains("not valid for name"), "{other}");
    // Another certificate of the same name and kind is not trusted.
    let twin = self_signed("own.test", |_| {});
    assert!(shake(&identity(&twin, None), &client, "own.test").is_err());
    // A certificate that was signed by an authority is still trusted because of that authority.
    let parts = crate::tls::tests::parts("api", &["api.test"]);
    let (chain, key) = (parts.cert_pem.clone(), parts.key_pem);
    assert_eq!(
        shake(
            &identity(&(chain.clone(), key), None),
            &trusting(&chain, None),
            "api.test"
        ),
        Ok(())
    );
}

#[test]
fn a_named_certificate_has_its_time_and_its_purpose() {
    for (edit, why) in [
        (
            (|params| params.not_after = date_time_ymd(2020, 1, 1)) as fn(&mut CertificateParams),
            "Expired",
        ),
        (
            |params| params.not_before = date_time_ymd(2090, 1, 1),
            "NotValidYet",
        ),
        (
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            "InvalidPurpose",
        ),
    ] {
        let pair = self_signed("own.test", edit);
        let refused = shake(&identity(&pair, None), &trusting(&pair.0, None), "own.test");
        let refused = refused.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_client_that_signs_itself_is_believed_where_it_is_named() {
    let authority = Authority::new();
    let server = self_signed("own.test", |_| {});
    let (one, other) = (
        self_signed("one.test", |_| {}),
        self_signed("other.test", |_| {}),
    );
    let asking = ClientParts {
        ca_pem: vec![authority.pem(), one.0.clone()],
        verify: ClientVerify::Required,
        crl_pem: Vec::new(),
    };
    let identity = identity(&server, Some(asking));
    let shown = |pair: &Pair| shake(&identity, &trusting(&server.0, Some(pair)), "own.test");
    assert_eq!(shown(&one), Ok(()));
    assert!(shown(&other).is_err());
    let server_alone = self_signed("one.test", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let asking = ClientParts {
        ca_pem: vec![server_alone.0.clone()],
        verify: ClientVerify::Required,
        crl_pem: Vec::new(),
    };
    let strict = self::identity(&server, Some(asking));
    assert!(
        shake(
            &strict,
            &trusting(&server.0, Some(&server_alone)),
            "own.test"
        )
        .is_err()
    );
}

#[test]
fn a_certificate_of_version_1_is_presented() {
    let pair = (
        include_bytes!("../identity/version1.pem").to_vec(),
        include_bytes!("../identity/version1.key.pem").to_vec(),
    );
    let server = identity(&pair, None);
    let insecure = ClientTls::new(PemFiles {
        insecure: true,
        ..PemFiles::default()
    });
    // rustls, which reads no such certificate, reports so as a client.
    let refused = shake(&server, &insecure.unwrap(), "old.test").unwrap_err();
    assert!(refused.contains("UnsupportedCertVersion"), "{refused}");
}

//! Redis over TLS: the trusted authorities, the presented certificates, and the errors if these do not suffice.

use super::certificates::{Authority, Pair, TlsServer, has_tls};
use super::support::{Server, limit, token_bucket, until_up};
use crate::store::check::Check;
use crate::store::error::StoreError;
use crate::store::redis::RedisStore;
use crate::store::redis::tests::support::look;
use crate::store::{Backend, RedisEndpoint, RedisTarget, StoreSettings};
use crate::tls::{ClientTls, Mistake, PemFiles};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

fn pem(pair: &Pair) -> Option<(&[u8], &[u8])> {
    Some((pair.cert.as_bytes(), pair.key.as_bytes()))
}

async fn counts(target: &RedisTarget) {
    let store = RedisStore::new(target, &StoreSettings::default());
    until_up(&store, PATIENCE).await;
    let some = limit("some", token_bucket(10, 1_000_000, 10));
    let decided = store.decide(&[Check::new(&some, b"a")]).await;
    assert!(decided.is_ok(), "{decided:?}");
}

#[tokio::test(flavor = "local")]
async fn a_server_whose_authority_is_named_is_used() {
    if !has_tls() {
        return;
    }
    let authority = Authority::new();
    let server = TlsServer::start(&authority, &authority.signs("127.0.0.1"), "no");
    let ca = authority.pem();
    let target = server.target(PemFiles {
        ca: Some(ca.as_bytes()),
        ..PemFiles::default()
    });
    assert!(target.to_string().starts_with("rediss://127.0.0.1:"));
    counts(&target).await;
    let found = look(&target).await.unwrap();
    assert!(found.to_string().contains("accepts the scripts"), "{found}");
}

#[tokio::test(flavor = "local")]
async fn a_clients_certificate_and_another_name_are_presented() {
    if !has_tls() {
        return;
    }
    let authority = Authority::new();
    let server = TlsServer::start(&authority, &authority.signs("redis.internal"), "yes");
    let (ca, certificate) = (authority.pem(), authority.signs("gateway"));
    let target = server.target(PemFiles {
        ca: Some(ca.as_bytes()),
        identity: pem(&certificate),
        server_name: Some("redis.internal"),
        insecure: false,
    });
    counts(&target).await;
}

#[tokio::test(flavor = "local")]
async fn what_is_wrong_with_a_servers_certificate_is_said() {
    if !has_tls() {
        return;
    }
    let authority = Authority::new();
    let ca = authority.pem();
    let ours = PemFiles {
        ca: Some(ca.as_bytes()),
        ..PemFiles::default()
    };
    let other = Authority::new();
    for (server, expected) in [
        (
            TlsServer::start(&other, &other.signs("127.0.0.1"), "no"),
            "the certificate's authority is not trusted",
        ),
        (
            TlsServer::start(&authority, &authority.signs("redis.internal"), "no"),
            "the certificate is for another name",
        ),
        (
            TlsServer::start(&authority, &authority.signs_until("127.0.0.1", 2001), "no"),
            "the certificate has expired",
        ),
    ] {
        let said = server.refused(ours).await;
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test(flavor = "local")]
async fn what_a_server_thinks_of_our_certificate_is_said() {
    if !has_tls() {
        return;
    }
    let authority = Authority::new();
    let server = TlsServer::start(&authority, &authority.signs("127.0.0.1"), "yes");
    let ca = authority.pem();
    let expired = authority.signs_until("gateway", 2001);
    let strange = Authority::new().signs("gateway");
    for (identity, expected) in [
        (None, "does it demand a client's certificate?"),
        (pem(&expired), "our certificate has expired"),
        (
            pem(&strange),
            "does not trust the authority of our certificate",
        ),
    ] {
        let said = server
            .refused(PemFiles {
                ca: Some(ca.as_bytes()),
                identity,
                server_name: None,
                insecure: false,
            })
            .await;
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test(flavor = "local")]
async fn a_server_without_tls_is_told_from_one_that_is_away() {
    let plain = Server::start();
    let target = RedisTarget {
        tls: Some(ClientTls::of_system()),
        ..RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", plain.port))
    };
    let said = look(&target).await.unwrap_err().to_string();
    assert!(said.contains("TLS"), "{said}");
    // A machine that is busy in between, or reads certificates slowly, leaves less time for the handshake; the error
    // may name that time as well.
    let busy = async { std::thread::sleep(Duration::from_millis(400)) };
    let (looked, ()) = tokio::join!(look(&target), busy);
    let said = looked.unwrap_err().to_string();
    assert!(said.contains("TLS"), "{said}");
}

#[tokio::test(flavor = "local")]
async fn changed_certificates_are_presented_by_new_connections() {
    if !has_tls() {
        return;
    }
    let authority = Authority::new();
    let server = TlsServer::start(&authority, &authority.signs("127.0.0.1"), "yes");
    let (ca, certificate) = (authority.pem(), authority.signs("gateway"));
    let settings = |identity| StoreSettings {
        source: Backend::Redis(server.target(PemFiles {
            ca: Some(ca.as_bytes()),
            identity,
            server_name: None,
            insecure: false,
        })),
        ..StoreSettings::default()
    };
    let mut running = settings(None);
    let Backend::Redis(target) = &running.source else {
        panic!("a Redis");
    };
    let store = RedisStore::new(target, &running);
    assert!(store.reach().await.is_err());
    running.rotate(&settings(pem(&certificate)));
    until_up(&store, PATIENCE).await;
}

#[test]
fn files_that_are_of_no_use_are_told_apart() {
    let authority = Authority::new();
    let (ca, one, other) = (authority.pem(), authority.signs("a"), authority.signs("b"));
    let mistakes = |ca: &str, cert: &str, key: &str| {
        let made = ClientTls::new(PemFiles {
            ca: Some(ca.as_bytes()),
            identity: Some((cert.as_bytes(), key.as_bytes())),
            server_name: None,
            insecure: false,
        });
        made.err().unwrap_or_default()
    };
    assert_eq!(mistakes(&ca, &one.cert, &one.key), []);
    let mismatch = Mistake::Key("it is not the certificate's".into());
    assert_eq!(mistakes(&ca, &one.cert, &other.key), [mismatch]);
    assert!(matches!(
        &mistakes("", &one.key, &one.key)[..],
        [Mistake::Ca(_), Mistake::Cert(_)]
    ));
    assert!(matches!(
        &mistakes(&ca, &one.cert, &one.cert)[..],
        [Mistake::Key(_)]
    ));
    let shown = format!("{:?}", ClientTls::of_system());
    assert!(shown.contains("presents_a_certificate: false"), "{shown}");
}

#[tokio::test(flavor = "local")]
async fn while_no_handshake_succeeds_nobody_waits() {
    if !has_tls() {
        return;
    }
    let authority = Authority::new();
    let server = TlsServer::start(&authority, &authority.signs("127.0.0.1"), "no");
    let other = Authority::new().pem();
    let target = server.target(PemFiles {
        ca: Some(other.as_bytes()),
        ..PemFiles::default()
    });
    let store = RedisStore::new(&target, &StoreSettings::default());
    assert!(store.reach().await.is_err());
    let some = limit("some", token_bucket(10, 1_000_000, 10));
    while store.decide(&[Check::new(&some, b"a")]).await != Err(StoreError::Down) {}
    assert_eq!(store.stats().decisions.get(), 0);
}

//! Certificate chains that a client makes up so that the gateway verifies many signatures. Each refused chain costs as
//! much as any other refused certificate. A client that shows one after another is closed before any cryptography.

use super::client_certificates::asking;
use super::{asked, counts, gateway, gateway_with};
use crate::support::tls::{Authority, made_up_chain};
use crate::support::{Upstream, process};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, Error};
use std::net::Ipv4Addr;
use std::time::Duration;

/// The number of refused chains that the bound allows one client.
const WITHIN_BOUND: u8 = 19;
/// More workers than a gateway of the tests has.
const MOST_WORKERS: usize = 4;

fn refused(alert: AlertDescription) -> Error {
    Error::AlertReceived(alert)
}

fn client(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, number)
}

#[tokio::test]
async fn no_chain_costs_more_than_another_that_is_refused() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identity = ca.identity("inner", &["inner.test"]) + &asking(&ca, "required");
    let gateway = gateway(&upstream, &[identity]).await;
    let tls = gateway.tls().await;
    let cost = async |from: u8, names: &[&str], alert| {
        let stranger = ca.showing(&made_up_chain(names, ca.name()));
        let before = process::worked(gateway.pid());
        for _ in 0..WITHIN_BOUND {
            let error = stranger.refused_from(client(from), tls, "inner.test").await;
            assert_eq!(error, refused(alert), "{names:?}");
        }
        process::worked(gateway.pid()) - before
    };
    let one = cost(10, &[], AlertDescription::DecryptError).await;
    // Without the bound, 19 of these chains took 0.4 s to 1.6 s.
    let most = one + Duration::from_millis(10 * u64::from(WITHIN_BOUND));
    let own = ca.name();
    let turns = [own, "I", own, "I", own, "I", own];
    let different = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let bad = AlertDescription::CertificateUnknown;
    for (from, names) in [
        &["I"; 30][..],
        &["I"; 120],
        &[own; 30],
        &["I"; 7],
        &[own; 7],
        &turns,
        &different,
    ]
    .into_iter()
    .enumerate()
    {
        let from = 20 + u8::try_from(from).unwrap();
        let cost = cost(from, names, bad).await;
        assert!(cost < most, "{}: {cost:?}, {most:?}", names.len());
    }
    let said = "two of the certificates after it have the same name";
    let told = gateway
        .said
        .line(0, said, |line| line.contains("its certificate is refused"));
    told.await;
}

#[tokio::test]
async fn a_chain_within_the_bounds_is_taken() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identity = ca.identity("inner", &["inner.test"]) + &asking(&ca, "required");
    let gateway = gateway(&upstream, &[identity]).await;
    let tls = gateway.tls().await;
    // webpki follows a chain through six other certificates at most.
    let chain = ca.chain(&["a", "b", "c", "d", "e", "f"]);
    let mut wire = ca.showing(&chain).wire(tls, "inner.test").await;
    wire.ask(asked("inner.test")).await.expect(200);
    let long = ca.chain(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    let long = ca.showing(&long).refused(tls, "inner.test").await;
    assert_eq!(long, refused(AlertDescription::CertificateUnknown));
    let line = gateway.said.line(0, "its length", |line| {
        line.contains("its chain has 9 certificates, and a client's may have 8")
    });
    line.await;
}

#[tokio::test]
async fn a_client_whose_chains_are_refused_is_closed_before_cryptography() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identities = [
        ca.identity("open", &["open.test"]),
        ca.identity("inner", &["inner.test"]) + &asking(&ca, "required"),
        ca.identity("free", &["free.test"]) + &asking(&ca, "optional"),
    ];
    let gateway = gateway(&upstream, &identities).await;
    let tls = gateway.tls().await;
    let (anna, stranger) = (ca.client("anna"), made_up_chain(&["I"], "J"));
    let (anna, stranger) = (ca.showing(&anna), ca.showing(&stranger));
    // Neither a missing certificate nor an unknown name counts.
    for _ in 0..25 {
        let none = ca.trusting();
        let missing = none.refused_from(client(2), tls, "inner.test").await;
        assert_eq!(missing, refused(AlertDescription::CertificateRequired));
        let unknown = none.refused_from(client(2), tls, "else.test").await;
        assert_eq!(unknown, refused(AlertDescription::UnrecognisedName));
    }
    for host in ["inner.test", "free.test"].repeat(10) {
        let error = stranger.refused_from(client(2), tls, host).await;
        assert_eq!(error, refused(AlertDescription::UnknownCA));
    }
    for host in ["inner.test", "free.test"] {
        for one in [&anna, &stranger] {
            let error = one.refused_from(client(2), tls, host).await;
            assert_eq!(error, refused(AlertDescription::AccessDenied));
        }
    }
    let labels = "identity=\"inner\",version=\"none\",result=\"client_throttled\"";
    counts(&gateway, labels, 2).await;
    let line = gateway.said.line(0, "the cause", |line| {
        line.contains("no TLS with 127.0.0.2: 20 of its certificates were refused within 10 s")
    });
    line.await;
    // Other clients are served, and so are identities that demand no certificate.
    let mut wire = anna.wire_from(client(3), tls, "inner.test").await;
    wire.ask(asked("inner.test")).await.expect(200);
    let mut wire = anna.wire_from(client(2), tls, "open.test").await;
    wire.ask(asked("open.test")).await.expect(200);
}

/// Handshakes that run side by side, and verify their chains before any of them was refused.
#[tokio::test]
async fn chains_that_come_side_by_side_are_bounded_too() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identities = [
        ca.identity("inner", &["inner.test"]) + &asking(&ca, "required"),
        ca.identity("free", &["free.test"]) + &asking(&ca, "optional"),
    ];
    let gateway = gateway(&upstream, &identities).await;
    let tls = gateway.tls().await;
    let stranger = made_up_chain(&["I"], "J");
    for (from, host, version) in [
        (4, "inner.test", &TLS13),
        (5, "free.test", &TLS13),
        (6, "inner.test", &TLS12),
    ] {
        let stranger = ca.client_of(&[version], Some(&stranger));
        let mut halves = Vec::new();
        for _ in 0..200 {
            halves.push(stranger.half_shake(client(from), tls, host).await);
        }
        for half in &mut halves {
            half.send().await;
        }
        let (mut looked_at, mut closed) = (0, 0);
        for half in halves {
            let error = half.refused().await;
            if error == refused(AlertDescription::AccessDenied) {
                closed += 1;
            } else {
                assert_eq!(error, refused(AlertDescription::UnknownCA));
                looked_at += 1;
            }
        }
        // Each worker may verify one chain while the others refuse the twentieth.
        assert!((20..=20 + MOST_WORKERS).contains(&looked_at), "{looked_at}");
        assert_eq!(looked_at + closed, 200);
    }
    // Clients with a good certificate are not counted, however many come at once.
    let anna = ca.showing(&ca.client("anna"));
    let mut wires = Vec::new();
    for _ in 0..50 {
        wires.push(anna.wire_from(client(7), tls, "inner.test").await);
    }
    for wire in &mut wires {
        wire.ask(asked("inner.test")).await.expect(200);
    }
}

#[tokio::test]
async fn a_stranger_behind_a_balancer_does_not_lock_others_out() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identity = ca.identity("inner", &["inner.test"]) + &asking(&ca, "required");
    let gateway = gateway_with(&upstream, "trust = [\"127.0.0.9\"]\n", &[identity]).await;
    let tls = gateway.tls().await;
    let stranger = ca.showing(&made_up_chain(&["I"], "J"));
    for _ in 0..25 {
        let error = stranger.refused_from(client(9), tls, "inner.test").await;
        assert_eq!(error, refused(AlertDescription::UnknownCA));
    }
    let anna = ca.showing(&ca.client("anna"));
    let mut wire = anna.wire_from(client(9), tls, "inner.test").await;
    wire.ask(asked("inner.test")).await.expect(200);
}

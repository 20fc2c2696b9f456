//! Certificates that change while the gateway serves.

use super::{asked, gateway};
use crate::support::tls::Authority;
use crate::support::{PATIENCE, Upstream, eventually};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[tokio::test]
async fn twenty_swaps_under_load_lose_nothing() {
    let upstream = Upstream::echo().await;
    let ca = Arc::new(Authority::new());
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let tls = gateway.tls().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();
    for kept in [true, false, false] {
        let (ca, is_over, served) = (Arc::clone(&ca), Arc::clone(&is_over), Arc::clone(&served));
        clients.push(tokio::spawn(async move {
            let client = ca.trusting();
            let mut wire = client.wire(tls, "api.test").await;
            while !is_over.load(Ordering::Relaxed) {
                if !kept {
                    wire = client.wire(tls, "api.test").await;
                }
                wire.ask(asked("api.test")).await.expect(200);
                served.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for _ in 0..20 {
        let pair = ca.server(&["api.test"]);
        ca.write("api", &pair);
        let is_shown = async || {
            let stream = ca.trusting().connect(tls, "api.test").await.unwrap();
            let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
            *shown == *der_of(&pair.cert)
        };
        eventually(PATIENCE, "the new certificate is shown", is_shown).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert!(served.load(Ordering::Relaxed) > 100);
}

#[tokio::test]
async fn an_unchanged_identity_keeps_its_sessions() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identities = [
        ca.identity("api", &["api.test"]),
        ca.identity("other", &["other.test"]),
    ];
    let gateway = gateway(&upstream, &identities).await;
    let tls = gateway.tls().await;
    for version in [&TLS12, &TLS13] {
        let client = ca.client_of(&[version], None);
        let mut wire = client.wire(tls, "api.test").await;
        wire.ask(asked("api.test")).await.expect(200);
        let pair = ca.server(&["other.test"]);
        ca.write("other", &pair);
        let is_shown = async || {
            let stream = ca.trusting().connect(tls, "other.test").await.unwrap();
            let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
            *shown == *der_of(&pair.cert)
        };
        eventually(PATIENCE, "the new certificate is shown", is_shown).await;
        let mut wire = client.wire(tls, "api.test").await;
        let answer = wire.ask(asked("api.test")).await.expect(200);
        assert_eq!(gateway.line_of(&answer).await["tls"]["resumed"], true);
    }
}

fn der_of(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

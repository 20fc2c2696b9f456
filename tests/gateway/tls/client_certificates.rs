//! Clients that must show certificates, and hosts that are served on other connections only.

use super::{asked, gateway, resumes};
use crate::support::tls::Authority;
use crate::support::{PATIENCE, Upstream, Wire, eventually};
use rustls::{AlertDescription, Error};

fn refused(alert: AlertDescription) -> Error {
    Error::AlertReceived(alert)
}

/// The lines that demand certificates of `ca` from clients.
pub(super) fn asking(ca: &Authority, verify: &str) -> String {
    format!(
        "client = {{ ca = {:?}, verify = \"{verify}\" }}\n",
        ca.path("ca.pem")
    )
}

#[tokio::test]
async fn a_required_certificate_must_be_good() {
    let upstream = Upstream::echo().await;
    let (ca, strangers) = (Authority::new(), Authority::new());
    let identity = ca.identity("inner", &["inner.test"]) + &asking(&ca, "required");
    let gateway = gateway(&upstream, &[identity]).await;
    let tls = gateway.tls().await;
    let mut wire = ca.showing(&ca.client("anna")).wire(tls, "inner.test").await;
    wire.ask(asked("inner.test")).await.expect(200);
    let none = ca.trusting().refused(tls, "inner.test").await;
    assert_eq!(none, refused(AlertDescription::CertificateRequired));
    let strange = ca.showing(&strangers.client("anna"));
    let strange = strange.refused(tls, "inner.test").await;
    assert_eq!(strange, refused(AlertDescription::UnknownCA));
    let old = ca.client_with("anna", |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let old = ca.showing(&old).refused(tls, "inner.test").await;
    assert_eq!(old, refused(AlertDescription::CertificateExpired));
    let server = ca.client_with("anna", |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    });
    let server = ca.showing(&server).refused(tls, "inner.test").await;
    assert!(matches!(server, Error::AlertReceived(_)), "{server:?}");
    let labels = "identity=\"inner\",version=\"1.3\",result=\"client_refused\"";
    super::counts(&gateway, labels, 4).await;
}

#[tokio::test]
async fn an_optional_certificate_may_be_missing_but_not_bad() {
    let upstream = Upstream::echo().await;
    let (ca, strangers) = (Authority::new(), Authority::new());
    let identity = ca.identity("inner", &["inner.test"]) + &asking(&ca, "optional");
    let gateway = gateway(&upstream, &[identity]).await;
    let tls = gateway.tls().await;
    for client in [ca.trusting(), ca.showing(&ca.client("anna"))] {
        let mut wire = client.wire(tls, "inner.test").await;
        wire.ask(asked("inner.test")).await.expect(200);
    }
    let strange = ca.showing(&strangers.client("anna"));
    let strange = strange.refused(tls, "inner.test").await;
    assert_eq!(strange, refused(AlertDescription::UnknownCA));
}

#[tokio::test]
async fn sessions_are_never_taken_up_where_clients_are_verified() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    for verify in ["required", "optional"] {
        let identity = ca.identity("inner", &["inner.test"]) + &asking(&ca, verify);
        let gateway = gateway(&upstream, &[identity]).await;
        let client = ca.showing(&ca.client("anna"));
        assert!(!resumes(&client, &gateway, "inner.test").await);
        let old = ca.client_of(&[&rustls::version::TLS12], Some(&ca.client("anna")));
        assert!(!resumes(&old, &gateway, "inner.test").await);
    }
}

#[tokio::test]
async fn a_reload_that_asks_clients_holds_for_new_connections() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let open = ca.identity("inner", &["inner.test"]);
    let gateway = gateway(&upstream, std::slice::from_ref(&open)).await;
    let tls = gateway.tls().await;
    let mut wire = Wire::over_tls(ca.trusting().connect(tls, "inner.test").await.unwrap());
    wire.ask(asked("inner.test")).await.expect(200);
    let text = std::fs::read_to_string(gateway.file()).unwrap();
    gateway.rename_over(&text.replace(&open, &(open.clone() + &asking(&ca, "required"))));
    gateway
        .said
        .line(0, "the reload", |line| line.contains("generation 2"))
        .await;
    let none = ca.trusting().refused(tls, "inner.test").await;
    assert_eq!(none, refused(AlertDescription::CertificateRequired));
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_and_so_are_all_by_an_expired_list() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let numbered =
        |number: u64| ca.client_with("anna", |params| params.serial_number = Some(number.into()));
    ca.revoke("crl.pem", &[7], 2100);
    ca.revoke("old.pem", &[], 2026);
    let listed = |file: &str| {
        let (ca, crl) = (ca.path("ca.pem"), ca.path(file));
        format!("client = {{ ca = {ca:?}, crl = {crl:?} }}\n")
    };
    let identities = [
        ca.identity("inner", &["inner.test"]) + &listed("crl.pem"),
        ca.identity("late", &["late.test"]) + &listed("old.pem"),
    ];
    let gateway = gateway(&upstream, &identities).await;
    let has_ended =
        |line: &str| line.contains("in `crl` of identity late has ended at 2026-01-01T00:00:00Z");
    gateway
        .said
        .line(0, "the list that has ended", has_ended)
        .await;
    let tls = gateway.tls().await;
    let good = ca.showing(&numbered(8));
    let mut wire = good.wire(tls, "inner.test").await;
    wire.ask(asked("inner.test")).await.expect(200);
    let revoked = ca.showing(&numbered(7));
    let error = revoked.refused(tls, "inner.test").await;
    assert_eq!(error, refused(AlertDescription::CertificateRevoked));
    let error = good.refused(tls, "late.test").await;
    assert!(matches!(error, Error::AlertReceived(_)), "{error:?}");
    // A list that is replaced applies to new connections; `revocation` tests open connections.
    ca.revoke("crl.pem", &[7, 8], 2100);
    let is_refused = async || good.connect_and_ask(tls, "inner.test").await.is_err();
    eventually(PATIENCE, "the new list holds", is_refused).await;
}

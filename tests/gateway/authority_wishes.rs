//! The demands of an authority on a running gateway: a time for the renewal (RFC 9773), a pause, and certificates of
//! one of its profiles. The authority belongs to the tests.

use crate::support::{AcmeDirectory, Site, free_port};

const HOST: &str = "shop.example.com";

/// A directory, a site, and a file with these lines in `[acme.test]`.
async fn scene(more: &str) -> (AcmeDirectory, Site, String) {
    let directory = AcmeDirectory::start().await;
    let site = Site::at(free_port(), free_port()).await;
    let rest = format!("{more}[tls.shop]\nacme = \"test\"\nhosts = [\"{HOST}\"]\n");
    let text = site.file(&site.listen(""), &directory.url(), &directory.ca(), &rest);
    (directory, site, text)
}

#[tokio::test]
async fn a_profile_is_ordered_and_a_window_that_has_come_renews_and_says_what_is_replaced() {
    let (directory, site, text) = scene("profile = \"shortlived\"\n").await;
    directory.suggest("2099-01-01T00:00:00Z", "2099-01-02T00:00:00Z");
    let mut gateway = site.start(&text).await;
    site.serves("shop", HOST).await;
    gateway.stop().await;
    assert_eq!(directory.orders()[0]["profile"], "shortlived");
    let first = site.kept("certificates/shop.pem");

    // Two days have gone by, and two thirds of the certificate's life are left.
    let mut gateway = site.start_ahead(&text, 2).await;
    site.serves("shop", HOST).await;
    gateway.stop().await;
    assert_eq!(directory.orders().len(), 1);
    directory.suggest("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z");
    let mut gateway = site.start_ahead(&text, 2).await;
    for step in [
        "tls.shop: test asks for its renewal now",
        "is ordered from acme.test; the previous one is good for 8",
        "tls.shop: a certificate for shop.example.com has come, good for 8",
    ] {
        let said = gateway.said.line(0, step, |line| line.contains(step));
        said.await;
    }
    gateway.stop().await;
    assert_ne!(site.kept("certificates/shop.pem"), first);
    let orders = directory.orders();
    assert_eq!(orders.len(), 2);
    assert_eq!(orders[1]["profile"], "shortlived");
    // The serial number of the first certificate, 1000, in base64url.
    let replaces = orders[1]["replaces"].as_str().unwrap();
    assert!(replaces.ends_with(".A-g"), "{replaces}");
}

#[tokio::test]
async fn a_pause_that_is_asked_for_is_kept_wherever_it_is_asked_for() {
    for refused in ["dir", "account", "new-order"] {
        let (directory, site, text) = scene("").await;
        directory.limit(refused, 7200);
        let mut gateway = site.start(&text).await;
        let said = gateway.said.line(0, "the failure", |line| {
            line.contains("tls.shop: no certificate: ")
                && line.ends_with("the next attempt is in 2 h")
                && (refused == "dir" || line.contains("too many certificates for these names"))
        });
        said.await;
        gateway.stop().await;
        // The pause outlives the process.
        let mut gateway = site.start_ahead(&text, 0).await;
        let said = gateway.said.line(0, "the time of the next order", |line| {
            line.contains("the previous order failed, and the next one is made at 20")
        });
        said.await;
        gateway.stop().await;
        assert!(site.kept("attempts/shop.json").contains("\"failures\":1"));
        assert_eq!(directory.orders().len(), 0);
    }
}

/// The library mistakes such an answer for a refusal to look. The other kind of challenge would then wait for a minute.
#[tokio::test]
async fn a_name_that_is_not_found_before_the_authority_answers_is_looked_for_by_the_other_kind_soon()
 {
    let (directory, site, text) = scene("").await;
    directory.refuse_first();
    let mut gateway = site.start(&text).await;
    let failed = gateway.said.line(0, "the failure", |line| {
        line.contains("tls.shop: no certificate: ")
    });
    let line = failed.await;
    let expected = format!(
        "{HOST} was not found to be ours by tls-alpn-01: nobody answers; the next attempt is in 5 s"
    );
    assert!(line.ends_with(&expected), "{line}");
    site.serves("shop", HOST).await;
    gateway.stop().await;
    assert_eq!(directory.orders().len(), 2);
}

//! The time of renewals. Each test shifts its own clock and has its own authority, which suggests windows (RFC 9773)
//! and knows profiles.

use super::orders::Desk;
use crate::support::{AcmeDirectory, PATIENCE, eventually};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::clock::{self, Timestamp};

const DAY: u64 = 24 * 3600 * 1_000_000;
const SHOP: &[(&str, &[&str])] = &[("shop", &["shop.example.com"])];

/// A clock for one test, and a function that sets the clock to a number of days from now.
macro_rules! shifted_clock {
    ($desk:expr) => {{
        static SHIFT: AtomicU64 = AtomicU64::new(0);
        fn wall() -> Timestamp {
            let now = clock::wall().micros() + SHIFT.load(Ordering::SeqCst);
            Timestamp::from_micros(now)
        }
        $desk.clock = wall;
        |days: u64| SHIFT.store(days * DAY, Ordering::SeqCst)
    }};
}

/// Makes the task look now: the task looks whenever it gets the list of wanted certificates.
async fn look(desk: &Desk) {
    desk.want(SHOP);
    tokio::time::sleep(Duration::from_millis(300)).await;
}

async fn ordered(directory: &AcmeDirectory, count: usize) {
    eventually(PATIENCE, "an order", async || {
        directory.orders().len() == count
    })
    .await;
}

#[tokio::test]
async fn a_certificate_is_renewed_when_a_third_of_its_life_is_left() {
    let directory = AcmeDirectory::start().await;
    let mut desk = Desk::at(directory.url(), &directory.ca());
    let shift_to = shifted_clock!(desk);
    desk.want(SHOP);
    desk.open();
    let first = desk.certificate("shop").await;
    let order = &directory.orders()[0];
    assert!(order["profile"].is_null() && order["replaces"].is_null());
    shift_to(54);
    look(&desk).await;
    assert_eq!(directory.orders().len(), 1);
    shift_to(61);
    look(&desk).await;
    ordered(&directory, 2).await;
    eventually(PATIENCE, "the renewal", async || {
        desk.issued.of("shop").as_ref() != Some(&first)
    })
    .await;
    // By this clock the new certificate is due at once as well. The task pauses, since otherwise it would order without
    // end.
    look(&desk).await;
    look(&desk).await;
    assert_eq!(directory.orders().len(), 2);
}

#[tokio::test]
async fn a_window_that_moves_to_now_renews_at_once_and_says_what_is_replaced() {
    let directory = AcmeDirectory::start().await;
    directory.suggest("2099-01-01T00:00:00Z", "2099-01-02T00:00:00Z");
    let mut desk = Desk::at(directory.url(), &directory.ca());
    desk.authority.profile = Some("shortlived".into());
    let shift_to = shifted_clock!(desk);
    desk.want(SHOP);
    desk.open();
    desk.certificate("shop").await;
    assert_eq!(directory.orders()[0]["profile"], "shortlived");
    // The authority suggests a late renewal. The task follows the suggestion, unless the certificate would end before.
    shift_to(70);
    look(&desk).await;
    assert_eq!(directory.orders().len(), 1);
    directory.suggest("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z");
    look(&desk).await;
    assert_eq!(directory.orders().len(), 1, "it is asked again later");
    shift_to(71);
    look(&desk).await;
    ordered(&directory, 2).await;
    let order = &directory.orders()[1];
    assert_eq!(order["profile"], "shortlived");
    // The key id of the first certificate, and its serial number, 1000, in base64url.
    let replaces = order["replaces"].as_str().unwrap();
    assert!(replaces.ends_with(".A-g"), "{replaces}");
    eventually(PATIENCE, "the renewal", async || {
        let held = desk.issued.of("shop");
        held.is_some_and(|bundle| bundle.facts().serial.ends_with("3e9"))
    })
    .await;
    // A window that is over for the new certificate as well must not cause orders without end.
    look(&desk).await;
    look(&desk).await;
    assert_eq!(directory.orders().len(), 2);
}

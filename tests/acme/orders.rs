//! Orders, renewals and failures, in the task that orders, without a gateway.

use super::front;
use crate::support::{PATIENCE, Pebble, PebbleWish, eventually};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate::acme::{
    Authority, Bundle, ChallengeKind, ExternalAccount, IssuedCertificates, OrderedIdentity,
    Renewals, Storage, WallClock,
};
use tollgate::clock;
use tollgate::telemetry::metrics::Metrics;
use tollgate::tls::{AuthorityChallenges, ClientTls, PemFiles};

/// The orders of a gateway, without the gateway itself.
pub(super) struct Desk {
    storage: TempDir,
    pub(super) authority: Authority,
    wanted: watch::Sender<Arc<[OrderedIdentity]>>,
    pub(super) issued: IssuedCertificates,
    challenges: AuthorityChallenges,
    pub(super) clock: WallClock,
    task: Option<JoinHandle<()>>,
}

impl Desk {
    /// A desk that orders nothing yet.
    fn of(pebble: &Pebble) -> Self {
        Self::at(pebble.directory(), &pebble.ca())
    }

    /// A desk that orders nothing yet. Later orders go to the authority with this directory.
    pub(super) fn at(directory: String, ca: &Path) -> Self {
        let ca = fs::read(ca).unwrap();
        let files = PemFiles {
            ca: Some(&ca),
            ..PemFiles::default()
        };
        let storage = tempfile::tempdir().unwrap();
        let authority = Authority {
            name: "pebble".into(),
            directory,
            tls: ClientTls::new(files).unwrap(),
            contact: Some("ops@example.com".into()),
            storage: Storage::Folder(storage.path().to_owned()),
            challenges: vec![ChallengeKind::TlsAlpn01, ChallengeKind::Http01],
            profile: None,
            external: None,
        };
        Self {
            storage,
            authority,
            wanted: watch::Sender::new(Arc::new([])),
            issued: IssuedCertificates::default(),
            challenges: AuthorityChallenges::default(),
            clock: clock::wall,
            task: None,
        }
    }

    /// Starts the task.
    pub(super) fn open(&mut self) {
        // The log of the gateway appears only if the test fails.
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
        let renewals = Renewals::new(
            self.wanted.subscribe(),
            self.issued.clone(),
            self.challenges.clone(),
            Metrics::new(),
            self.clock,
        );
        self.task = Some(tokio::spawn(renewals.run()));
    }

    /// Ends the task as a killed process would.
    async fn close(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }

    pub(super) fn want(&self, identities: &[(&str, &[&str])]) {
        let authority = Arc::new(self.authority.clone());
        let wanted = identities.iter().map(|(name, hosts)| OrderedIdentity {
            name: (*name).into(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            authority: Arc::clone(&authority),
        });
        self.wanted.send_replace(wanted.collect());
    }

    pub(super) async fn certificate(&self, name: &str) -> Bundle {
        eventually(PATIENCE, "a certificate", async || {
            self.issued.of(name).is_some()
        })
        .await;
        self.issued.of(name).unwrap()
    }

    fn kept(&self, file: &str) -> String {
        fs::read_to_string(self.storage.path().join(file)).unwrap_or_default()
    }
}

fn files_below(folder: &Path, found: &mut Vec<(String, u32)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        found.push((path.display().to_string(), mode));
        if path.is_dir() {
            files_below(&path, found);
        }
    }
}

#[tokio::test]
async fn both_challenges_show_that_names_are_ours() {
    let pebble = Pebble::start(PebbleWish {
        asks_always: true,
        ..PebbleWish::default()
    });
    let challenges = AuthorityChallenges::default();
    front::answer(&challenges, pebble.http, pebble.tls);
    for kind in [ChallengeKind::TlsAlpn01, ChallengeKind::Http01] {
        let mut desk = Desk::of(&pebble);
        desk.challenges = challenges.clone();
        desk.authority.challenges = vec![kind];
        desk.want(&[("shop", &["shop.example.com", "www.shop.example.com"])]);
        desk.open();
        let bundle = desk.certificate("shop").await;
        let mut names = bundle.facts().names.clone();
        names.sort();
        assert_eq!(names, ["shop.example.com", "www.shop.example.com"]);
        assert_eq!(desk.kept("certificates/shop.pem"), bundle.pem());
        let mut found = Vec::new();
        files_below(desk.storage.path(), &mut found);
        for (path, mode) in found {
            let wanted = if Path::new(&path).is_dir() {
                0o700
            } else {
                0o600
            };
            assert_eq!(mode, wanted, "{path}");
        }
    }
    assert_eq!(pebble.logged("There are now 2 accounts"), 1);
}

#[tokio::test]
async fn one_account_serves_many_identities_and_survives_a_restart() {
    let pebble = Pebble::start(PebbleWish::default());
    let mut desk = Desk::of(&pebble);
    front::answer(&desk.challenges, pebble.http, pebble.tls);
    let names: Vec<String> = (0..6).map(|number| format!("shop{number}")).collect();
    let hosts: Vec<String> = names
        .iter()
        .map(|name| format!("{name}.example.com"))
        .collect();
    let hosts: Vec<[&str; 1]> = hosts.iter().map(|host| [host.as_str()]).collect();
    let all: Vec<(&str, &[&str])> = names
        .iter()
        .zip(&hosts)
        .map(|(name, hosts)| (name.as_str(), hosts.as_slice()))
        .collect();
    desk.want(&all);
    desk.open();
    for name in &names {
        desk.certificate(name).await;
    }
    let before = desk.kept("certificates/shop0.pem");
    desk.close().await;
    desk.issued = IssuedCertificates::default();
    desk.open();
    for name in &names {
        desk.certificate(name).await;
    }
    // Another list of names needs another order. Names that are no longer in the list keep their state.
    desk.want(&[("shop0", &["shop0.example.com", "new.example.com"])]);
    eventually(PATIENCE, "the new name", async || {
        let bundle = desk.issued.of("shop0").unwrap();
        bundle.covers(&["new.example.com".to_owned()])
    })
    .await;
    assert_ne!(desk.kept("certificates/shop0.pem"), before);
    assert_eq!(pebble.logged("There are now 1 accounts"), 1);
    assert_eq!(pebble.logged("There are now 2 accounts"), 0);
    assert_eq!(pebble.logged("Added order"), 7, "{}", pebble.log());
}

#[tokio::test]
async fn refused_nonces_are_asked_for_again_in_the_same_order() {
    let pebble = Pebble::start(PebbleWish {
        refused_nonces: 50,
        asks_always: true,
        ..PebbleWish::default()
    });
    let mut desk = Desk::of(&pebble);
    front::answer(&desk.challenges, pebble.http, pebble.tls);
    desk.want(&[("shop", &["shop.example.com", "www.shop.example.com"])]);
    desk.open();
    desk.certificate("shop").await;
    assert_eq!(pebble.logged("Added order"), 1, "{}", pebble.log());
}

#[tokio::test]
async fn an_external_account_is_needed_and_its_key_must_fit() {
    // The key in base64url, the form in which authorities give keys to their users.
    let text = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let key = b"\xcd\x63\x43\x64\xce\x9e\x40\x61\xd6\xa5\x24\x53\x3d\xa9\x79\x78\x85\x18\x15\x3b\xbb\x11\xa8\xd5\x22\x88\x2e\xca\xca\x99\xf7\x01\xb8\xe2\x73\x04\xb7\x1d\xcc\x50\x0b\x14\x0e\x43\x13\x43\x5d\x96";
    let pebble = Pebble::start(PebbleWish {
        external: Some(("kid-1".into(), text.into())),
        ..PebbleWish::default()
    });
    let mut desk = Desk::of(&pebble);
    front::answer(&desk.challenges, pebble.http, pebble.tls);
    let named = |id: &str| {
        Some(ExternalAccount {
            id: id.into(),
            key: key.to_vec(),
        })
    };
    desk.authority.external = named("kid-2");
    desk.want(&[("shop", &["shop.example.com"])]);
    desk.open();
    eventually(PATIENCE, "a failure", async || {
        desk.kept("attempts/shop.json").contains("\"failures\":1")
    })
    .await;
    assert!(desk.issued.of("shop").is_none());
    // A user who mends the file does not have to wait: otherwise the next order would come after a minute.
    desk.authority.external = named("kid-1");
    desk.want(&[("shop", &["shop.example.com"])]);
    desk.certificate("shop").await;
}

#[tokio::test]
async fn an_authority_that_has_lost_its_memory_gets_a_new_account() {
    let mut pebble = Pebble::start(PebbleWish::default());
    let mut desk = Desk::of(&pebble);
    front::answer(&desk.challenges, pebble.http, pebble.tls);
    desk.want(&[("a", &["a.example.com"])]);
    desk.open();
    desk.certificate("a").await;
    pebble.restart();
    desk.want(&[("a", &["a.example.com"]), ("b", &["b.example.com"])]);
    desk.certificate("b").await;
}

#[tokio::test]
async fn a_short_life_is_renewed_at_a_third_of_it_and_each_key_is_new() {
    let pebble = Pebble::start(PebbleWish {
        life: Some(12),
        ..PebbleWish::default()
    });
    let mut desk = Desk::of(&pebble);
    front::answer(&desk.challenges, pebble.http, pebble.tls);
    desk.want(&[("shop", &["shop.example.com"])]);
    desk.open();
    let mut before = desk.certificate("shop").await;
    for _ in 0..2 {
        eventually(PATIENCE, "a renewal", async || {
            desk.issued.of("shop").as_ref() != Some(&before)
        })
        .await;
        let renewed = desk.issued.of("shop").unwrap();
        let life = before.facts().not_after - before.facts().not_before;
        let left = before.facts().not_after - renewed.facts().not_before;
        assert!(
            (1..=life / 2 + 1).contains(&left),
            "{left} of {life} s were left"
        );
        let key = |bundle: &Bundle| {
            let at = bundle.pem().find("PRIVATE KEY").unwrap();
            bundle.pem()[at..].to_owned()
        };
        assert_ne!(key(&before), key(&renewed));
        before = renewed;
    }
}

#[tokio::test]
async fn names_that_are_not_ours_are_tried_again_later_and_not_at_once() {
    let pebble = Pebble::start(PebbleWish::default());
    let mut desk = Desk::of(&pebble);
    desk.want(&[("shop", &["shop.example.com"])]);
    desk.open();
    // The other kind of challenge is tried soon, and its failure counts too.
    eventually(PATIENCE, "two failures", async || {
        desk.kept("attempts/shop.json").contains("\"failures\":2")
    })
    .await;
    desk.close().await;
    // Another process reads the failures, and waits.
    desk.open();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(pebble.logged("Added order"), 2, "{}", pebble.log());
}

#[tokio::test]
async fn a_second_process_on_one_folder_takes_what_the_first_obtains() {
    let pebble = Pebble::start(PebbleWish::default());
    let mut first = Desk::of(&pebble);
    let mut second = Desk::of(&pebble);
    front::answer(&first.challenges, pebble.http, pebble.tls);
    second.authority.storage = Storage::Folder(first.storage.path().to_owned());
    first.want(&[("shop", &["shop.example.com"])]);
    first.open();
    let bundle = first.certificate("shop").await;
    second.want(&[("shop", &["shop.example.com"])]);
    second.open();
    assert_eq!(second.certificate("shop").await, bundle);
    assert_eq!(pebble.logged("Added order"), 1);
}

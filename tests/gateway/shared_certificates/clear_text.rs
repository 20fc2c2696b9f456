//! The key of a certificate in the store is never in clear text: not in Redis, and not in the output of gateways.

use super::{HOST, SECRET, Scene};
use crate::support::{Gateway, PATIENCE, Redis, eventually, tollgate};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use std::fs;
use std::sync::Arc;
use tokio::sync::watch;
use tollgate::acme::{
    Authority, Bundle, ChallengeKind, IssuedCertificates, OrderedIdentity, Renewals, SealingKey,
    SharedStorage, Storage,
};
use tollgate::clock;
use tollgate::store::redis::SharedKeys;
use tollgate::store::{RedisEndpoint, RedisTarget};
use tollgate::telemetry::metrics::Metrics;
use tollgate::tls::{AuthorityChallenges, ClientTls, PemFiles};

/// Searches every entry of Redis, and all output of the gateways, for the key.
pub(super) async fn shows_no_key(scene: &Scene, redis: &Redis, gateways: &[&Gateway]) {
    let secrets = forms_of(taken(scene, redis).await.pem());
    let mut told = dump(redis).await;
    for gateway in gateways {
        let folder = gateway.folder();
        for arguments in [
            &["check"][..],
            &["check", "--print"],
            &["check", "--format", "json"],
            &["explain", "GET", "https://shop.example.com/"],
        ] {
            let said = tollgate(folder, arguments).await;
            assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.stderr);
            told.push((
                format!("{arguments:?}"),
                [said.stdout, said.stderr].concat().into(),
            ));
        }
        for page in ["/metrics", "/readyz", "/healthz", "/v1/store"] {
            told.push((page.into(), gateway.admin_get(page).await.text().into()));
        }
        told.push(("the log".into(), gateway.said.text().into()));
        told.push(("the access log".into(), gateway.access.text().into()));
    }
    for (place, text) in &told {
        for secret in &secrets {
            let is_there = text.windows(secret.len()).any(|part| part == secret);
            assert!(
                !is_there,
                "{place} has {:?}",
                String::from_utf8_lossy(secret)
            );
        }
    }
}

/// The certificate with its key, as a gateway reads it from the store.
async fn taken(scene: &Scene, redis: &Redis) -> Bundle {
    let ca = fs::read(scene.pebble.ca()).unwrap();
    let files = PemFiles {
        ca: Some(&ca),
        ..PemFiles::default()
    };
    let authority = Authority {
        name: "test".into(),
        directory: scene.pebble.directory(),
        tls: ClientTls::new(files).unwrap(),
        contact: None,
        storage: Storage::Store(SealingKey::read(SECRET).unwrap()),
        challenges: vec![ChallengeKind::Http01],
        profile: None,
        external: None,
    };
    let identity = OrderedIdentity {
        name: "shop".into(),
        hosts: vec![HOST.into()],
        authority: Arc::new(authority),
    };
    let issued = IssuedCertificates::default();
    let target = RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", redis.port()));
    let (_wanted, orders) = watch::channel(Arc::from([identity]));
    let renewals = Renewals::new(
        orders,
        issued.clone(),
        AuthorityChallenges::default(),
        Metrics::new(),
        clock::wall,
    );
    let shared = SharedStorage::new(SharedKeys::new(&target), "edge");
    let taking = tokio::spawn(renewals.sharing(shared).run());
    eventually(PATIENCE, "the certificate is taken", async || {
        issued.of("shop").is_some()
    })
    .await;
    taking.abort();
    issued.of("shop").unwrap()
}

/// The forms in which a clear-text key, or the secret that seals it, could appear.
fn forms_of(pem: &str) -> Vec<Vec<u8>> {
    let begin = pem.find("PRIVATE KEY-----").unwrap();
    let lines = pem[begin..].lines().skip(1);
    let lines: Vec<&str> = lines
        .filter(|line| line.len() > 10 && !line.contains("--"))
        .collect();
    let der = BASE64_STANDARD.decode(lines.concat()).unwrap();
    // The private number is in the middle of the DER.
    let number = &der[36..66];
    let hex: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![
        number.to_vec(),
        hex.into_bytes(),
        BASE64_STANDARD.encode(number).into_bytes(),
        BASE64_URL_SAFE_NO_PAD.encode(number).into_bytes(),
        b"PRIVATE KEY".to_vec(),
        SECRET.into(),
    ];
    forms.extend(lines.iter().map(|line| line.as_bytes().to_vec()));
    forms
}

/// Every entry of Redis, in the form that Redis itself writes, with its name.
async fn dump(redis: &Redis) -> Vec<(String, Vec<u8>)> {
    let keys: Vec<String> = redis.command(&["KEYS", "*"]).await;
    assert!(
        keys.iter()
            .any(|key| key.starts_with("edge:acme:certificate:"))
    );
    let mut all = Vec::new();
    for key in keys {
        let (value, plain): (Option<Vec<u8>>, Option<Vec<u8>>) = (
            redis.command(&["DUMP", &key]).await,
            match redis.command::<String>(&["TYPE", &key]).await.as_str() {
                "string" => redis.command(&["GET", &key]).await,
                _ => None,
            },
        );
        for value in [value, plain].into_iter().flatten() {
            all.push((key.clone(), value));
        }
    }
    all
}

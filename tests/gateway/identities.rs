//! Identities of a running gateway: certificates that change meanwhile, checks of clients, and redirects to `https`.

use crate::support::{
    Authority, File, Gateway, PATIENCE, Pair, TlsClient, Upstream, eventually, get, request,
    tollgate,
};
use std::fs;
use std::path::Path;

/// A file with these listeners and further tables. Its one route leads to `upstream`.
fn file(listen: &str, tables: &str, upstream: &Upstream) -> String {
    let file = File::default()
        .server(&format!("listen = {listen}\n"))
        .upstream("main", &[upstream])
        .route("all", "/{*rest}", "main", &[]);
    format!("{}\n{tables}", file.text())
}

const LISTEN: &str = "{ address = \"127.0.0.1:0\", tls = true }";
const API: &str = "[tls.api]\ncert = \"api.pem\"\nkey = \"api.key\"\n";

/// A gateway whose files `write` creates.
async fn gateway(text: &str, write: impl FnOnce(&Path)) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let path = folder.path().join("gateway.toml");
    fs::write(&path, text).unwrap();
    Gateway::run(folder, &path).await
}

/// Waits until new connections get the certificate of `pair`.
async fn shows(gateway: &Gateway, client: &TlsClient, host: &str, pair: &Pair) {
    eventually(PATIENCE, "the new certificate is shown", async || {
        let wire = client.connect(gateway.address(), host).await;
        wire.is_ok_and(|wire| wire.certificate() == *pair.certificate())
    })
    .await;
}

async fn files_are_ok(gateway: &Gateway, identity: &str, ok: u8) {
    let line = format!("tollgate_tls_files_ok{{identity=\"{identity}\"}} {ok}");
    eventually(PATIENCE, &line, async || {
        gateway.metrics().await.contains(&line)
    })
    .await;
}

#[tokio::test]
async fn a_listener_shows_the_identity_for_the_name_and_serves() {
    let upstream = Upstream::echo().await;
    let authority = Authority::new();
    let (api, shop) = (
        authority.pair(&["api.test"]),
        authority.pair(&["*.shop.test"]),
    );
    let tables = format!("{API}[tls.shop]\ncert = \"shop.pem\"\nkey = \"shop.key\"\n");
    let gateway = gateway(&file(LISTEN, &tables, &upstream), |folder| {
        api.write(folder, "api");
        shop.write(folder, "shop");
    })
    .await;
    let client = authority.client(None);
    for (host, pair) in [("api.test", &api), ("a.shop.test", &shop)] {
        let mut wire = client.connect(gateway.address(), host).await.unwrap();
        assert_eq!(wire.certificate(), *pair.certificate());
        assert_eq!(wire.get(host).await.unwrap(), 200);
    }
    // Neither of the two is the default.
    assert!(
        client
            .connect(gateway.address(), "other.test")
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_pair_is_taken_when_both_halves_are_there() {
    let upstream = Upstream::echo().await;
    let authority = Authority::new();
    let (first, second) = (authority.pair(&["api.test"]), authority.pair(&["api.test"]));
    let gateway = gateway(&file(LISTEN, API, &upstream), |folder| {
        first.write(folder, "api")
    })
    .await;
    let client = authority.client(None);
    let mut kept = client.connect(gateway.address(), "api.test").await.unwrap();
    files_are_ok(&gateway, "api", 1).await;

    second.write_certificate(gateway.folder(), "api");
    files_are_ok(&gateway, "api", 0).await;
    gateway
        .said
        .line(0, "why the pair is not taken", |line| {
            line.contains("identity api: `api.key` is not the key of the certificate in `api.pem`")
        })
        .await;
    shows(&gateway, &client, "api.test", &first).await;
    // The rest of a reload succeeds, and does not report the pair a second time.
    gateway.rename_over(&file(LISTEN, &format!("{API}min = \"1.3\"\n"), &upstream));
    gateway
        .said
        .line(0, "the other change", |line| {
            line.contains("tls.api: min 1.2 to 1.3")
        })
        .await;
    let told = gateway.said.text();
    assert_eq!(
        told.matches("is not the key of the certificate").count(),
        1,
        "{told}"
    );

    let half = second.certificate_pem();
    fs::write(gateway.folder().join("api.pem"), &half[..half.len() / 2]).unwrap();
    second.write_key(gateway.folder(), "api");
    shows(&gateway, &client, "api.test", &first).await;
    second.write(gateway.folder(), "api");
    shows(&gateway, &client, "api.test", &second).await;
    files_are_ok(&gateway, "api", 1).await;
    assert_eq!(
        kept.get("api.test").await.unwrap(),
        200,
        "connections live on"
    );
}

#[tokio::test]
async fn twenty_swaps_lose_no_request_and_no_connection() {
    let upstream = Upstream::echo().await;
    let authority = Authority::new();
    let first = authority.pair(&["api.test"]);
    let gateway = gateway(&file(LISTEN, API, &upstream), |folder| {
        first.write(folder, "api")
    })
    .await;
    let client = authority.client(None);
    let mut kept = client.connect(gateway.address(), "api.test").await.unwrap();
    for _ in 0..20 {
        let next = authority.pair(&["api.test"]);
        next.write(gateway.folder(), "api");
        eventually(PATIENCE, "the next certificate", async || {
            let mut wire = client.connect(gateway.address(), "api.test").await.unwrap();
            assert_eq!(wire.get("api.test").await.unwrap(), 200);
            assert_eq!(kept.get("api.test").await.unwrap(), 200);
            wire.certificate() == *next.certificate()
        })
        .await;
    }
}

#[tokio::test]
async fn an_unchanged_identity_keeps_its_sessions() {
    let upstream = Upstream::echo().await;
    let authority = Authority::new();
    let (api, shop) = (
        authority.pair(&["api.test"]),
        authority.pair(&["shop.test"]),
    );
    let tables = format!("{API}[tls.shop]\ncert = \"shop.pem\"\nkey = \"shop.key\"\n");
    let gateway = gateway(&file(LISTEN, &tables, &upstream), |folder| {
        api.write(folder, "api");
        shop.write(folder, "shop");
    })
    .await;
    let client = authority.client(None);
    for host in ["api.test", "shop.test"] {
        let mut wire = client.connect(gateway.address(), host).await.unwrap();
        assert!(!wire.is_resumed());
        // The session tickets come with the answer.
        assert_eq!(wire.get(host).await.unwrap(), 200);
    }
    let renewed = authority.pair(&["shop.test"]);
    renewed.write(gateway.folder(), "shop");
    shows(&gateway, &authority.client(None), "shop.test", &renewed).await;
    let wire = client.connect(gateway.address(), "api.test").await.unwrap();
    assert!(wire.is_resumed());
    let wire = client
        .connect(gateway.address(), "shop.test")
        .await
        .unwrap();
    assert!(!wire.is_resumed());
}

#[tokio::test]
async fn a_check_of_clients_never_gets_weaker_by_a_broken_file() {
    let upstream = Upstream::echo().await;
    let (servers, partners) = (Authority::new(), Authority::new());
    let api = servers.pair(&["api.test"]);
    let tables = format!("{API}client = \"ca.pem\"\n");
    let gateway = gateway(&file(LISTEN, &tables, &upstream), |folder| {
        api.write(folder, "api");
        fs::write(folder.join("ca.pem"), partners.pem()).unwrap();
    })
    .await;
    let partner = partners.pair(&["partner.test"]);
    let known = servers.client(Some(&partner));
    let unknown = servers.client(None);
    let is_served = async |client: &TlsClient| {
        let Ok(mut wire) = client.connect(gateway.address(), "api.test").await else {
            return false;
        };
        // In TLS 1.3 a client gets a refusal only after its own part of the handshake.
        wire.get("api.test").await.is_ok_and(|status| status == 200)
    };
    assert!(is_served(&known).await);
    assert!(!is_served(&unknown).await);
    fs::write(gateway.folder().join("ca.pem"), "nothing").unwrap();
    files_are_ok(&gateway, "api", 0).await;
    assert!(is_served(&known).await);
    assert!(!is_served(&unknown).await);
    fs::write(gateway.folder().join("ca.pem"), Authority::new().pem()).unwrap();
    files_are_ok(&gateway, "api", 1).await;
    eventually(PATIENCE, "the other authority holds", async || {
        !is_served(&known).await
    })
    .await;
}

#[tokio::test]
async fn which_identities_a_listener_offers_needs_no_restart() {
    let upstream = Upstream::echo().await;
    let authority = Authority::new();
    let (api, shop) = (
        authority.pair(&["api.test"]),
        authority.pair(&["shop.test"]),
    );
    let tables = format!("{API}[tls.shop]\ncert = \"shop.pem\"\nkey = \"shop.key\"\n");
    let offering = |names: &str| {
        let listen = format!("{{ address = \"127.0.0.1:0\", tls = {names} }}");
        file(&listen, &tables, &upstream)
    };
    let gateway = gateway(&offering("\"api\""), |folder| {
        api.write(folder, "api");
        shop.write(folder, "shop");
    })
    .await;
    let client = authority.client(None);
    assert!(
        client
            .connect(gateway.address(), "shop.test")
            .await
            .is_err(),
        "it gets `api`"
    );
    gateway.rename_over(&offering("[\"api\", \"shop\"]"));
    shows(&gateway, &client, "shop.test", &shop).await;
    // A handshake may come between the change and the log line about it.
    gateway
        .said
        .line(0, "the new identities", |line| {
            line.contains("listener 127.0.0.1:0: identities api to api+shop")
        })
        .await;
    gateway.rename_over(&file("\"127.0.0.1:0\"", "", &upstream));
    gateway
        .said
        .line(0, "a restart is asked for", |line| {
            line.contains("server.listen: changed, needs a restart; still 127.0.0.1:0 with TLS")
        })
        .await;
}

#[tokio::test]
async fn an_expired_certificate_is_served_and_reported() {
    let upstream = Upstream::echo().await;
    let tables = "[tls.old]\ncert = \"old.pem\"\nkey = \"old.key\"\n";
    let gateway = gateway(&file(LISTEN, tables, &upstream), |folder| {
        for name in ["old.pem", "old.key"] {
            fs::copy(format!("tests/config/tls/{name}"), folder.join(name)).unwrap();
        }
    })
    .await;
    gateway
        .said
        .line(0, "the end of the certificate", |line| {
            line.contains("ERROR") && line.contains("identity old has ended at 2021-01-01")
        })
        .await;
}

#[tokio::test]
async fn a_broken_pair_at_the_start_is_an_error() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    authority.pair(&["api.test"]).write(folder.path(), "api");
    authority
        .pair(&["api.test"])
        .write_key(folder.path(), "api");
    let path = folder.path().join("gateway.toml");
    fs::write(&path, file(LISTEN, API, &upstream)).unwrap();
    let ended = tollgate(folder.path(), &["run"]).await;
    assert_eq!(ended.code, Some(1));
    let told = ended.stderr;
    assert!(told.contains("error[certificate-key-mismatch]"), "{told}");
}

#[tokio::test]
async fn a_listener_sends_its_requests_on_to_https() {
    let upstream = Upstream::echo().await;
    let listen = "{ address = \"127.0.0.1:0\", redirect = \"https\" }";
    let limits = "[limits.none]\nby = \"ip\"\nrate = \"1/d\"\n[defaults]\nlimits = \"none\"\n";
    let gateway = gateway(&file(listen, limits, &upstream), |_| {}).await;
    for _ in 0..3 {
        let asked = request("POST", "/a/../b%20c?d=e", &[("Host", "Api.test:8080")]);
        let answer = gateway.connect().await.ask(asked).await.expect(308);
        assert_eq!(answer.field("location"), "https://Api.test/a/../b%20c?d=e");
        assert_eq!(gateway.line_of(&answer).await["reason"], "to_https");
    }
    let answer = gateway.connect().await.ask(get("/")).await;
    assert_eq!(answer.status, 308);
    assert_eq!(upstream.seen(), 0);
}

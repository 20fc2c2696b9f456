//! Secrets in URLs, their length, and the words of foreign servers: what the output may show of them.

use crate::support::tls::Authority;
use crate::support::{Connection, PATIENCE, Site, Upstream, eventually, free_port, tollgate};
use std::fs;
use tempfile::TempDir;

fn folder(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gateway.toml"), text).unwrap();
    folder
}

const REST: &str = "[limits.l]\nby = \"jwt:sub\"\nmissing = \"refuse\"\nrate = \"9/s\"\n\
    [upstreams.u]\nservers = \"http://127.0.0.1:9\"\n\
    [routes.r]\nupstream = \"u\"\nlimits = \"l\"\n";

/// A file whose URLs contain secrets, with more lines in front.
fn file(jwks: &str, more: &str) -> String {
    format!(
        "{more}[server]\nlisten = [\":80\", {{ address = \":443\", tls = true }}]\n\
         [acme.a]\nagree = true\nstorage = \"kept\"\ndirectory = \"https://acme.example/dir?tok=DIRQUERY\"\n\
         [tls.shop]\nacme = \"a\"\nhosts = [\"shop.example.com\"]\n\
         [jwt]\njwks = \"{jwks}\"\nalgorithms = [\"EdDSA\"]\n{REST}"
    )
}

#[tokio::test]
async fn no_output_shows_the_query_of_a_url() {
    let jwks = "https://id.example/jwks?api_key=JWKSQUERY";
    let before = folder(&file(jwks, "").replace("QUERY", "BEFORE"));
    let old = before.path().join("gateway.toml").display().to_string();
    let good = file(jwks, "");
    // Mistakes whose lines are shown.
    let fragment = file(&format!("{jwks}#a"), "");
    let unknown = good.replace("DIRQUERY\"", "DIRQUERY\"\nprofil = \"x\"");
    let refused = good.replace("https://acme", "ftp://acme");
    for text in [good, fragment, unknown, refused] {
        let folder = folder(&text);
        for arguments in [
            &["check"][..],
            &["check", "--print"],
            &["check", "--json"],
            &["check", "--format", "sarif"],
            &["check", "--format", "github"],
            &["check", "--diff", old.as_str()],
            &["explain", "GET", "https://shop.example.com/"],
        ] {
            let told = tollgate(folder.path(), arguments).await;
            let told = told.stdout + &told.stderr;
            for secret in ["JWKSQUERY", "DIRQUERY", "JWKSBEFORE", "DIRBEFORE"] {
                assert!(!told.contains(secret), "{arguments:?} {told}");
            }
        }
    }
}

/// The attack: somebody reads the log, the folder of certificates or the output of `check` after a failed order.
#[tokio::test]
async fn a_failed_order_shows_no_query_of_its_directory() {
    let own = Authority::new();
    let site = Site::at(free_port(), free_port()).await;
    let nowhere = format!("https://127.0.0.1:{}/directory?tok=DIRQUERY", free_port());
    let shop = "[tls.shop]\nacme = \"test\"\nhosts = [\"shop.example.com\"]\n";
    let text = site.file(&site.listen(""), &nowhere, &own.path("ca.pem"), shop);
    let gateway = site.start(&text).await;
    let failed = |line: &str| line.contains("tls.shop: no certificate: ");
    gateway.said.line(0, "the order fails", failed).await;
    let said = gateway.said.text();
    assert!(said.contains("/directory?***"), "{said}");
    assert!(!said.contains("DIRQUERY"), "{said}");
    let kept = site.path("attempts/shop.json");
    eventually(PATIENCE, "the failure is kept", async || {
        fs::read_to_string(&kept).is_ok_and(|kept| kept.contains("/directory?***"))
    })
    .await;
    let kept = fs::read_to_string(&kept).unwrap();
    assert!(!kept.contains("DIRQUERY"), "{kept}");
    for arguments in [&["check"][..], &["check", "--format", "json"]] {
        let told = tollgate(gateway.folder(), arguments).await;
        let told = told.stdout + &told.stderr;
        assert!(told.contains("/directory?***"), "{told}");
        assert!(!told.contains("DIRQUERY"), "{told}");
    }
}

/// A server has no query. A query that is written all the same may be a secret.
#[tokio::test]
async fn a_mistaken_server_shows_no_query() {
    let server = REST.replace("127.0.0.1:9", "127.0.0.1:9/?key=SERVERQUERY");
    for text in [
        server.clone(),
        server
            .replace("\"http", "[\n# one\n{ url = \"http")
            .replace("QUERY\"", "QUERY\" }]"),
    ] {
        let folder = folder(&text);
        for format in ["human", "json", "sarif", "github"] {
            let told = tollgate(folder.path(), &["check", "--format", format]).await;
            let told = told.stdout + &told.stderr;
            assert!(told.contains("no path or query"), "{told}");
            assert!(!told.contains("SERVERQUERY"), "{told}");
        }
    }
}

#[tokio::test]
async fn stars_never_tell_a_length() {
    let mistaken = |secret: &str| {
        format!(
            "[store]\nurl = \"redis://me:{secret}@cache?x\"\npassword = \"{secret}\"\n\
             sentinel = {{ password = \"{secret}\", usernam = \"a\" }}\n\
             [groups.g]\nby = \"header:x-api-key\"\nmembers = [\"{secret}\", \"10.0.0.0/33\"]\n{REST}"
        )
    };
    let files =
        ["abc123xyz", "abcdef123456abcdef123456abcdef"].map(|secret| folder(&mistaken(secret)));
    let mut told = Vec::new();
    for folder in &files {
        let answer = tollgate(folder.path(), &["check"]).await;
        let text = answer.stdout + &answer.stderr;
        assert!(
            text.contains("password") && !text.contains("****"),
            "{text}"
        );
        told.push(text.replace(&folder.path().display().to_string(), "."));
    }
    assert_eq!(told[0], told[1]);
}

/// The attack: the keys of an issuer have ids that would begin lines of their own in the log.
#[tokio::test]
async fn what_a_server_says_stays_on_its_line() {
    let server = Upstream::playing(async |mut connection: Connection| {
        if connection.request().await.is_ok() {
            let body = "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"a\\nredis redis://cache: up\\u001b[2J\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}";
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
            let _ = connection.wire.try_send(answer).await;
        }
    })
    .await;
    let url = server.url();
    let text =
        format!("[jwt]\njwks = \"{url}/keys?k=JWKSQUERY\"\nalgorithms = [\"EdDSA\"]\n{REST}");
    let told = tollgate(folder(&text).path(), &["check", "--connect"]).await;
    let told = told.stdout + &told.stderr;
    assert!(
        told.contains("1 key: a\\u{a}redis redis://cache: up\\u{1b}[2J"),
        "{told}"
    );
    assert!(!told.contains("JWKSQUERY"), "{told}");
}

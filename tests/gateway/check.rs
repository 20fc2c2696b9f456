//! `tollgate check` with its options: the compiled file, the changes of a reload, and the servers that can be reached.

use crate::support::{
    File, Finished, Gateway, Manner, ModernServer, Redis, Upstream, free_port, tollgate,
};
use std::path::Path;

/// Runs `tollgate check` in `folder`.
async fn check(folder: &Path, arguments: &[&str]) -> Finished {
    let mut all = vec!["check"];
    all.extend(arguments);
    tollgate(folder, &all).await
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

const MAIN: &str = "include = [{ files = \"routes.d/*.toml\", upstreams = [\"api\"] }]\n[store]\npassword = { file = \"secret\" }\nurl = \"redis://cache\"\n\
    [limits.per-client]\nby = \"ip\"\nrate = \"10/s\"\n[upstreams.api]\nservers = \"127.0.0.1:3000\"\n";
const ORDERS: &str =
    "[routes.orders]\npath = \"/orders\"\nupstream = \"api\"\nlimits = \"per-client\"\n";

#[tokio::test]
async fn what_is_printed_is_itself_good() {
    let folder = folder(&[
        ("gateway.toml", MAIN),
        ("routes.d/orders.toml", ORDERS),
        ("secret", "correct horse"),
    ]);
    let printed = check(folder.path(), &["--print"]).await;
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    assert!(
        printed.stdout.contains("password = \"***\""),
        "{}",
        printed.stdout
    );
    assert!(!printed.stdout.contains("correct horse"));
    assert!(printed.stdout.contains("burst = 10 # default"));
    std::fs::write(folder.path().join("printed.toml"), &printed.stdout).unwrap();
    let again = check(folder.path(), &["printed.toml"]).await;
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
    let nothing = check(folder.path(), &["--diff", "gateway.toml", "printed.toml"]).await;
    assert_eq!(
        (nothing.code, nothing.stdout.lines().count()),
        (Some(0), 2),
        "{}",
        nothing.stdout
    );
    assert!(nothing.stdout.contains("store.password: changed"));
}

#[tokio::test]
async fn a_difference_is_told_in_the_words_of_a_reload() {
    let folder = folder(&[
        ("gateway.toml", MAIN),
        ("routes.d/orders.toml", ORDERS),
        ("secret", "x"),
        (
            "new/gateway.toml",
            &MAIN.replace("10/s", "20/s").replace("secret", "../secret"),
        ),
        (
            "new/routes.d/orders.toml",
            &ORDERS.replace("/orders", "/orders/{*rest}"),
        ),
        ("bad.toml", "[limits.l]\nby = \"ip\"\n"),
    ]);
    let told = check(
        folder.path(),
        &["--diff", "gateway.toml", "new/gateway.toml"],
    )
    .await;
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert_eq!(
        told.stdout,
        "a reload from gateway.toml to new/gateway.toml would make 2 changes\n  \
         limits.per-client: rate 10/s to 20/s, burst 10 to 20, units used stay used\n  \
         routes.orders: path /orders to /orders/{*rest}\n"
    );
    let json = check(
        folder.path(),
        &["--json", "--diff", "gateway.toml", "new/gateway.toml"],
    )
    .await;
    let first: serde_json::Value =
        serde_json::from_str(json.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(first["subject"], "limits.per-client");
    let same = check(folder.path(), &["--diff", "gateway.toml"]).await;
    assert!(
        same.stdout.contains("would change nothing"),
        "{}",
        same.stdout
    );
    let bad = check(folder.path(), &["--diff", "bad.toml"]).await;
    assert!(
        bad.code == Some(1) && bad.stderr.contains("bad.toml:1:"),
        "{}",
        bad.stderr
    );
}

#[tokio::test]
async fn mistakes_in_included_files_are_shown_there_in_every_form() {
    let folder = folder(&[
        ("gateway.toml", MAIN),
        (
            "routes.d/orders.toml",
            "\n[routes.orders]\nupstream = \"apo\"\nlimits = \"per-client\"\n",
        ),
        ("secret", "x"),
    ]);
    for (format, expected) in [
        ("human", " --> routes.d/orders.toml:3:12"),
        ("json", "\"file\":\"routes.d/orders.toml\""),
        ("github", "file=routes.d/orders.toml,line=3"),
        ("sarif", "\"uri\": \"routes.d/orders.toml\""),
    ] {
        let told = check(folder.path(), &["--format", format]).await;
        let all = format!("{}{}", told.stdout, told.stderr);
        assert!(
            told.code == Some(1) && all.contains(expected),
            "{format}: {all}"
        );
    }
}

#[tokio::test]
async fn whoever_cannot_be_reached_is_named() {
    let (redis, upstream) = (Redis::start().await, Upstream::echo().await);
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let file = format!(
        "[store]\nurl = \"{}\"\n[upstreams.api]\nservers = [\"{}\"]\n[upstreams.gone]\nservers = \"{nobody}\"\n\
         [routes.api]\nupstream = \"api\"\n[routes.gone]\npath = \"/gone\"\nupstream = \"gone\"\n",
        redis.url(),
        upstream.url(),
    );
    let folder = folder(&[("gateway.toml", &file)]);
    let told = check(folder.path(), &["--connect"]).await;
    assert_eq!(told.code, Some(3), "{}{}", told.stdout, told.stderr);
    let line = |start: &str| {
        let mut lines = told.stdout.lines().map(str::trim);
        lines
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("{}", told.stdout))
    };
    assert!(line("redis ").contains("accepts the scripts"));
    assert!(line("upstream  api").contains("connected in"));
    assert!(line("upstream  gone").contains("NOT REACHABLE"));
    let good = file.replace(&nobody, &upstream.url());
    std::fs::write(folder.path().join("gateway.toml"), good).unwrap();
    assert_eq!(check(folder.path(), &["--connect"]).await.code, Some(0));
    let away = format!("redis://127.0.0.1:{}", free_port());
    let text = format!(
        "[store]\nurl = \"{away}\"\n[upstreams.api]\nservers = \"demo:\"\n[routes.api]\nupstream = \"api\"\n"
    );
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
    let told = check(folder.path(), &["--connect", "--json"]).await;
    assert_eq!(told.code, Some(3));
    assert!(
        told.stdout.contains("\"asked\":\"redis\"") && told.stdout.contains("\"reachable\":false")
    );
}

/// The address at which other machines reach this one: the source address of connections to them.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

#[tokio::test]
async fn a_redis_that_is_open_to_other_machines_is_a_warning_and_one_that_protects_itself_says_so()
{
    let Some(own) = own_address() else { return };
    for (protected, code, expected) in [
        ("no", 1, "warning[open-store]"),
        ("yes", 3, "it runs in protected mode"),
    ] {
        let redis = Redis::start_with(&["--bind", "0.0.0.0", "--protected-mode", protected]).await;
        let file = format!(
            "[store]\nurl = \"redis://{own}:{}\"\ntimeout = \"2s\"\n[upstreams.api]\nservers = \"demo:\"\n\
             [routes.api]\nupstream = \"api\"\n",
            redis.port()
        );
        let folder = folder(&[("gateway.toml", &file)]);
        let told = check(folder.path(), &["--connect", "--deny-warnings"]).await;
        let all = format!("{}{}", told.stdout, told.stderr);
        assert!(
            told.code == Some(code) && all.contains(expected),
            "{:?} {all}",
            told.code
        );
    }
}

/// A Redis that evicts keys causes a warning of `check`, and a line of the log at the start.
#[tokio::test]
async fn a_redis_that_forgets_counters_is_told() {
    for (policy, forgets) in [
        ("allkeys-lru", true),
        ("volatile-ttl", true),
        ("noeviction", false),
    ] {
        let words = ["--maxmemory", "64mb", "--maxmemory-policy", policy];
        let redis = Redis::start_with(&words).await;
        let upstream = Upstream::echo().await;
        let file = File::to(&upstream, &["ip"])
            .limit("ip", "by = \"ip\"\nrate = \"5/h\"")
            .redis(&redis, "timeout = \"2s\"");
        let folder = folder(&[("gateway.toml", &file.text())]);
        let told = check(folder.path(), &["--connect", "--deny-warnings"]).await;
        let all = format!("{}{}", told.stdout, told.stderr);
        assert_eq!(told.code, Some(i32::from(forgets)), "{policy} {all}");
        assert_eq!(all.contains("warning[evicting-store]"), forgets, "{all}");
        let gateway = Gateway::start(&file).await;
        let says = |line: &str| line.contains("forgets counters") && line.contains(policy);
        if forgets {
            gateway.said.line(0, "the warning", says).await;
        } else {
            gateway.get("/").await.expect(200);
            assert!(!gateway.said.lines().iter().any(|line| says(line)));
        }
    }
}

#[tokio::test]
async fn connect_probes_servers_and_tells_their_state_in_the_running_gateway() {
    let (good, bad) = (Upstream::echo().await, Upstream::answering(BAD).await);
    let admin = free_port();
    let file = File::default()
        .admin(&format!("listen = \"127.0.0.1:{admin}\""))
        .with(&format!(
            "[upstreams.main]\nservers = [\"{}\", \"{}\", {{ url = \"http://127.0.0.1:{}\", weight = 0 }}]\n\
             health = {{ path = \"/healthz\", timeout = \"2s\" }}",
            good.url(),
            bad.url(),
            free_port()
        ))
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    gateway
        .said
        .line(0, "the bad one leaves", |line| {
            line.contains("gets no requests: its probes failed")
        })
        .await;
    let told = check(gateway.folder(), &["--connect"]).await;
    assert_eq!(told.code, Some(3), "{}", told.stdout);
    let line = |told: &Finished, url: &str| {
        let mut lines = told.stdout.lines();
        let line = lines.find(|line| line.contains(url) && line.contains("upstream  main"));
        line.unwrap_or_else(|| panic!("{}", told.stdout)).to_owned()
    };
    let up = line(&told, &good.url());
    assert!(
        up.contains("; its probe is good; up in the running gateway"),
        "{up}"
    );
    let down = line(&told, &bad.url());
    for words in [
        "DOES NOT SERVE: connected in",
        "; its probe fails: status 500",
        "; down in the running gateway, which gives it no requests: it has failed its probes",
    ] {
        assert!(down.contains(words), "{words}: {down}");
    }
    let json = check(gateway.folder(), &["--connect", "--json"]).await;
    let json: Vec<serde_json::Value> = json
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |url: String| json.iter().find(|line| line["place"] == url).unwrap();
    assert_eq!(of(good.url())["probe"], "good");
    assert_eq!(of(good.url())["state"], "up");
    assert_eq!(of(bad.url())["probe"], "status 500");
    assert_eq!(of(bad.url())["state"], "down");
    assert!(
        json.iter().any(|line| line["state"] == "draining"),
        "{json:?}"
    );
    // Without a gateway there is no state.
    let folder = folder(&[(
        "gateway.toml",
        &std::fs::read_to_string(gateway.file()).unwrap(),
    )]);
    drop(gateway);
    let told = check(folder.path(), &["--connect"]).await;
    assert!(!told.stdout.contains("running gateway"), "{}", told.stdout);
}

const BAD: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

/// A TLS server that ends a connection without a word if it does not begin with TLS, as many servers do.
#[tokio::test]
async fn connect_recognises_a_silent_server_of_tls() {
    let server = Upstream::playing(async |mut connection: crate::support::Connection| {
        let Ok(first) = connection.wire.exactly(5).await else {
            return;
        };
        if first[0] == 0x16 {
            // The server answers a hello with an alert: there is no common version.
            connection.wire.send([0x15, 3, 3, 0, 2, 2, 70]).await;
        }
    })
    .await;
    for scheme in ["http", "h2c"] {
        let text = format!(
            "[upstreams.main]\nservers = \"{scheme}://127.0.0.1:{}\"\n[routes.all]\nupstream = \"main\"\n",
            server.port()
        );
        let folder = folder(&[("gateway.toml", &text)]);
        let told = check(folder.path(), &["--connect"]).await;
        let words = "the server speaks TLS on this port, write `https://`";
        assert!(told.stdout.contains(words), "{}", told.stdout);
        assert_eq!(told.code, Some(3));
    }
}

#[tokio::test]
async fn connect_shakes_hands_and_names_the_protocol() {
    let ca = crate::support::tls::Authority::new();
    let (encrypted, bare, old) = (
        ModernServer::start(Manner {
            pair: Some(ca.server(&["127.0.0.1"])),
            alpn: vec!["h2", "http/1.1"],
            ..Manner::default()
        })
        .await,
        ModernServer::start(Manner::default()).await,
        Upstream::echo().await,
    );
    let text = format!(
        "[upstreams.good]\nservers = [\"https://{0}\", \"h2c://{1}\", \"{2}\"]\ntls = {{ ca = {3:?} }}\n\
         [upstreams.bad]\nservers = [\"http://{0}\", \"http://{1}\", \"h2c://127.0.0.1:{4}\"]\n\
         [upstreams.named]\nservers = \"http://localhost:{4}\"\n\
         [routes.good]\npath = \"/good\"\nupstream = \"good\"\n[routes.bad]\npath = \"/bad\"\nupstream = \"bad\"\n\
         [routes.named]\npath = \"/named\"\nupstream = \"named\"\n",
        encrypted.address,
        bare.address,
        old.url(),
        ca.path("ca.pem"),
        old.port(),
    );
    let folder = folder(&[("gateway.toml", &text)]);
    let told = check(folder.path(), &["--connect"]).await.stdout;
    for words in [
        "TLS 1.3, HTTP/2; its certificate ends ",
        "ms, HTTP/2\n",
        "ms, HTTP/1.1\n",
        "the server speaks TLS on this port, write `https://`",
        "the server speaks HTTP/2, write `h2c://`",
        "the server speaks HTTP/1.1, write `http://`",
        "(127.0.0.1)  connected in",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[tokio::test]
async fn the_kind_of_challenge_whose_port_has_a_listener_is_preferred() {
    let rest = "[tls.shop]\nacme = \"public\"\nhosts = \"shop.example.com\"\n[acme.public]\nagree = true\nstorage = \"acme\"\n\
        [upstreams.api]\nservers = \"127.0.0.1:3000\"\n[routes.all]\nupstream = \"api\"\n";
    for (plain, tls, more, looks) in [
        (80, 443, "", "tls-alpn-01, then http-01"),
        (8080, 443, "", "tls-alpn-01, then http-01"),
        (80, 8443, "", "http-01, then tls-alpn-01"),
        (8080, 8443, "", "tls-alpn-01, then http-01"),
        (
            80,
            8443,
            "challenge = [\"tls-alpn-01\", \"http-01\"]\n",
            "tls-alpn-01, then http-01",
        ),
    ] {
        let more = rest.replace("agree = true\n", &format!("agree = true\n{more}"));
        let text = format!(
            "[server]\nlisten = [\":{plain}\", {{ address = \":{tls}\", tls = true }}]\n{more}"
        );
        let folder = folder(&[("gateway.toml", &text)]);
        let told = check(folder.path(), &[]).await;
        let line = format!("; verifies hosts by {looks}; ");
        assert!(
            told.stdout.contains(&line),
            "{}{}",
            told.stdout,
            told.stderr
        );
    }
}

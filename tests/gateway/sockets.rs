//! Listeners on Unix sockets and on sockets that systemd opens: rights, old files and files in use, the client behind
//! such a socket, and names that were not handed over.

use crate::support::{
    Answer, End, File, Gateway, PATIENCE, Upstream, Wire, eventually, free_port, get, request,
    tollgate,
};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

/// A connection to a Unix socket.
async fn wire(path: &Path) -> Wire {
    let stream = tokio::net::UnixStream::connect(path).await.unwrap();
    Wire::over_unix(stream)
}

async fn ask(path: &Path, request: impl AsRef<[u8]>) -> Answer {
    wire(path).await.ask(request).await
}

fn mode(path: &Path) -> u32 {
    let found = std::fs::metadata(path).unwrap();
    assert!(found.file_type().is_socket());
    found.permissions().mode() & 0o777
}

/// The lines of `[server]` with these listeners and one of TCP, whose address the test reads.
fn listening(others: &str) -> String {
    format!("listen = [\"127.0.0.1:0\", {others}]")
}

#[tokio::test]
async fn a_unix_socket_serves_with_its_rights_and_its_file_goes_with_the_gateway() {
    let upstream = Upstream::echo().await;
    let lines = listening("\"unix:http.sock\", { address = \"unix:own.sock\", mode = \"0600\" }");
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server(&lines)).await;
    // Relative paths start at the file's folder.
    let (http, own) = (
        gateway.folder().join("http.sock"),
        gateway.folder().join("own.sock"),
    );
    assert_eq!((mode(&http), mode(&own)), (0o660, 0o600));
    for path in [&http, &own] {
        let mut wire = wire(path).await;
        for _ in 0..2 {
            wire.ask(get("/")).await.expect(200);
        }
    }
    gateway.stop().await;
    assert!(!http.exists() && !own.exists());
}

/// All IPv4 addresses and all IPv6 addresses are two listeners, in whatever order they are written.
#[tokio::test]
async fn both_families_listen_on_one_port() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("this machine has no IPv6");
        return;
    }
    let upstream = Upstream::echo().await;
    for order in [[":", "[::]:"], ["[::]:", ":"]] {
        let port = free_port();
        let [first, second] = order.map(|address| format!("{address}{port}"));
        let lines = format!("listen = [{first:?}, {second:?}]");
        let _gateway = Gateway::start(&File::to(&upstream, &[]).server(&lines)).await;
        for address in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
            let mut wire = Wire::to(address.parse().unwrap()).await;
            wire.ask(get("/")).await.expect(200);
        }
    }
}

#[tokio::test]
async fn the_peer_of_a_unix_socket_is_believed_and_is_a_client_of_its_own() {
    let upstream = Upstream::echo().await;
    let limit = "[limits.own]\nby = \"ip\"\nrate = \"2/h\"\nburst = 2\n";
    let lines = listening("\"unix:http.sock\"") + "\nmax_connections_per_client = 1";
    let file = File::to(&upstream, &["own"]).server(&lines).with(limit);
    let gateway = Gateway::start(&file).await;
    let path = gateway.folder().join("http.sock");
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut wire = wire(&path).await;
        let answer = wire.ask(get("/")).await.expect(200);
        let fields = answer.echoed().fields;
        assert_eq!(
            fields.get("forwarded"),
            Some("for=_unix;host=gateway.test;proto=http")
        );
        assert!(!fields.has("x-forwarded-for") && !fields.has("x-real-ip"));
        let line = gateway.line_of(&answer).await;
        assert_eq!(
            (&line["client"], &line["peer"]),
            (&"unix".into(), &"unix".into())
        );
        assert_eq!(line["keys"]["own"], "unix");
        open.push(wire);
    }
    ask(&path, get("/")).await.expect(429);
    // No bound for one client applies, and a proxy on this machine names its clients.
    let named = request("GET", "/", &[("X-Forwarded-For", "6.6.6.6, 203.0.113.9")]);
    let answer = ask(&path, named).await.expect(200);
    let fields = answer.echoed().fields;
    assert_eq!(fields.get("x-forwarded-for"), Some("6.6.6.6, 203.0.113.9"));
    assert_eq!(fields.get("x-real-ip"), Some("203.0.113.9"));
    assert_eq!(gateway.line_of(&answer).await["client"], "203.0.113.9");
    for wire in &mut open {
        assert_eq!(wire.ended(std::time::Duration::ZERO).await, End::Open);
    }
}

#[tokio::test]
async fn every_peer_of_a_unix_socket_may_have_to_send_a_header() {
    let upstream = Upstream::echo().await;
    let lines = listening("{ address = \"unix:http.sock\", proxy_protocol = true }");
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(&lines)).await;
    let path = gateway.folder().join("http.sock");
    let mut named = wire(&path).await;
    named
        .send("PROXY TCP4 203.0.113.9 192.0.2.80 51000 443\r\n")
        .await;
    let answer = named.ask(get("/")).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["client"], "203.0.113.9");
    let mut unnamed = wire(&path).await;
    unnamed.send("PROXY UNKNOWN\r\n").await;
    let answer = unnamed.ask(get("/")).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["client"], "unix");
    let mut bare = wire(&path).await;
    bare.send(get("/")).await;
    assert_ne!(bare.ended(PATIENCE).await, End::Open);
}

#[tokio::test]
async fn a_file_that_is_left_is_replaced_and_one_in_use_or_of_another_kind_is_not() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server(&listening("\"unix:http.sock\""));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
    let kept = folder.path().join("gateway.toml");
    let gateway = Gateway::run(folder, &kept).await;
    ask(&path, get("/")).await.expect(200);
    // Another gateway with the same file ends, and leaves the socket alone.
    let kept = kept.to_str().unwrap();
    let second = tollgate(gateway.folder(), &["run", "--config", kept]).await;
    assert_eq!(second.code, Some(1));
    assert!(
        second.stderr.contains("another process listens there"),
        "{}",
        second.stderr
    );
    ask(&path, get("/")).await.expect(200);
    // A gateway whose socket file was removed does not touch the new file in its place.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "text").unwrap();
    let second = tollgate(gateway.folder(), &["run", "--config", kept]).await;
    assert!(second.stderr.contains("is no socket"), "{}", second.stderr);
    let mut gateway = gateway;
    gateway.stop().await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
}

#[tokio::test]
async fn the_admin_listener_may_be_a_unix_socket_that_the_command_line_finds() {
    let upstream = Upstream::echo().await;
    let limit = "[limits.own]\nby = \"ip\"\nrate = \"2/h\"\nburst = 2\n";
    let file = File::to(&upstream, &["own"]).admin("listen = \"unix:admin.sock\"\nmode = \"0600\"");
    let gateway = Gateway::start(&file.with(limit)).await;
    let path = gateway.folder().join("admin.sock");
    assert_eq!(mode(&path), 0o600);
    ask(&path, get("/metrics")).await.expect(200);
    let explained = tollgate(gateway.folder(), &["explain", "GET", "/", "--live"]).await;
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    assert!(explained.stdout.contains("2 of 2"), "{}", explained.stdout);
    let other = format!("--live=unix:{}", path.display());
    let explained = tollgate(gateway.folder(), &["explain", "GET", "/", &other]).await;
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
}

#[tokio::test]
async fn sockets_of_systemd_are_taken_by_their_names() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[])
        .server("listen = [\"systemd:web\", \"systemd:local\"]")
        .admin("listen = \"systemd:admin\"");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("local.sock");
    let tcp = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (web, other, admin) = (tcp(), tcp(), tcp());
    let addresses = [&web, &other].map(|socket| socket.local_addr().unwrap());
    let admin_address = admin.local_addr().unwrap();
    let local = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // Two sockets have one name, like two `ListenStream=` lines of one unit.
    let sockets = vec![
        ("web", web.into()),
        ("web", other.into()),
        ("local", local.into()),
        ("admin", admin.into()),
    ];
    let mut gateway = Gateway::with_sockets(folder, &file, sockets).await;
    for address in addresses {
        Wire::to(address).await.ask(get("/")).await.expect(200);
    }
    let answer = ask(&path, get("/")).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["client"], "unix");
    Wire::to(admin_address)
        .await
        .ask(get("/readyz"))
        .await
        .expect(200);
    gateway.signal("TERM");
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
    assert!(path.exists(), "systemd's file stays");
}

#[tokio::test]
async fn a_name_that_was_not_handed_over_is_a_clear_error_and_one_too_many_a_warning() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("listen = \"systemd:https\"");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
    let alone = tollgate(folder.path(), &["run"]).await;
    assert_eq!(alone.code, Some(1));
    let said = "cannot listen on systemd:https: systemd has handed over no socket to this process";
    assert!(alone.stderr.contains(said), "{}", alone.stderr);
    let tcp = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sockets = vec![("http", tcp().into()), ("https", tcp().into())];
    let gateway = Gateway::with_sockets(folder, &file, sockets).await;
    eventually(PATIENCE, "the warning", async || {
        gateway
            .said
            .text()
            .contains("a socket called `http` was handed over")
    })
    .await;
}

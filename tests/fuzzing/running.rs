//! Any bytes on the sockets of a running gateway: each connection ends, other clients are served all the while, nothing
//! panics, and memory does not grow with the bytes.

use super::{PROXY_HEADERS, ROUNDS, drive, drive_for};
use crate::support::h2_frames::{
    CONTINUATION, DATA, HEAD, HEADERS, PING, RST_STREAM, SETTINGS, frame,
};
use crate::support::process::resident;
use crate::support::{End, File, Gateway, PATIENCE, Upstream, Wire, eventually, get, request, tls};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use serde_json::json;
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SECRET: &[u8] = b"only for tests: 32 bytes or more of it";
/// The most by which the gateway's memory may grow after the first of this many connections, in bytes. The allocator
/// keeps free memory for each worker, and the counters of a thousand clients stay for their time.
const GROWTH: u64 = 48 << 20;
const WARM: u64 = 100;

const HEADS: [&[u8]; 7] = [
    b"GET /a?b=c HTTP/1.1\r\nHost: api.example.com\r\nCookie: a=b; c=d\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n",
    b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
    b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
    b"GET http://u:p@h:1/%2e%2e/a;b?c HTTP/1.1\r\nHost: other\r\nConnection: x-a, close\r\nx-a: 1\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nOrigin: https://b\r\nAccess-Control-Request-Method: PUT\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n",
];

/// A gateway under attack, and the runtime that attacks.
struct Attacked {
    runtime: Runtime,
    gateway: Gateway,
    /// The address of the attacked listener.
    address: SocketAddr,
    upstream: Upstream,
    connections: Cell<u64>,
    /// The gateway's memory after the first connections, in bytes.
    resident: Cell<u64>,
}

impl Attacked {
    fn with(file: impl FnOnce(&Upstream) -> File, is_over_tls: bool) -> Self {
        let runtime = Runtime::new().unwrap();
        let (upstream, gateway, address) = runtime.block_on(async {
            let upstream = Upstream::echo().await;
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("gateway.toml");
            // Without this setting, a log line for each request would fill the memory of the test.
            let text = file(&upstream).text();
            let quiet = text.replace("access = \"json\"", "access = \"off\"");
            std::fs::write(&path, quiet).unwrap();
            let gateway = Gateway::run(folder, &path).await;
            let address = match is_over_tls {
                true => gateway.tls().await,
                false => gateway.address(),
            };
            (upstream, gateway, address)
        });
        Self {
            runtime,
            gateway,
            address,
            upstream,
            connections: Cell::default(),
            resident: Cell::default(),
        }
    }

    /// Sends these bytes on a connection of their own and ends the sending side. The gateway must end the connection
    /// too, whatever the bytes are.
    fn send(&self, bytes: &[u8]) {
        self.runtime.block_on(async {
            let mut wire = Wire::to(self.address).await;
            let _ = wire.try_send(bytes).await;
            assert_ne!(wire.leave().await, End::Open, "a hang");
        });
        self.connections.set(self.connections.get() + 1);
        if self.connections.get() == WARM {
            self.resident.set(resident(self.gateway.pid()));
        }
        if self.connections.get().is_multiple_of(50) {
            self.is_well();
        }
    }

    /// Makes the gateway read these bytes as its file, and waits until it has read them. The gateway does not read the
    /// same bytes twice in a row.
    fn read(&self, bytes: &[u8]) {
        if std::fs::read(self.gateway.file()).unwrap() == bytes {
            return;
        }
        let before = self.reloads();
        std::fs::write(self.gateway.file(), bytes).unwrap();
        self.gateway.signal("HUP");
        let until = Instant::now() + PATIENCE;
        while self.reloads() == before {
            assert!(Instant::now() < until, "a reading that hangs: {bytes:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.connections.set(self.connections.get() + 1);
        if self.connections.get() == WARM {
            self.resident.set(resident(self.gateway.pid()));
        }
        assert!(!self.gateway.said.text().contains("panicked"));
    }

    /// The number of times that the file was read again, with success or not.
    fn reloads(&self) -> u64 {
        let metrics = self.runtime.block_on(self.gateway.metrics());
        let counts = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("tollgate_config_reloads_total{"));
        let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        counts.sum()
    }

    fn is_well(&self) {
        self.runtime.block_on(async {
            self.gateway.admin_get("/healthz").await.expect(200);
        });
        assert!(!self.gateway.said.text().contains("panicked"));
    }

    /// Checks that no connection and no memory of the attack is left.
    fn ends_unharmed(self) {
        self.is_well();
        let grown = resident(self.gateway.pid()).saturating_sub(self.resident.get());
        assert!(grown < GROWTH, "grown by {grown} bytes");
        self.runtime.block_on(async {
            eventually(PATIENCE, "all connections have ended", async || {
                let metrics = self.gateway.metrics().await;
                metrics.lines().any(|line| line == "tollgate_connections 0")
            })
            .await;
        });
        drop(self.upstream);
    }
}

#[test]
fn any_bytes_are_a_head() {
    let attacked = Attacked::with(|upstream| File::to(upstream, &[]), false);
    drive(&HEADS.map(<[u8]>::to_vec), |bytes| attacked.send(bytes));
    attacked.ends_unharmed();
}

/// HTTP/2 connections in the forms in which many clients send them.
fn frames() -> Vec<Vec<u8>> {
    let settings = frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100, 0, 4, 0, 1, 0, 0]);
    let window = frame(8, 0, 0, &[0, 1, 0, 0]);
    let get = frame(HEADERS, 5, 1, &HEAD);
    let post = [
        frame(HEADERS, 4, 3, &[0x83, 0x86, 0x84, 0x41, 1, b'a']),
        frame(DATA, 8, 3, b"\x02hello\0\0"),
        frame(DATA, 1, 3, b"more"),
    ];
    let parts = [
        frame(HEADERS, 1, 5, &HEAD[..3]),
        frame(CONTINUATION, 4, 5, &HEAD[3..]),
    ];
    let connect = frame(HEADERS, 5, 7, b"\x02\x07CONNECT\x41\x01a");
    let trailers = [
        frame(HEADERS, 4, 9, &[0x83, 0x86, 0x84, 0x41, 1, b'a']),
        frame(HEADERS, 5, 9, b"\x00\x03x-y\x01z"),
    ];
    let ends = [
        frame(PING, 0, 0, &[1; 8]),
        frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]),
        frame(2, 0, 5, &[0, 0, 0, 1, 16]),
        frame(7, 0, 0, &[0; 8]),
    ];
    let begin = [PREFACE, &settings].concat();
    [
        [&begin[..], &window, &get].concat(),
        [&begin[..], &post.concat(), &parts.concat()].concat(),
        [&begin[..], &connect, &trailers.concat()].concat(),
        [&begin[..], &get, &ends.concat()].concat(),
    ]
    .to_vec()
}

#[test]
fn any_bytes_are_frames() {
    let attacked = Attacked::with(|upstream| File::to(upstream, &[]), false);
    let seeds = frames();
    // The preface stays whole in most rounds: without it there is no HTTP/2.
    drive(&seeds, |bytes| {
        attacked.send(bytes);
        if !bytes.starts_with(PREFACE) {
            attacked.send(&[PREFACE, bytes].concat());
        }
    });
    attacked.ends_unharmed();
}

#[test]
fn any_bytes_are_a_header_of_the_proxy_protocol_on_a_socket() {
    let listen = "listen = { address = \"127.0.0.1:0\", proxy_protocol = [\"127.0.0.1\"] }";
    let file = |upstream: &Upstream| File::to(upstream, &[]).server(listen);
    let attacked = Attacked::with(file, false);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let seeds = PROXY_HEADERS.map(|header| [header, request].concat());
    drive(&seeds, |bytes| attacked.send(bytes));
    attacked.ends_unharmed();
}

/// The first flight of TLS clients with these versions and protocols.
fn hellos(authority: &tls::Authority) -> Vec<Vec<u8>> {
    let versions = [
        rustls::ALL_VERSIONS,
        &[&rustls::version::TLS12],
        &[&rustls::version::TLS13],
    ];
    let protocols: [&[&str]; 3] = [&[], &["h2", "http/1.1"], &["acme-tls/1"]];
    let mut hellos = Vec::new();
    for versions in versions {
        for alpn in protocols {
            let client = authority.client_of(versions, None).speaking(alpn);
            let name = ServerName::try_from("api.example.com").unwrap();
            let mut connection = ClientConnection::new(Arc::new(client.0), name).unwrap();
            let mut hello = Vec::new();
            connection.write_tls(&mut hello).unwrap();
            hellos.push(hello);
        }
    }
    hellos
}

#[test]
fn any_bytes_are_a_hello() {
    let authority = tls::Authority::new();
    let identity = authority.identity("main", &["api.example.com"]);
    let listen = "listen = { address = \"127.0.0.1:0\", tls = true }";
    let file = |upstream: &Upstream| File::to(upstream, &[]).server(listen).with(&identity);
    let attacked = Attacked::with(file, true);
    drive(&hellos(&authority), |bytes| attacked.send(bytes));
    attacked.runtime.block_on(async {
        let client = authority.trusting();
        let mut wire = client.wire(attacked.address, "api.example.com").await;
        wire.ask(get("/")).await.expect(200);
    });
    attacked.ends_unharmed();
}

/// Files that name no other machine, because a running gateway reads their mutations.
#[test]
fn any_bytes_are_a_file_that_is_read_anew() {
    let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/jwt/hs.secret");
    let who = format!(
        "[jwt]\nkeys = {keys:?}\nalgorithms = \"HS256\"\n[groups.gold]\nby = \"jwt:plan\"\nmembers = [\"gold\", \"old\"]\n"
    );
    let limit = "by = [\"ip\", \"header:x-api-key\"]\nmissing = \"refuse\"\nrate = \"100/min\"\nburst = 20\n\
                 tiers.gold = { rate = \"1000/min\" }";
    let file = |upstream: &Upstream| {
        File::to(upstream, &["per-key"])
            .limit("per-key", limit)
            .with(&who)
    };
    let attacked = Attacked::with(file, false);
    let good = std::fs::read(attacked.gateway.file()).unwrap();
    // Each read takes a while, because the gateway waits until the file no longer changes.
    drive_for(ROUNDS / 3, std::slice::from_ref(&good), |bytes| {
        // A mutated pattern could make the gateway read folders of the whole machine.
        if !bytes.windows(7).any(|window| window == b"include") {
            attacked.read(bytes);
        }
    });
    attacked.read(&good);
    attacked.runtime.block_on(async {
        eventually(PATIENCE, "the good file is in force", async || {
            let answer = attacked.gateway.get_with("/", &[("X-Api-Key", "a")]).await;
            answer.status == 200
        })
        .await;
    });
    attacked.ends_unharmed();
}

#[test]
fn any_text_is_a_token_and_only_a_signed_one_is_believed() {
    let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/jwt/hs.secret");
    let file = |upstream: &Upstream| {
        File::to(upstream, &["user"])
            .with(&format!(
                "[jwt]\nkeys = {keys:?}\nalgorithms = \"HS256\"\nrequire_exp = false"
            ))
            .limit(
                "user",
                "by = \"jwt:sub\"\nmissing = \"refuse\"\nrate = \"1000000/s\"",
            )
    };
    let attacked = Attacked::with(file, false);
    let key = EncodingKey::from_secret(SECRET);
    let token = |claims| encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
    let good = [
        token(json!({ "sub": "ann" })),
        token(json!({ "sub": "bob", "aud": ["a", "b"], "roles": { "admin": true } })),
    ];
    let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.";
    let seeds: Vec<Vec<u8>> = good
        .iter()
        .map(String::as_str)
        .chain([none])
        .map(|token| format!("Bearer {token}").into_bytes())
        .collect();
    let asked = |text: &str| {
        attacked.runtime.block_on(async {
            let fields = [("Host", "a"), ("Authorization", text)];
            let mut wire = Wire::to(attacked.address).await;
            wire.ask(request("GET", "/", &fields)).await.status
        })
    };
    for token in &good {
        assert_eq!(asked(&format!("Bearer {token}")), 200);
    }
    drive(&seeds, |bytes| {
        let text: String = bytes
            .iter()
            .filter(|byte| byte.is_ascii_graphic() || **byte == b' ')
            .map(|byte| char::from(*byte))
            .collect();
        let status = asked(&text);
        let is_good = good.iter().any(|token| text.trim().ends_with(token));
        assert!(matches!(status, 200 | 401 | 400 | 431), "{status}: {text}");
        assert!(status != 200 || is_good, "believed: {text}");
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: {text}\r\n\r\n");
        attacked.send(head.as_bytes());
    });
    attacked.ends_unharmed();
}

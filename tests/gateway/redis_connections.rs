//! Connections to Redis beyond a plain address: TLS with separate files, Unix sockets, and sentinels.

use crate::support::{
    File, Finished, Gateway, PATIENCE, Redis, Upstream, eventually, free_port, tollgate,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// An authority, and the certificates of a server and a gateway, as files.
fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let authority = |file: &str, name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.path().join(file), certificate.pem()).unwrap();
        Issuer::new(params, key)
    };
    let issuer = authority("ca.pem", "ours");
    authority("other.pem", "another's");
    for name in ["127.0.0.1", "gateway"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &issuer).unwrap();
        fs::write(folder.path().join(format!("{name}.pem")), signed.pem()).unwrap();
        fs::write(
            folder.path().join(format!("{name}.key")),
            key.serialize_pem(),
        )
        .unwrap();
    }
    folder
}

/// A Redis that asks every client for a certificate, and its TLS port.
async fn with_tls(files: &Path) -> (Redis, u16) {
    let path = |name: &str| files.join(name).display().to_string();
    let port = free_port();
    let redis = Redis::start_with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-ca-cert-file",
        &path("ca.pem"),
        "--tls-cert-file",
        &path("127.0.0.1.pem"),
        "--tls-key-file",
        &path("127.0.0.1.key"),
    ])
    .await;
    (redis, port)
}

fn file(upstream: &Upstream, store: &str) -> File {
    File::to(upstream, &["calls"])
        .limit("calls", "by = \"everyone\"\nrate = \"1000/h\"")
        .store(&format!("{store}\ntimeout = \"2s\""))
}

async fn connects(file: &Path) -> Finished {
    let arguments = [
        "--config",
        &file.display().to_string(),
        "check",
        "--connect",
    ];
    tollgate(file.parent().unwrap(), &arguments).await
}

#[tokio::test]
async fn an_authority_that_is_not_believed_is_said_and_a_better_file_is_taken_over() {
    let (upstream, files) = (Upstream::echo().await, certificates());
    let (redis, port) = with_tls(files.path()).await;
    let path = |name: &str| files.path().join(name);
    let believed = path("believed.pem");
    fs::copy(path("other.pem"), &believed).unwrap();
    let tls = format!(
        "url = \"rediss://127.0.0.1:{port}\"\ntls = {{ ca = \"{}\", cert = \"{}\", key = \"{}\" }}",
        believed.display(),
        path("gateway.pem").display(),
        path("gateway.key").display(),
    );
    let mut gateway = Gateway::start(&file(&upstream, &tls)).await;
    gateway.get("/").await.expect(200);
    gateway
        .said
        .line(0, "why it is away", |line| {
            line.contains("is away") && line.contains("authority is not trusted")
        })
        .await;
    let told = connects(&gateway.file()).await;
    assert_eq!(told.code, Some(3), "{}{}", told.stdout, told.stderr);
    assert!(
        told.stdout
            .contains("NOT REACHABLE: cannot reach the store: TLS with"),
        "{}",
        told.stdout
    );

    fs::copy(path("ca.pem"), &believed).unwrap();
    gateway
        .said
        .line(0, "what was taken over", |line| {
            line.contains("store.tls: changed")
        })
        .await;
    eventually(PATIENCE, "counters are shared", async || {
        gateway.get("/").await.expect(200);
        redis.keys().await.iter().any(|key| key.contains("calls"))
    })
    .await;
    let told = connects(&gateway.file()).await;
    assert_eq!(told.code, Some(0), "{}{}", told.stdout, told.stderr);
    assert!(
        told.stdout.contains("accepts the scripts"),
        "{}",
        told.stdout
    );
    gateway.stop().await;
    let key = fs::read_to_string(path("gateway.key")).unwrap();
    let said = gateway.access.text() + &gateway.said.text();
    assert!(!said.contains(key.lines().nth(1).unwrap()));
}

#[tokio::test]
async fn a_socket_is_as_good_as_an_address() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock").display().to_string();
    let redis = Redis::start_with(&["--unixsocket", &socket]).await;
    let gateway = Gateway::start(&file(&upstream, &format!("url = \"unix:{socket}\""))).await;
    gateway.get("/").await.expect(200);
    assert!(redis.keys().await.iter().any(|key| key.contains("calls")));
    let told = connects(&gateway.file()).await;
    assert_eq!(told.code, Some(0), "{}{}", told.stdout, told.stderr);
    assert!(
        told.stdout.contains(&format!("unix:{socket}")),
        "{}",
        told.stdout
    );
}

/// A Redis that accepts the scripts but decides nothing does not pass the check.
#[tokio::test]
async fn a_redis_that_cannot_decide_is_not_reachable() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    fs::write(
        &path,
        file(&upstream, &format!("url = \"{}\"", redis.url())).text(),
    )
    .unwrap();
    assert_eq!(connects(&path).await.code, Some(0));
    let _: String = redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let told = connects(&path).await;
    assert_eq!(told.code, Some(3), "{told:?}");
    assert!(told.stdout.contains("READONLY"), "{told:?}");
}

//! Certificates in a cluster, in a Redis behind Sentinel, and in a Redis with TLS: ordered once, served by both
//! gateways, and renewed after the loss of a master.

use super::{OBTAINED, SECRET, Scene, TAKEN, all_show, sum};
use crate::support::tls::Authority;
use crate::support::{Cluster, Redis, Sentinel, free_port};
use std::future::Future;

/// Two gateways order once, a part of the store is lost, and the certificate is renewed.
async fn are_ordered_and_renewed(scene: &Scene, loss: impl Future<Output = ()>) {
    let (first, second) = (scene.gateway(SECRET).await, scene.gateway(SECRET).await);
    let both = [&first, &second];
    scene.balancer.lead_to(&both).await;
    let ordered = all_show(&both, None).await;
    let pebble = &scene.pebble;
    assert_eq!(pebble.logged("Issued certificate"), 1, "{}", pebble.log());
    assert_eq!(sum(&both, OBTAINED).await, 1);
    assert_eq!(sum(&both, TAKEN).await, 1);
    assert_eq!(sum(&both, "tollgate_acme_store_up ").await, 2);
    loss.await;
    let renewed = all_show(&both, Some(&ordered)).await;
    assert_ne!(ordered, renewed);
    assert_eq!(pebble.logged("There are now 1 accounts"), 1);
    assert_eq!(pebble.logged("There are now 2 accounts"), 0);
}

#[tokio::test]
async fn a_cluster_keeps_them() {
    let mut cluster = Cluster::start().await;
    let scene = Scene::with_store(Some(24), cluster.store()).await;
    are_ordered_and_renewed(&scene, async { cluster.lose(0).await }).await;
}

#[tokio::test]
async fn a_redis_behind_sentinel_keeps_them() {
    let mut master = Redis::start().await;
    let mut replica = Redis::absent();
    let port = master.port().to_string();
    let copies = ["--replicaof", "127.0.0.1", &port];
    replica.with(&[&copies[..], &["--repl-diskless-sync-delay", "0"]].concat());
    replica.come().await;
    let sentinel = Sentinel::start(master.port()).await;
    let store = format!("url = \"{}\"", sentinel.url());
    let scene = Scene::with_store(Some(24), store).await;
    are_ordered_and_renewed(&scene, async { master.kill().await }).await;
}

#[tokio::test]
async fn a_redis_behind_tls_keeps_them() {
    let own = Authority::new();
    own.write("redis", &own.server(&["127.0.0.1"]));
    let path = |name: &str| own.path(name).display().to_string();
    let port = free_port();
    let _redis = Redis::start_with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-auth-clients",
        "no",
        "--tls-cert-file",
        &path("redis.pem"),
        "--tls-key-file",
        &path("redis.key"),
        "--tls-ca-cert-file",
        &path("ca.pem"),
    ])
    .await;
    let ca = own.path("ca.pem");
    let store = format!("url = \"rediss://127.0.0.1:{port}\"\ntls = {{ ca = {ca:?} }}");
    let scene = Scene::with_store(Some(15), store).await;
    are_ordered_and_renewed(&scene, async {}).await;
}

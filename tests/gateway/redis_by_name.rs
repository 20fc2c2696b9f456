//! A Redis whose name gets another address, as at the failover of a managed Redis.

use crate::support::{File, Gateway, PATIENCE, Redis, Upstream, eventually, free_port, preload};
use std::path::PathBuf;

/// A gateway that counts at `cache.test`, and the file with the address of this name.
struct Named {
    gateway: Gateway,
    names: PathBuf,
}

impl Named {
    async fn start(upstream: &Upstream, port: u16, address: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shim = preload(folder.path(), "names", include_str!("../support/names.c")).await;
        let names = folder.path().join("names");
        std::fs::write(&names, address).unwrap();
        let file = File::to(upstream, &["calls"])
            .limit(
                "calls",
                "by = \"everyone\"\nrate = \"1000/h\"\nburst = 1000\nlease = \"off\"",
            )
            .store(&format!(
                "url = \"redis://cache.test:{port}/0\"\ntimeout = \"1s\"\non_down = \"open\""
            ));
        std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
        let variables = [("LD_PRELOAD", shim.as_path()), ("NAMES", names.as_path())];
        let gateway = Gateway::launch_with(folder, &["run"], &variables).await;
        Self { gateway, names }
    }

    /// Changes the address of the name by a rename, so that a reader sees either the old address or the new one.
    fn lead_to(&self, address: &str) {
        let new = self.names.with_extension("new");
        std::fs::write(&new, address).unwrap();
        std::fs::rename(new, &self.names).unwrap();
    }

    /// Waits until a request is counted in `redis`. Earlier requests may have been decided while no Redis was reached.
    async fn counts_on(&self, redis: &Redis) {
        eventually(PATIENCE, "it counts there", async || {
            assert_eq!(self.gateway.get("/").await.status, 200);
            redis.keys().await.len() == 1
        })
        .await;
    }

    /// Waits until every worker reaches its Redis, or until none does.
    async fn shared(&self, shared: bool) {
        let what = if shared { "shared" } else { "noticed" };
        eventually(PATIENCE, what, async || {
            assert_eq!(self.gateway.get("/").await.status, 200);
            let told = self.gateway.admin_get("/v1/store").await.json();
            if shared {
                told["reaching"] == told["workers"]
            } else {
                told["reaching"] == 0
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_after_a_death_is_followed() {
    let (upstream, port) = (Upstream::echo().await, free_port());
    let mut old = Redis::start_at("127.0.0.1", port).await;
    let new = Redis::start_at("127.0.0.2", port).await;
    let named = Named::start(&upstream, port, "127.0.0.1").await;
    named.shared(true).await;
    named.counts_on(&old).await;
    assert_eq!(new.keys().await.len(), 0);

    old.kill().await;
    named.shared(false).await;
    named.lead_to("127.0.0.2");
    named.shared(true).await;
    named.counts_on(&new).await;
}

#[tokio::test]
async fn a_name_that_leads_away_from_a_demoted_master_is_followed() {
    let (upstream, port) = (Upstream::echo().await, free_port());
    let old = Redis::start_at("127.0.0.1", port).await;
    let new = Redis::start_at("127.0.0.2", port).await;
    let named = Named::start(&upstream, port, "127.0.0.1").await;
    named.shared(true).await;

    // The old master stays up, and answers its connections with READONLY.
    let _: String = old
        .command(&["REPLICAOF", "127.0.0.2", &port.to_string()])
        .await;
    named.lead_to("127.0.0.2");
    named.counts_on(&new).await;
    named.shared(true).await;
}

#[tokio::test]
async fn a_name_that_is_not_known_for_a_while_is_a_redis_that_is_away() {
    let (upstream, port) = (Upstream::echo().await, free_port());
    let redis = Redis::start_at("127.0.0.1", port).await;
    let named = Named::start(&upstream, port, "").await;
    named.shared(false).await;
    assert_eq!(redis.keys().await.len(), 0);
    named.lead_to("127.0.0.1");
    named.shared(true).await;
    named.counts_on(&redis).await;
}

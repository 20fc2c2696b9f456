//! Servers with names: their addresses change, and a bad answer of the name service changes nothing.

use crate::support::{Gateway, PATIENCE, Upstream, eventually, free_port, preload};
use std::path::PathBuf;

/// A gateway whose upstream is `cache.test`, and the file with the address of this name.
struct Named {
    gateway: Gateway,
    names: PathBuf,
}

impl Named {
    async fn start(port: u16, address: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shim = preload(
            folder.path(),
            "names",
            include_str!("../../support/names.c"),
        )
        .await;
        let names = folder.path().join("names");
        std::fs::write(&names, address).unwrap();
        let file = super::file(&format!(
            "servers = \"http://cache.test:{port}\"\nresolve = \"1s\""
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

    async fn counts(&self, result: &str) {
        let line = format!("tollgate_upstream_resolutions_total{{result=\"{result}\"}} 0");
        eventually(PATIENCE, &format!("an answer is {result}"), async || {
            !self.gateway.metrics().await.contains(&line)
        })
        .await;
    }
}

#[tokio::test]
async fn a_name_is_followed_and_a_bad_answer_changes_nothing() {
    let old = Upstream::echo_on(free_port()).await;
    let named = Named::start(old.port(), "127.0.0.1").await;
    let answer = named.gateway.get("/").await.expect(200);
    let line = named.gateway.line_of(&answer).await;
    let shown = format!("http://cache.test:{} (127.0.0.1)", old.port());
    assert_eq!(line["upstream"], shown);

    named.lead_to("");
    named.counts("failed").await;
    named.gateway.get("/").await.expect(200);
    let said = |words: &'static str| {
        named
            .gateway
            .said
            .line(0, words, move |line| line.contains(words))
    };
    said("its earlier addresses stay in use").await;

    // Requests at the old address end. New requests go to the new address, where no server listens.
    named.lead_to("127.0.0.9");
    eventually(PATIENCE, "the new address is asked", async || {
        named.gateway.get("/").await.status == 502
    })
    .await;
    said("cache.test is now 127.0.0.9 (before: 127.0.0.1)").await;
    named.lead_to("127.0.0.1");
    eventually(PATIENCE, "the old address is asked again", async || {
        named.gateway.get("/").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn the_gateway_starts_without_an_address() {
    let server = Upstream::echo_on(free_port()).await;
    let named = Named::start(server.port(), "").await;
    let answer = named.gateway.get("/").await.expect(503);
    let line = named.gateway.line_of(&answer).await;
    assert_eq!(line["reason"], "no_server");
    named.lead_to("127.0.0.1");
    eventually(PATIENCE, "the name has an address", async || {
        named.gateway.get("/").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn this_machine_has_a_name() {
    let server = Upstream::echo().await;
    let gateway =
        super::gateway(&format!("servers = \"http://localhost:{}\"", server.port())).await;
    gateway.get("/").await.expect(200);
}

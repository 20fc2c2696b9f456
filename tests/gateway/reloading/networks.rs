//! A file of trusted networks is watched, and is in force as a whole or not at all.

use super::SOON;
use crate::support::{File, Gateway, Upstream, eventually};
use std::fs;

#[tokio::test]
async fn networks_come_and_go_and_a_bad_file_changes_nothing() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("cdn.txt"),
        "# none of ours\n192.0.2.0/24\n",
    )
    .unwrap();
    let file = folder.path().join("gateway.toml");
    let text = File::to(&upstream, &[])
        .server("trust = [{ file = \"cdn.txt\" }]\ntrust_field = \"x-client\"")
        .text();
    fs::write(&file, text).unwrap();
    let gateway = Gateway::run(folder, &file).await;
    let client = async || {
        let answer = gateway.get_with("/", &[("x-client", "203.0.113.9")]).await;
        let line = gateway.line_of(&answer).await;
        line["client"].as_str().unwrap().to_owned()
    };
    let becomes = async |wanted: &str| {
        eventually(SOON, wanted, async || client().await == wanted).await;
    };
    assert_eq!(client().await, "127.0.0.1");
    let path = gateway.folder().join("cdn.txt");
    fs::write(&path, "192.0.2.0/24\n127.0.0.0/8 # this machine\n").unwrap();
    becomes("203.0.113.9").await;
    for (bad, told) in [
        ("# nothing\n", "`cdn.txt` has no network"),
        ("127.0.0.0/8\n<html>\n", "cdn.txt:2 is not a network"),
    ] {
        fs::write(&path, bad).unwrap();
        let is_told = |line: &str| line.contains("error[bad-network]") && line.contains(told);
        gateway.said.line(0, told, is_told).await;
        assert_eq!(client().await, "203.0.113.9");
    }
    fs::write(&path, "192.0.2.0/24\n").unwrap();
    becomes("127.0.0.1").await;
}

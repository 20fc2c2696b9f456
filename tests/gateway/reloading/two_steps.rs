//! A file that is written in two steps, and whose second step adds the limit of all requests. No client gets past the
//! limit between the steps.

use crate::support::{File, Gateway, PATIENCE, Upstream, eventually};
use std::time::Duration;
use tokio::time::sleep;

const SECOND: &str = "[defaults]\nlimits = [\"per-ip\"]\n";

fn first(upstream: &Upstream, paths: &[&str]) -> File {
    let mut file = File::default()
        .upstream("main", &[upstream])
        .limit("per-ip", "by = \"ip\"\nrate = \"3/h\"");
    for path in paths {
        file = file.route(&path[1..], path, "main", &[]);
    }
    file
}

#[tokio::test]
async fn a_used_up_limit_of_the_second_half_holds_between_the_halves() {
    let upstream = Upstream::echo().await;
    let file = first(&upstream, &["/a"]).with(SECOND);
    let gateway = Gateway::start(&file).await;
    for _ in 0..3 {
        gateway.get("/a").await.expect(200);
    }
    gateway.get("/a").await.expect(429);

    gateway.write_in_place(&first(&upstream, &["/a", "/b"]).text());
    // The writer pauses, and the client sends requests.
    for _ in 0..8 {
        sleep(Duration::from_millis(50)).await;
        gateway.get("/a").await.expect(429);
    }
    gateway.write_in_place(&first(&upstream, &["/a", "/b"]).with(SECOND).text());
    eventually(PATIENCE, "the whole file is in force", async || {
        gateway.get("/a").await.expect(429);
        gateway.said.text().contains("is in force")
    })
    .await;
    gateway.get("/b").await.expect(429);
}

/// The log names the file that would take something away. Later it says that the file is as it was before.
#[tokio::test]
async fn a_loss_is_told_with_its_file_and_so_is_its_end() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let both = "a-long-secret-key\nanother-secret-key\n";
    std::fs::write(&keys, both).unwrap();
    let group = format!(
        "[groups.g]\nby = \"header:x-key\"\nfile = {keys:?}\n[routes.b]\npath = \"/b\"\nupstream = \"main\"\ngroups = [\"g\"]"
    );
    let gateway = Gateway::start(&first(&upstream, &["/a"]).with(&group)).await;
    std::fs::write(&keys, "a-long-secret-key\n").unwrap();
    let told = format!("{} takes away a member of group `g`", keys.display());
    eventually(PATIENCE, "the loss is told", async || {
        gateway.said.text().contains(&told)
    })
    .await;
    std::fs::write(&keys, both).unwrap();
    eventually(PATIENCE, "its end is told", async || {
        gateway
            .said
            .text()
            .contains("are again as they were before")
    })
    .await;
}

#[tokio::test]
async fn a_limit_that_is_taken_away_for_good_is_gone_soon_and_at_once_by_a_signal() {
    let upstream = Upstream::echo().await;
    let file = first(&upstream, &["/a"]).with(SECOND);
    for signal in [None, Some("HUP")] {
        let gateway = Gateway::start(&file).await;
        gateway.rename_over(&first(&upstream, &["/a"]).text());
        if let Some(signal) = signal {
            gateway.signal(signal);
        }
        eventually(PATIENCE, "the limit is gone", async || {
            gateway.said.text().contains("is in force")
        })
        .await;
        for _ in 0..4 {
            gateway.get("/a").await.expect(200);
        }
    }
}

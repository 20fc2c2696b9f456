//! The file changes under a running gateway: either the whole new file or the whole old one applies, and no client
//! notices the change.

mod counters;
mod members;
mod networks;
mod secrets;
mod two_steps;

use crate::support::{Connection, File, Gateway, PATIENCE, Upstream, eventually, get, long};
use counters::counted;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The time within which a reload must take effect.
const SOON: Duration = Duration::from_secs(3);

/// A file with one route, recognisable by its path.
fn marked(upstream: &Upstream, mark: &str) -> String {
    File::default()
        .upstream("main", &[upstream])
        .route("mark", &format!("/{mark}"), "main", &[])
        .text()
}

async fn assert_serves(gateway: &Gateway, mark: &str) {
    let what = format!("/{mark} is served");
    eventually(SOON, &what, async || {
        gateway.get(&format!("/{mark}")).await.status == 200
    })
    .await;
}

async fn marked_gateway(upstream: &Upstream) -> Gateway {
    let file = File::default()
        .upstream("main", &[upstream])
        .route("mark", "/old", "main", &[]);
    let gateway = Gateway::start(&file).await;
    gateway.get("/old").await.expect(200);
    gateway.get("/new").await.expect(404);
    gateway
}

#[tokio::test]
async fn a_file_renamed_over_it_is_taken() {
    let upstream = Upstream::echo().await;
    let gateway = marked_gateway(&upstream).await;
    // The file changes more than once: a watch on the file itself would end with the first change.
    for mark in ["new", "newer", "newest"] {
        gateway.rename_over(&marked(&upstream, mark));
        assert_serves(&gateway, mark).await;
    }
    gateway.get("/old").await.expect(404);
}

#[tokio::test]
async fn a_file_written_in_place_is_taken() {
    let upstream = Upstream::echo().await;
    let gateway = marked_gateway(&upstream).await;
    for mark in ["new", "newer", "newest"] {
        gateway.write_in_place(&marked(&upstream, mark));
        assert_serves(&gateway, mark).await;
    }
}

#[tokio::test]
async fn a_file_removed_and_written_again_is_taken() {
    let upstream = Upstream::echo().await;
    let gateway = marked_gateway(&upstream).await;
    std::fs::remove_file(gateway.file()).unwrap();
    gateway.get("/old").await.expect(200);
    gateway.write_in_place(&marked(&upstream, "new"));
    assert_serves(&gateway, "new").await;
}

#[tokio::test]
async fn a_swapped_link_is_taken() {
    let upstream = Upstream::echo().await;
    // The layout of a mounted ConfigMap: gateway.toml -> ..data/gateway.toml, ..data -> ..1
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let version = |name: &str, mark: &str| {
        std::fs::create_dir(at(name)).unwrap();
        std::fs::write(at(name).join("gateway.toml"), marked(&upstream, mark)).unwrap();
    };
    version("..1", "old");
    std::os::unix::fs::symlink("..1", at("..data")).unwrap();
    std::os::unix::fs::symlink("..data/gateway.toml", at("gateway.toml")).unwrap();
    version("..2", "new");
    version("..3", "newest");
    let (data, aside, file) = (at("..data"), at("..data_tmp"), at("gateway.toml"));
    let gateway = Gateway::run(folder, &file).await;
    gateway.get("/old").await.expect(200);
    for (target, mark) in [("..2", "new"), ("..3", "newest")] {
        std::os::unix::fs::symlink(target, &aside).unwrap();
        std::fs::rename(&aside, &data).unwrap();
        assert_serves(&gateway, mark).await;
    }
}

#[tokio::test]
async fn a_folder_in_the_place_of_another_is_taken() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let version = |name: &str, mark: &str| {
        std::fs::create_dir_all(at(name)).unwrap();
        std::fs::write(at(name).join("gateway.toml"), marked(&upstream, mark)).unwrap();
    };
    version("top/conf", "old");
    version("next", "new");
    version("other/conf", "newest");
    let (top, conf, next) = (at("top"), at("top/conf"), at("next"));
    let (gone, other) = (at("gone"), at("other"));
    let (file, prev) = (at("top/conf/gateway.toml"), at("prev"));
    let gateway = Gateway::run(folder, &file).await;
    gateway.get("/old").await.expect(200);
    // First the file's own folder is replaced, and then a folder further up.
    std::fs::rename(&conf, &prev).unwrap();
    std::fs::rename(&next, &conf).unwrap();
    assert_serves(&gateway, "new").await;
    std::fs::rename(&top, &gone).unwrap();
    std::fs::rename(&other, &top).unwrap();
    assert_serves(&gateway, "newest").await;
    // Later changes are noticed too, and changes in the old folder are not.
    std::fs::write(&file, marked(&upstream, "edited")).unwrap();
    assert_serves(&gateway, "edited").await;
}

#[tokio::test]
async fn a_hangup_signal_reads_the_file_again() {
    let upstream = Upstream::echo().await;
    // The file is a link into a folder that is not watched, so only the signal causes a reload.
    let elsewhere = tempfile::tempdir().unwrap();
    let real = elsewhere.path().join("real.toml");
    std::fs::write(&real, marked(&upstream, "old")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("gateway.toml");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let gateway = Gateway::run(folder, &link).await;
    gateway.get("/old").await.expect(200);
    std::fs::write(&real, marked(&upstream, "new")).unwrap();
    gateway.signal("HUP");
    assert_serves(&gateway, "new").await;
    // A signal without a change of the file changes nothing.
    gateway.signal("HUP");
    gateway.get("/new").await.expect(200);
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_says_why() {
    let upstream = Upstream::echo().await;
    let gateway = marked_gateway(&upstream).await;
    let good = marked(&upstream, "new");
    for (broken, said) in [
        (
            good.replace("[routes.mark]", "[routes.mark]\nlimitz = [\"x\"]"),
            "limitz",
        ),
        (
            good.replace("upstream = \"main\"", "upstream = \"mian\""),
            "mian",
        ),
        (
            good.clone() + "[limits.l]\nby = \"ip\"\nrate = \"10 bananas\"\n",
            "bananas",
        ),
        (good.clone() + "[[[", "[[["),
    ] {
        let before = gateway.said.lines().len();
        gateway.rename_over(&broken);
        // The message shows the faulty line, and its place.
        gateway
            .said
            .line(before, &format!("a report that shows {said}"), |line| {
                line.contains(said)
            })
            .await;
        gateway
            .said
            .line(before, "the place of the mistake", |line| {
                line.contains("gateway.toml:")
            })
            .await;
        gateway.get("/old").await.expect(200);
        gateway.get("/new").await.expect(404);
    }
    gateway.rename_over(&good);
    assert_serves(&gateway, "new").await;
}

#[tokio::test]
async fn an_empty_or_vanished_file_changes_nothing() {
    let upstream = Upstream::echo().await;
    let gateway = marked_gateway(&upstream).await;
    let before = gateway.said.lines().len();
    gateway.write_in_place("");
    gateway
        .said
        .line(before, "a word about it", |line| {
            line.contains("gateway.toml")
        })
        .await;
    gateway.get("/old").await.expect(200);
    std::fs::remove_file(gateway.file()).unwrap();
    std::fs::create_dir(gateway.file()).unwrap();
    gateway.signal("HUP");
    gateway.get("/old").await.expect(200);
    std::fs::remove_dir(gateway.file()).unwrap();
    gateway.write_in_place(&marked(&upstream, "new"));
    assert_serves(&gateway, "new").await;
}

#[tokio::test]
async fn what_changed_is_said_and_so_is_what_needs_a_restart() {
    let upstream = Upstream::echo().await;
    let file = counted(&upstream, "calls", "rate = \"3/h\"");
    let gateway = Gateway::start(&file).await;
    let before = gateway.said.lines().len();
    gateway.rename_over(&counted(&upstream, "calls", "rate = \"7/h\"").text());
    gateway
        .said
        .line(before, "the limit that changed", |line| {
            line.contains("calls")
        })
        .await;
    let before = gateway.said.lines().len();
    gateway.rename_over(&file.server("idle = \"7s\"").text());
    gateway
        .said
        .line(before, "a word about the restart", |line| {
            line.contains("restart")
        })
        .await;
    gateway.get("/").await.expect(200);
}

#[tokio::test]
async fn connections_and_requests_outlive_a_reload() {
    let go = Arc::new(Notify::new());
    let waiting = Arc::clone(&go);
    let upstream = Upstream::playing(move |mut connection: Connection| {
        let go = Arc::clone(&waiting);
        async move {
            while let Ok(head) = connection.request().await {
                if head.target() == "/slow" {
                    go.notified().await;
                }
                connection
                    .wire
                    .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await;
            }
        }
    })
    .await;
    let file = |limit: &str| {
        File::to(&upstream, &[limit]).limit(
            limit,
            "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/s\"\nburst = 3",
        )
    };
    let gateway = Gateway::start(&file("old").server("workers = 2")).await;
    let (mut idle, mut slow, mut held) = (
        gateway.connect().await,
        gateway.connect().await,
        gateway.connect().await,
    );
    idle.ask(get("/")).await.expect(200);
    let http2 = gateway.h2().await;
    http2.get("/").await.expect(200);
    slow.send(get("/slow")).await;
    upstream.sees(3).await;
    held.send(get("/held")).await;
    gateway.rename_over(&file("new").server("workers = 2").text());
    eventually(SOON, "the new limit is in force", async || {
        gateway
            .get("/")
            .await
            .field("ratelimit-policy")
            .contains("\"new\"")
    })
    .await;
    go.notify_one();
    assert_eq!(
        slow.answer().await.expect(200).field("ratelimit-policy"),
        "\"old\";q=8;w=8"
    );
    assert_eq!(
        held.answer().await.expect(200).field("ratelimit-policy"),
        "\"old\";q=8;w=8"
    );
    assert_eq!(
        idle.ask(get("/"))
            .await
            .expect(200)
            .field("ratelimit-policy"),
        "\"new\";q=8;w=8"
    );
    http2.get("/").await.expect(200);
    assert!(!http2.closed());
}

#[tokio::test]
async fn a_file_seen_half_written_never_lifts_its_limits() {
    let upstream = Upstream::echo().await;
    // The limits of the route are in its last line. Without this line the file is valid, and has no limits.
    let whole = |n: u32| {
        File::default()
            .limit(
                "calls",
                &format!("by = \"ip\"\nrate = \"{n}/h\"\nburst = 100000"),
            )
            .upstream("main", &[&upstream])
            .with("[routes.all]\npath = \"/{*rest}\"\nupstream = \"main\"")
            .with("limits = [\"calls\"]")
    };
    let gateway = Gateway::start(&whole(1)).await;
    let mut client = gateway.connect().await;
    for n in 2..40 {
        let text = whole(n).text();
        let cut = text.rfind("limits = ").unwrap();
        gateway.write_in_place(&text[..cut]);
        // A request comes before the rest of the file is written.
        assert!(
            client
                .ask(get("/"))
                .await
                .expect(200)
                .fields
                .has("ratelimit"),
            "unlimited after {n}"
        );
        gateway.write_in_place(&text);
        assert!(
            client
                .ask(get("/"))
                .await
                .expect(200)
                .fields
                .has("ratelimit"),
            "unlimited after {n}"
        );
    }
    eventually(SOON, "the last file is in force", async || {
        gateway
            .get("/")
            .await
            .field("ratelimit-policy")
            .contains("w=9230770")
    })
    .await;
}

#[tokio::test]
async fn many_reloads_good_and_broken_disturb_nobody() {
    let rounds = if long() { 1_000 } else { 200 };
    let upstream = Upstream::echo().await;
    let file = |n: usize| {
        File::to(&upstream, &["calls"])
            .limit(
                "calls",
                &format!(
                    "by = \"everyone\"\nalgorithm = \"fixed-window\"\nrate = \"{}/h\"",
                    1_000_000 + n
                ),
            )
            .text()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, file(0)).unwrap();
    let gateway = Arc::new(Gateway::run(folder, &path).await);
    let over = Arc::new(AtomicBool::new(false));
    let mut asking = JoinSet::new();
    for _ in 0..2 {
        let (mut client, over) = (gateway.connect().await, Arc::clone(&over));
        asking.spawn(async move {
            let mut asked = 0;
            let mut beat = tokio::time::interval(Duration::from_millis(5));
            while !over.load(Ordering::Relaxed) {
                client.ask(get("/")).await.expect(200);
                asked += 1;
                beat.tick().await;
            }
            asked
        });
    }
    for n in 1..=rounds {
        let good = n % 2 == 0;
        let before = gateway.said.lines().len();
        let text = if good {
            file(n)
        } else {
            file(n).replace("rate = ", "rat = ")
        };
        if n % 3 == 0 {
            gateway.write_in_place(&text)
        } else {
            gateway.rename_over(&text)
        }
        // The gateway logs the outcome of each file before the next one is written.
        let number = (1_000_000 + n).to_string();
        gateway
            .said
            .line(before, &format!("a word about round {n}"), |line| {
                line.contains(&number)
            })
            .await;
    }
    over.store(true, Ordering::Relaxed);
    let asked: u64 = tokio::time::timeout(PATIENCE, asking.join_all())
        .await
        .unwrap()
        .into_iter()
        .sum();
    // Every request was counted, under whichever generation it came.
    let last = gateway.get("/").await.expect(200);
    let quota = last.parameter("ratelimit-policy", "calls", "q");
    assert_eq!(quota, 1_000_000 + rounds as u64);
    assert_eq!(last.remaining("calls"), quota - asked - 1);
}

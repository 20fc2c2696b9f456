//! The gateway watches files of members like the main file: each file applies as a whole or not at all, and no message
//! shows a member.

use super::SOON;
use crate::support::{File, Gateway, Upstream, eventually};
use std::fs;
use std::path::Path;

fn gold(upstream: &Upstream, file: &str) -> String {
    File::to(upstream, &["key"])
        .with(&format!("[groups.gold]\nby = \"header:x-api-key\"\nfile = \"{file}\""))
        .limit("key", "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"10/h\"\ntiers.gold = { rate = \"70/h\" }")
        .text()
}

async fn start(upstream: &Upstream, members: &str) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gold.txt"), members).unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, gold(upstream, "gold.txt")).unwrap();
    Gateway::run(folder, &file).await
}

/// Does the client with this key get the quota of gold?
async fn is_gold(gateway: &Gateway, key: &str) -> bool {
    let answer = gateway.get_with("/", &[("X-Api-Key", key)]).await;
    match answer.field("x-ratelimit-limit") {
        "70" => true,
        "10" => false,
        other => panic!("{other}: {answer:?}"),
    }
}

async fn becomes_gold(gateway: &Gateway, key: &str) {
    eventually(SOON, &format!("{key} is gold"), async || {
        is_gold(gateway, key).await
    })
    .await;
}

fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(&beside, path).unwrap();
}

#[tokio::test]
async fn members_come_and_go_however_the_file_is_written() {
    let upstream = Upstream::echo().await;
    let gateway = start(&upstream, "# gold\nsecret-a\n\nsecret-b\n").await;
    let file = gateway.folder().join("gold.txt");
    assert!(is_gold(&gateway, "secret-a").await && !is_gold(&gateway, "secret-c").await);
    fs::write(&file, "secret-a\nsecret-b\nsecret-c\nsecret-d\n").unwrap();
    becomes_gold(&gateway, "secret-c").await;
    replace(&file, "secret-e\nsecret-b\r\nsecret-c\nsecret-d");
    becomes_gold(&gateway, "secret-e").await;
    assert!(!is_gold(&gateway, "secret-a").await);
    for said in [
        "groups.gold: 2 members more",
        "groups.gold: 1 member more, 1 fewer",
    ] {
        gateway
            .said
            .line(0, said, |line| line.ends_with(said))
            .await;
    }
    // Changes of the main file still apply, and so do changes of the new file of members.
    fs::write(gateway.folder().join("other.txt"), "secret-f\n").unwrap();
    gateway.rename_over(&gold(&upstream, "other.txt"));
    becomes_gold(&gateway, "secret-f").await;
    replace(&gateway.folder().join("other.txt"), "secret-g\n");
    becomes_gold(&gateway, "secret-g").await;
    assert!(!gateway.said.text().contains("secret"), "no member is told");
}

#[tokio::test]
async fn a_bad_or_vanished_file_changes_nothing_and_is_told_in_a_line() {
    let upstream = Upstream::echo().await;
    let gateway = start(&upstream, "secret-a\n").await;
    let file = gateway.folder().join("gold.txt");
    let told = async |what: &str| {
        let is_it = |line: &str| line.contains("not reloaded: ") && line.contains(what);
        gateway.said.line(0, what, is_it).await
    };
    replace(&file, "secret-a\nsha256:secret\nsecret-b\n");
    let line = told("gold.txt:2 is no member of group `gold`").await;
    assert!(
        line.contains("the earlier configuration stays in force"),
        "{line}"
    );
    assert!(is_gold(&gateway, "secret-a").await && !is_gold(&gateway, "secret-b").await);
    fs::remove_file(&file).unwrap();
    told("cannot read `gold.txt`").await;
    assert!(is_gold(&gateway, "secret-a").await);
    fs::write(&file, "secret-b\n").unwrap();
    becomes_gold(&gateway, "secret-b").await;
    // The file did not exist when the main file named it.
    gateway.rename_over(&gold(&upstream, "late/gold.txt"));
    told("cannot read `late/gold.txt`").await;
    fs::create_dir(gateway.folder().join("late")).unwrap();
    fs::write(gateway.folder().join("late/gold.txt"), "secret-c").unwrap();
    gateway.signal("HUP");
    becomes_gold(&gateway, "secret-c").await;
    let said = gateway.said.text();
    let lines = said
        .lines()
        .filter(|line| line.contains("gold.txt"))
        .count();
    assert!((3..=6).contains(&lines), "{said}");
    assert!(!said.contains("secret"), "no member is told: {said}");
}

#[tokio::test]
async fn members_behind_a_swapped_link_are_taken() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // The files change as in a mounted ConfigMap.
    let version = |name: &str, members: &str| {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("gateway.toml"), gold(&upstream, "gold.txt")).unwrap();
        fs::write(at(name).join("gold.txt"), members).unwrap();
    };
    version("..1", "one\n");
    std::os::unix::fs::symlink("..1", at("..data")).unwrap();
    for name in ["gateway.toml", "gold.txt"] {
        std::os::unix::fs::symlink(format!("..data/{name}"), at(name)).unwrap();
    }
    let (file, root) = (at("gateway.toml"), folder.path().to_owned());
    version("..2", "two\n");
    let gateway = Gateway::run(folder, &file).await;
    assert!(is_gold(&gateway, "one").await);
    std::os::unix::fs::symlink("..2", root.join("..new")).unwrap();
    fs::rename(root.join("..new"), root.join("..data")).unwrap();
    becomes_gold(&gateway, "two").await;
    assert!(!is_gold(&gateway, "one").await);
}

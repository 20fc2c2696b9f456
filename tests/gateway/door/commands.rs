//! `tollgate status` and `tollgate reload`: which gateway they ask, what they print, and how they end.

use super::{READER, TOKEN, TOKENS, file};
use crate::support::{File, Gateway, Upstream, free_port, tollgate};

#[tokio::test]
async fn commands_ask_the_gateway_and_say_how_it_went() {
    let upstream = Upstream::echo().await;
    let text = file(&upstream, TOKENS).text();
    let gateway = Gateway::start(&file(&upstream, TOKENS)).await;
    let admin = gateway.admin().await.to_string();
    let folder = gateway.folder();
    std::fs::write(folder.join("operator"), format!("{TOKEN}\n")).unwrap();
    std::fs::write(folder.join("reader"), READER).unwrap();
    std::fs::write(folder.join("wrong"), "w".repeat(32)).unwrap();

    let done = tollgate(folder, &["status", "--admin", &admin]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    for line in [
        "edge-1   ",
        "config   1 since ",
        "store    memory",
        "servers  1 of 1",
        "now      All",
    ] {
        assert!(done.stdout.contains(line), "{line}:\n{}", done.stdout);
    }
    let done = tollgate(folder, &["status", "--admin", &admin, "--json"]).await;
    let json: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(json["name"], "edge-1");

    // The token of the file is taken, though the address is named.
    let done = tollgate(folder, &["reload", "--admin", &admin]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("unchanged"), "{done:?}");
    gateway.rename_over(&text.replace("rate = \"10/s\"", "rate = \"20/s\""));
    let operator = ["reload", "--admin", &admin, "--token-file", "operator"];
    let done = tollgate(folder, &operator).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout.starts_with("configuration 2 in force"),
        "{done:?}"
    );
    assert!(done.stdout.contains("  limits.per-ip   rate"), "{done:?}");
    for token in ["reader", "wrong"] {
        let done = tollgate(
            folder,
            &["reload", "--admin", &admin, "--token-file", token],
        )
        .await;
        assert_eq!(done.code, Some(4), "{done:?}");
    }
    gateway.rename_over(&text.replace("rate = \"10/s\"", "rate = \"ten\""));
    let done = tollgate(folder, &operator).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("bad-rate"), "{done:?}");
    let done = tollgate(folder, &["status", "--admin", &admin]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stdout.contains("was refused"), "{done:?}");

    let absent = format!("127.0.0.1:{}", free_port());
    let done = tollgate(folder, &["status", "--admin", &absent]).await;
    assert_eq!(done.code, Some(3), "{done:?}");
    let both = ["status", "--admin", &admin, "--admin", &absent];
    let done = tollgate(folder, &both).await;
    assert!(
        done.code == Some(3) && done.stdout.contains("edge-1"),
        "{done:?}"
    );
    for odd in ["nonsense", "https://localhost:1"] {
        let done = tollgate(folder, &["status", "--admin", odd]).await;
        assert_eq!(done.code, Some(2), "{done:?}");
    }
}

#[tokio::test]
async fn the_file_names_the_gateway_and_nothing_else_of_it_is_read() {
    let upstream = Upstream::echo().await;
    let port = free_port();
    let lines = format!("listen = \"127.0.0.1:{port}\"\ntoken = {{ file = \"admin.token\" }}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("admin.token"), TOKEN).unwrap();
    let text = File::to(&upstream, &[]).admin(&lines).text();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, &text).unwrap();
    let gateway = Gateway::run(folder, &path).await;
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("admin.token"), TOKEN).unwrap();
    let unset = format!("[store]\nurl = \"${{NOWHERE_SET}}\"\n[admin]\n{lines}\n");
    std::fs::write(elsewhere.path().join("gateway.toml"), unset).unwrap();
    for command in ["status", "reload"] {
        let done = tollgate(elsewhere.path(), &[command]).await;
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let empty = tempfile::tempdir().unwrap();
    let done = tollgate(empty.path(), &["status", "--config", "none.toml"]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    drop(gateway);
}

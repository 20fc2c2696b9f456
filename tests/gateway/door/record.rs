//! The record of changes, tokens that a reload replaces, and the addresses of the admin listener.

use super::{JSON, PACE, READER, TOKEN, TOKENS, ask, bearer, code, file, reload};
use crate::support::{File, Gateway, PATIENCE, Upstream, Wire, eventually, request, tollgate};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use tokio::time::sleep;

#[tokio::test]
async fn every_change_is_recorded_or_there_is_none() {
    let upstream = Upstream::echo().await;
    let lines = format!("audit = \"audit.json\"\n{TOKENS}");
    let gateway = Gateway::start(&file(&upstream, &lines)).await;
    let audit = gateway.folder().join("audit.json");
    let (operator, reader) = (bearer(TOKEN), bearer(READER));
    let token = ("Authorization", operator.as_str());
    reload(&gateway, &[token, JSON]).await.expect(200);
    reload(&gateway, &[("Authorization", &reader), JSON])
        .await
        .expect(403);
    let text = std::fs::read_to_string(&audit).unwrap();
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 2, "{text}");
    for (name, value) in [
        ("event", "admin_change"),
        ("by", "anna"),
        ("via", "token"),
        ("peer", "127.0.0.1"),
        ("action", "reload"),
        ("result", "done"),
    ] {
        assert_eq!(records[0][name], value, "{text}");
    }
    assert_eq!(records[1]["result"], "refused");
    assert_eq!(records[1]["code"], "role");
    let mode = std::fs::metadata(&audit).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A folder stands where the file should be.
    std::fs::remove_file(&audit).unwrap();
    std::fs::create_dir(&audit).unwrap();
    let answer = reload(&gateway, &[token, JSON]).await;
    assert_eq!(
        (answer.status, code(&answer).as_str()),
        (503, "audit_unwritable")
    );
    std::fs::remove_dir(&audit).unwrap();
    reload(&gateway, &[token, JSON]).await.expect(200);
    // The gateway's own log has the record where no file is named.
    gateway.rename_over(&file(&upstream, TOKENS).text());
    eventually(PATIENCE, "the file is taken over", async || {
        sleep(PACE).await;
        let status = ask(&gateway, "GET", "/v1/status", &[], "").await;
        status.json()["generation"] == 2
    })
    .await;
    reload(&gateway, &[token, JSON]).await.expect(200);
    let recorded =
        |line: &str| line.contains("admin_change: {") && line.contains("\"by\":\"anna\"");
    gateway.said.line(0, "the record", recorded).await;
}

#[tokio::test]
async fn tokens_are_replaced_by_a_reload() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&file(&upstream, TOKENS)).await;
    let other = "f".repeat(40);
    gateway.rename_over(&file(&upstream, &format!("token = \"{other}\"")).text());
    let (old, new) = (bearer(TOKEN), bearer(&other));
    eventually(PATIENCE, "the new token opens", async || {
        sleep(PACE).await;
        let fields = [("Authorization", new.as_str())];
        ask(&gateway, "GET", "/v1/status", &fields, "").await.status == 200
    })
    .await;
    reload(&gateway, &[("Authorization", &new), JSON])
        .await
        .expect(200);
    reload(&gateway, &[("Authorization", &old), JSON])
        .await
        .expect(401);
}

#[tokio::test]
async fn a_list_of_addresses_and_a_socket_for_its_owner() {
    let upstream = Upstream::echo().await;
    let lines = format!("listen = [\"127.0.0.1:0\", \"unix:admin.sock\"]\n{TOKENS}");
    let file = File::to(&upstream, &[]).admin(&lines);
    let gateway = Gateway::start(&file).await;
    ask(&gateway, "GET", "/v1/status", &[], "")
        .await
        .expect(200);
    let socket = gateway.folder().join("admin.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stream = tokio::net::UnixStream::connect(&socket).await.unwrap();
    let asked = request("GET", "/v1/status", &[("Host", "localhost")]);
    Wire::over_unix(stream).ask(asked).await.expect(200);
    let arguments = ["status", "--admin", "unix:admin.sock"];
    let done = tollgate(gateway.folder(), &arguments).await;
    assert_eq!(done.code, Some(0), "{done:?}");
}

//! A team's file and the operator's upstreams: the file reaches them only by a grant. Even then it may not write the
//! fields in which the operator's routes name clients.

use crate::support::{Gateway, PATIENCE, Upstream, eventually, tollgate};
use std::path::Path;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tollgate::intake::claimed_fields::{CLAIMED, USERS};

/// A folder of the operator with a route that names clients to its servers, and in it a folder of a team.
fn house(upstream: &Upstream, include: &str, team: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("team")).unwrap();
    std::fs::write(at("gold-keys"), "secret-key\n").unwrap();
    let main = format!(
        "include = [{include}]\n[server]\nlisten = \"127.0.0.1:0\"\n\
         [groups.gold]\nby = \"header:x-api-key\"\nfile = \"gold-keys\"\n\
         [limits.per-key]\nby = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"3/h\"\n\
         [upstreams.orders]\nservers = \"{}\"\n\
         [routes.orders]\nhost = \"api.example\"\npath = \"/v1/{{*rest}}\"\nupstream = \"orders\"\nlimits = [\"per-key\"]\n\
         forward_identity = {{ x-consumer = \"{{group}}\" }}\n",
        upstream.url()
    );
    std::fs::write(at("gateway.toml"), main).unwrap();
    std::fs::write(at("team/t.toml"), team).unwrap();
    folder
}

fn team(more: &str) -> String {
    format!(
        "[routes.t]\nhost = \"team.example\"\npath = \"/team/{{*rest}}\"\nupstream = \"orders\"\nrewrite = \"/v1/{{*rest}}\"\n{more}"
    )
}

const BOUNDS: &str =
    "files = \"team/*.toml\", hosts = [\"team.example\"], paths = [\"/team/{*rest}\"]";
const FORGED: &str = "request_headers = { set = { x-internal = \"yes\", x-consumer = \"gold\", host = \"api.example\" } }\n";

async fn checked(folder: &TempDir) -> (Option<i32>, String) {
    let done = tollgate(folder.path(), &["check"]).await;
    (done.code, done.stderr)
}

/// A server on a Unix socket that gives one answer on each connection.
fn answer_on(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 4096];
            if stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(answer).await;
            }
        }
    });
}

#[tokio::test]
async fn a_team_reaches_the_operators_servers_by_grant_and_as_nobody_else() {
    let upstream = Upstream::echo().await;
    let folder = house(&upstream, &format!("{{ {BOUNDS} }}"), &team(FORGED));
    let (code, told) = checked(&folder).await;
    assert_eq!(code, Some(1), "{told}");
    let entry = format!("`{{ {BOUNDS}, upstreams = [\"orders\"] }}`");
    assert!(told.contains(&entry), "{told}");

    // Even with a grant, the team's route may not name clients.
    let granted = format!("{{ {BOUNDS}, upstreams = [\"orders\"] }}");
    let folder = house(&upstream, &granted, &team(FORGED));
    let (code, told) = checked(&folder).await;
    assert_eq!(code, Some(1), "{told}");
    assert_eq!(told.matches("[not-granted]").count(), 2, "{told}");
    assert!(told.contains("writes `x-consumer`") && told.contains("for the host `api.example`"));

    // It may not write fields about clients that only a gateway may write, in any spelling.
    let listed = CLAIMED.iter().map(|field| field.name);
    let listed = listed.chain(USERS.iter().map(|field| field.name));
    let others = [
        "x-original-url",
        "x-rewrite-url",
        "x-http-method-override",
        "x-method-override",
        "x-forwarded-prefix",
        "remote_user",
        "-wsra",
    ];
    // No route at all may write these two fields.
    let listed = listed.filter(|name| !["x-real-ip", "x-forwarded-client-cert"].contains(name));
    let claimed = listed.chain(others).map(|name| name.replace('*', "any"));
    let claimed: Vec<String> = claimed.collect();
    assert!(claimed.iter().any(|name| name == "$wsra"), "{claimed:?}");
    for change in ["set", "add"] {
        let fields = claimed.iter().map(|name| format!("\"{name}\" = \"x\""));
        let fields: Vec<String> = fields.collect();
        let forged = format!(
            "request_headers = {{ {change} = {{ {} }} }}\n",
            fields.join(", ")
        );
        let folder = house(&upstream, &granted, &team(&forged));
        let done = tollgate(folder.path(), &["check", "--json"]).await;
        assert_eq!(done.code, Some(1), "{forged}");
        for name in &claimed {
            let told = format!("writes `{name}` for an upstream of another file");
            assert!(done.stdout.contains(&told), "{name}: {}", done.stdout);
        }
    }
    let forged = "forward_identity = { client-cert = \"{group}\" }\n";
    let folder = house(&upstream, &granted, &team(forged));
    let (code, told) = checked(&folder).await;
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("writes `client-cert`"), "{told}");

    let own = "request_headers = { set = { x-internal = \"yes\" } }\n";
    let folder = house(&upstream, &granted, &team(own));
    let path = folder.path().join("gateway.toml");
    let gateway = Gateway::run(folder, &path).await;
    let asked = [
        ("host", "team.example"),
        ("x-consumer", "gold"),
        ("x_consumer", "gold"),
        ("x-other", "1"),
    ];
    let answer = gateway.get_with("/team/orders/1", &asked).await;
    assert_eq!(answer.status, 200);
    let seen = answer.echoed().fields;
    // Fields about itself that a client sends are removed there, as on the operator's route.
    assert_eq!(seen.get("x-consumer"), None);
    assert_eq!(seen.get("x_consumer"), None);
    assert_eq!(seen.get("x-other"), Some("1"));
    assert_eq!(seen.get("x-internal"), Some("yes"));
    assert_eq!(seen.get("host"), Some("team.example"));
}

/// The operator's files that a team's server could try to reach: by a link, or by a folder that is swapped while the
/// gateway runs.
#[tokio::test]
async fn a_team_reaches_no_socket_outside_its_folder_whatever_links_lead_there() {
    let upstream = Upstream::echo().await;
    let folder = house(&upstream, &format!("{{ {BOUNDS} }}"), "");
    let at = |name: &str| folder.path().join(name);
    for name in ["run", "team/run"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    for name in ["run/app.sock", "team/run/app.sock"] {
        answer_on(&at(name));
    }
    std::os::unix::fs::symlink("../run/app.sock", at("team/link.sock")).unwrap();
    let file = |socket: &Path| {
        let url = format!("unix:{}", socket.display());
        format!(
            "[upstreams.t]\nservers = \"{url}\"\neject = false\n{}",
            team("").replace("\"orders\"", "\"t\"")
        )
    };
    for name in ["run/app.sock", "team/link.sock", "team/../run/app.sock"] {
        std::fs::write(at("team/t.toml"), file(&at(name))).unwrap();
        let (code, told) = checked(&folder).await;
        assert_eq!(code, Some(1), "{name}");
        let place = at("run/app.sock").canonicalize().unwrap();
        let entry = format!("upstreams = [\"unix:{}\"]", place.display());
        assert!(
            told.contains("[not-granted]") && told.contains(&entry),
            "{told}"
        );
    }

    std::fs::write(at("team/t.toml"), file(&at("team/run/app.sock"))).unwrap();
    let (before, after) = (at("team/before"), at("team/run"));
    let path = at("gateway.toml");
    let gateway = Gateway::run(folder, &path).await;
    let asked = async || {
        gateway
            .get_with("/team/x", &[("host", "team.example")])
            .await
    };
    assert_eq!(asked().await.status, 200);
    std::fs::rename(&after, &before).unwrap();
    std::os::unix::fs::symlink("../run", &after).unwrap();
    // Connections from before the swap may be kept for a moment.
    eventually(PATIENCE, "the swapped folder leads nowhere", async || {
        asked().await.status == 502
    })
    .await;
    assert!(
        gateway.said.text().contains("leads out of the folder"),
        "{}",
        gateway.said.text()
    );
}

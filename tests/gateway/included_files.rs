//! Included files of a team: the operator's secrets do not reach the team's upstream unless the main file allows it.

use crate::support::{Gateway, PATIENCE, Upstream, eventually, tollgate};
use std::path::Path;
use tempfile::TempDir;

const TOKEN: &str = "TOLLGATE_TEST_TEAM_A_TOKEN";

fn replace(file: &Path, text: &str) {
    let beside = file.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, file).unwrap();
}

/// A folder of the operator with a secret, and with a folder of a team in it.
fn house(upstream: &Upstream, include: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for inner in ["team-a", "secrets.d"] {
        std::fs::create_dir(at(inner)).unwrap();
    }
    std::fs::write(at("redis-password"), "hunter2\n").unwrap();
    std::fs::write(at("secrets.d/team-a-key"), "ours\n").unwrap();
    std::fs::write(at("team-a/key"), "own\n").unwrap();
    let main = |include: &str| {
        format!(
            "include = [{include}]\n[server]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"json\"\n\
             [defaults]\nlimits = [\"per-ip\"]\n[limits.per-ip]\nby = \"ip\"\nrate = \"3/h\"\n\
             [upstreams.a]\nservers = \"{}\"\n",
            upstream.url()
        )
    };
    std::fs::write(at("gateway.toml"), main(include)).unwrap();
    (folder, main("MORE"))
}

fn team(set: &str) -> String {
    format!(
        "[routes.a]\nhost = \"a.example.com\"\npath = \"/a/{{*rest}}\"\nupstream = \"a\"\nlimits = [\"!per-ip\"]\n\
         request_headers.set = {{ {set} }}\n"
    )
}

const EVERYTHING: &str = "x-file = { file = \"../secrets.d/team-a-key\" }, \
    x-own = { file = \"key\" }, x-env = { env = \"TOLLGATE_TEST_TEAM_A_TOKEN\" }, x-text = \"${TOLLGATE_TEST_TEAM_A_TOKEN}\"";

#[tokio::test]
async fn a_team_is_refused_until_the_main_file_says_what_the_error_says() {
    let upstream = Upstream::echo().await;
    let (folder, main) = house(&upstream, "\"team-a/*.toml\"");
    std::fs::write(folder.path().join("team-a/a.toml"), team(EVERYTHING)).unwrap();
    let mut include = "\"team-a/*.toml\"".to_owned();
    // Each run suggests one more entry, which is then written, until no suggestion is left.
    for _ in 0..8 {
        let text = main.replace("MORE", &include);
        std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
        let done = tollgate(folder.path(), &["check"]).await;
        let Some((_, rest)) = done.stderr.split_once("in place of that entry: `") else {
            // The run suggests everything except the variable, which is set where a gateway is started.
            assert!(done.stderr.contains("is not set"), "{}", done.stderr);
            assert!(!done.stderr.contains("[not-granted]"), "{}", done.stderr);
            break;
        };
        assert_eq!(done.code, Some(1));
        include = rest.split_once('`').unwrap().0.to_owned();
    }
    assert_eq!(
        include,
        "{ files = \"team-a/*.toml\", secrets = [\"secrets.d/team-a-key\"], \
         drops = [\"per-ip\"], upstreams = [\"a\"], variables = [\"TOLLGATE_TEST_TEAM_A_TOKEN\"] }"
    );
    let path = folder.path().join("gateway.toml");
    let path = path.to_str().unwrap().to_owned();
    let gateway = Gateway::launch_with(
        folder,
        &["run", "--config", &path],
        &[(TOKEN, Path::new("t0ken"))],
    )
    .await;
    for _ in 0..5 {
        let answer = gateway.get_with("/a/x", &[("host", "a.example.com")]).await;
        assert_eq!(answer.status, 200, "the default is dropped");
        let seen = answer.echoed();
        for (name, value) in [
            ("x-file", "ours"),
            ("x-own", "own"),
            ("x-env", "t0ken"),
            ("x-text", "t0ken"),
        ] {
            assert_eq!(seen.fields.get(name), Some(value), "{name}");
        }
    }
}

#[tokio::test]
async fn a_reload_brings_no_secret_of_the_operators_to_a_team() {
    let upstream = Upstream::echo().await;
    let granted = "{ files = \"team-a/*.toml\", drops = [\"per-ip\"], upstreams = [\"a\"], hosts = [\"a.example.com\"], \
        paths = [\"/a/{*rest}\"], secrets = [\"secrets.d/team-a-*\"], variables = [\"TOLLGATE_TEST_TEAM_A_*\"] }";
    let (folder, _) = house(&upstream, granted);
    let file = folder.path().join("team-a/a.toml");
    std::fs::write(&file, team("x-own = { file = \"key\" }")).unwrap();
    let path = folder.path().join("gateway.toml");
    let gateway = Gateway::run(folder, &path).await;
    let sent = async |name: &str| {
        let answer = gateway.get_with("/a/x", &[("host", "a.example.com")]).await;
        answer.echoed().fields.get(name).map(str::to_owned)
    };
    assert_eq!(sent("x-own").await.as_deref(), Some("own"));
    let (password, home) = (gateway.folder().join("redis-password"), gateway.folder());
    let absolute = format!("x-own = {{ file = \"{}\" }}", password.display());
    let mut said = 0;
    for (attack, refusal) in [
        (
            "x-own = { file = \"../redis-password\" }",
            "may not read the file",
        ),
        (&absolute, "may not read the file"),
        (
            "x-own = { file = \"../secrets.d/../redis-password\" }",
            "may not read the file",
        ),
        (
            "x-own = { file = \"../secrets.d/team-b-key\" }",
            "may not read the file",
        ),
        ("x-own = { env = \"PATH\" }", "may not read the variable"),
        ("x-own = \"${PATH}\"", "may not read the variable"),
    ] {
        replace(&file, &team(attack));
        said += 1;
        eventually(PATIENCE, attack, async || {
            let told = gateway.said.text();
            told.matches("not-granted").count() >= said && told.contains(refusal)
        })
        .await;
        assert_eq!(sent("x-own").await.as_deref(), Some("own"), "{attack}");
    }
    // A link that leads to another file is not a change of a value.
    replace(&file, &team("x-own = { file = \"key\" }, x-now = \"1\""));
    eventually(PATIENCE, "the good file", async || {
        sent("x-now").await.is_some()
    })
    .await;
    let link = home.join("team-a/next");
    std::os::unix::fs::symlink("../redis-password", &link).unwrap();
    std::fs::rename(&link, home.join("team-a/key")).unwrap();
    eventually(PATIENCE, "the link is refused", async || {
        gateway.said.text().matches("not-granted").count() > said
    })
    .await;
    assert_eq!(sent("x-own").await.as_deref(), Some("own"));
}

/// A message about a file that is not TOML shows a line of that file, whatever the file is.
#[tokio::test]
async fn a_link_that_looks_like_a_file_of_routes_shows_no_secret() {
    let upstream = Upstream::echo().await;
    let (folder, main) = house(&upstream, "\"team-a/*.toml\"");
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink("../redis-password", at("team-a/z.toml")).unwrap();
    for entry in ["\"team-a/*.toml\"", "{ files = \"team-a/*.toml\" }"] {
        let text = main.replace("MORE", entry);
        std::fs::write(at("gateway.toml"), text).unwrap();
        let done = tollgate(folder.path(), &["check"]).await;
        assert_eq!(done.code, Some(1));
        assert!(done.stderr.contains("[not-granted]"), "{}", done.stderr);
        assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    }
}

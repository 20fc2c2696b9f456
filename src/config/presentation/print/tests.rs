//! The printed file means the same as the original, and shows no secret.

use super::*;
use crate::config::presentation::diff::diff;
use crate::config::{load, parse};
use std::fs;

fn printed(path: &Path) -> (String, Compiled) {
    print(path, &EnvironmentFiles::default())
        .unwrap_or_else(|report| panic!("{}", report.human(crate::config::render::Colour::Off)))
}

#[test]
fn it_means_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("refused.json"), "{}").unwrap();
    fs::write(
        folder.path().join("key"),
        "0123456789abcdef0123456789abcdef",
    )
    .unwrap();
    fs::write(
        folder.path().join("inherited.toml"),
        "[response]\nbody = \"file:refused.json\"\n\
         [jwt]\nalgorithms = \"HS256\"\nkeys = \"key\"\n\
         [groups.gold]\nby = \"header:x-api-key\"\nmembers = [\"a\"]\n\
         [limits.tiered]\nby = \"ip\"\nrate = \"10/s\"\ntiers.gold = { rate = \"100/s\" }\n\
         [limits.tried]\nby = \"ip\"\nrate = \"10/s\"\ncandidate = { rate = \"5/s\" }\n\
         [limits.queued]\nby = \"jwt:sub\"\nmissing = \"ip\"\nrate = \"10/s\"\n\
         algorithm = \"leaky-bucket\"\nover = \"delay\"\ntiers.gold = { rate = \"100/s\" }\n\
         [limits.tried-queue]\nby = \"ip\"\nrate = \"10/s\"\nalgorithm = \"leaky-bucket\"\n\
         candidate = { rate = \"5/s\", max_wait = \"1s\" }\n\
         [upstreams.u]\nservers = \"a:1\"\n\
         [routes.r]\npath = \"/r\"\nquery = { \"$filter\" = \"$$x\" }\nupstream = \"u\"\n\
         limits = [\"tiered\", \"tried\", \"queued\", \"tried-queue\"]\n",
    )
    .unwrap();
    // The certificates exist only on the machine that the file is for.
    std::os::unix::fs::symlink(root.join("tests/config/tls"), folder.path().join("tls")).unwrap();
    fs::copy(
        root.join("deploy/https.toml"),
        folder.path().join("https.toml"),
    )
    .unwrap();
    let files = ["tests/config/valid", "deploy", "."].map(|name| root.join(name));
    let files = files.iter().map(std::path::PathBuf::as_path);
    let all = files.chain([folder.path()]).flat_map(|folder| {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path())
    });
    let is_one = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let is_whole =
            path.extension().is_some_and(|end| end == "toml") && text.contains("[routes");
        is_whole && !path.ends_with("deploy/https.toml")
    };
    let mut many = 0;
    for path in all.filter(is_one) {
        many += 1;
        let (text, compiled) = printed(&path);
        // What stands for a token is too short for one.
        let text = text.replace(
            "token = \"***",
            "token = \"in-place-of-a-token-in-the-file-",
        );
        let reparsed = parse("resolved", &text).unwrap_or_else(|report| {
            panic!("{text}{}", report.human(crate::config::render::Colour::Off))
        });
        let mut changes = diff(&compiled.outline, &reparsed.outline, &compiled.boot);
        changes.retain(|change| {
            // The printed file does not contain the secrets.
            !["store.password", "store.sentinel", "admin.token"].contains(&&*change.subject)
                && !change.what.contains("_headers changed")
        });
        assert!(
            changes.is_empty(),
            "{}: {changes:?}\n{text}",
            path.display()
        );
    }
    assert!(many > 6, "{many}");
}

#[test]
fn everything_is_in_it_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("routes.d")).unwrap();
    fs::write(at("routes.d/key"), "s3cret").unwrap();
    fs::write(
        at("gateway.toml"),
        "include = { files = \"routes.d/*.toml\", variables = \"CARGO_*\", upstreams = \"u\" }\n[store]\nurl = \"redis+sentinel://user:hunter2@a,b:7/cache\"\n\
         sentinel = { username = \"watcher\", password = \"hunter3\" }\n\
         [limits.per-client]\nby = \"ip\"\nrate = \"${RATE_NOT_SET:-7/s}\"\n\
         [upstreams.u]\nservers = \"a:1\"\n",
    )
    .unwrap();
    fs::write(
        at("routes.d/a.toml"),
        "[routes.a]\nupstream = \"u\"\nlimits = \"per-client\"\n\
         request_headers.set = { x-api-key = { file = \"key\" }, x-token = \"other\", x-a = \"b\", x-given = \"v-${CARGO_PKG_NAME}\" }\n\
         [routes.\"b\"]\npath = \"/b\"\nheaders = { x-token = \"t1\" }\nupstream = \"u\"\n\
         [routes.c]\npath = \"/b\"\nheaders = { x-token = \"t2\" }\nupstream = \"u\"\n",
    )
    .unwrap();
    let (text, _) = printed(&at("gateway.toml"));
    for expected in [
        "1 included file merged",
        "[server]\nlisten = \":8080\" # default\n",
        "url = \"redis+sentinel://user:***@a,b:7/cache\"\n",
        "sentinel = { username = \"watcher\", password = \"***2\" }\n",
        "rate = \"7/s\"\n",
        "burst = 7 # default\n",
        "algorithm = \"token-bucket\" # default\n",
        "request_headers = { set = { x-api-key = \"***3\", x-token = \"***4\", x-a = \"b\", x-given = \"***5\" } }\n",
        "path_case = \"sensitive\" # default\n",
        "[routes.c]\n",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    for secret in [
        "s3cret",
        "hunter2",
        "hunter3",
        "other",
        "\"t1\"",
        "\"t2\"",
        "include =",
    ] {
        assert!(!text.contains(secret), "{secret}\n{text}");
    }
    assert!(!text.contains("buckets"), "another algorithm's\n{text}");
    fs::write(at("printed.toml"), &text).unwrap();
    assert!(load(&at("printed.toml")).is_ok(), "{text}");
}

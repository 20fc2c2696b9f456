//! The answers of `tollgate explain` about groups: the group whose numbers apply, exempt clients, and the choice among
//! several groups.

use super::FILE;
use crate::support::{File, Gateway, Upstream, request, tollgate};
use serde_json::Value;

#[tokio::test]
async fn a_tier_and_its_group_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let groups = "\
        [groups.gold]\nby = \"header:x-api-key\"\nfile = \"gold.txt\"\n\
        [groups.office]\nby = \"ip\"\nmembers = \"198.51.100.0/24\"\n";
    let limit = "rate = \"100/min\"\nburst = 20";
    let tiers = "unknown = \"ip\"\ntiers.gold = { rate = \"1000/min\", burst = 200 }\nexempt = { groups = \"office\" }";
    let text = format!(
        "{groups}{}",
        FILE.replacen(limit, &format!("{limit}\n{tiers}"), 1)
    );
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.path().join("gold.txt"), "top-secret\n").unwrap();
    let config = file.to_str().unwrap();
    let ask = async |arguments: &[&str]| {
        let all = [
            &["explain", "GET", "/v1/orders/7", "--config", config],
            arguments,
        ]
        .concat();
        let done = tollgate(folder.path(), &all).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(!done.stdout.contains("secret"), "{done:?}");
        done.stdout
    };
    let gold = ["-H", "x-api-key: top-secret"];
    let said = ask(&gold).await;
    for line in [
        "  for group gold, which the client is in: at most 200 at once, 1200 in the first minute, 1000 in each later minute",
        "on an unused counter it admits this request and has 199 left",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let json = |said: &str| serde_json::from_str::<Value>(said).unwrap()["limits"][0].clone();
    let limit = json(&ask(&[&gold[..], &["--json"]].concat()).await);
    assert_eq!(limit["group"], "gold");
    assert_eq!(
        limit["tier"],
        "at most 200 at once, 1200 in the first minute, 1000 in each later minute"
    );
    let said = ask(&["-H", "x-api-key: other"]).await;
    assert!(
        said.contains("for everyone: the client is not in gold"),
        "{said}"
    );
    assert!(said.contains("on the key %ip=127.0.0.1"), "{said}");
    let office = ["--from", "198.51.100.7"];
    let said = ask(&office).await;
    let spared = "does not apply: the limit exempts group office, which the client is in";
    assert!(said.contains(spared), "{said}");
    let limit = json(&ask(&[&office[..], &["--json"]].concat()).await);
    assert_eq!(
        (&limit["applies"], &limit["group"]),
        (&false.into(), &"office".into())
    );

    // The key is refused like an invented one, and the message says so.
    let text = std::fs::read_to_string(&file).unwrap();
    let strict = text.replace("unknown = \"ip\"", "unknown = \"refuse\"");
    std::fs::write(&file, &strict).unwrap();
    let invented = ["-H", "x-api-key: other"];
    let said = ask(&invented).await;
    assert!(
        said.contains("refuses: no group knows the request's header:x-api-key"),
        "{said}"
    );
    assert!(said.contains("answer  401 by the gateway"), "{said}");
    let limit = json(&ask(&[&invented[..], &["--json"]].concat()).await);
    assert_eq!(limit["unknown"], "header:x-api-key");
    std::fs::write(&file, text).unwrap();

    // The file without the store, whose password is not available here.
    let text = std::fs::read_to_string(&file).unwrap();
    let store = text.find("[store]").unwrap()..text.find("[limits.").unwrap();
    std::fs::write(&file, text.replace(&text[store], "")).unwrap();
    let done = tollgate(folder.path(), &["check", "--config", config]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    for line in [
        "           group gold: at most 200 at once, 1200 in the first minute, 1000 in each later minute",
        "  group gold: 1 member by header:x-api-key",
        "; not for group office; 401 without one; by client address where no group knows it",
    ] {
        assert!(done.stdout.contains(line), "{line}: {done:?}");
    }
}

/// `explain` names the same cause of an exemption as the gateway's log: no group if another cause suffices, else the
/// first group.
#[tokio::test]
async fn of_two_reasons_to_be_exempt_the_gateways_is_told() {
    let upstream = Upstream::echo().await;
    let group = |name: &str| format!("[groups.{name}]\nby = \"header:x-api-key\"\nmembers = \"k\"");
    let file = File::to(&upstream, &["l"])
        .with(&group("second"))
        .with(&group("first"))
        .limit("l", "by = \"ip\"\nrate = \"1/h\"\nexempt = { methods = [\"PUT\"], groups = [\"first\", \"second\"] }");
    let gateway = Gateway::start(&file).await;
    for (method, group) in [("PUT", Value::Null), ("GET", "first".into())] {
        let asking = request(method, "/", &[("X-Api-Key", "k")]);
        let answer = gateway.connect().await.ask(asking).await.expect(200);
        assert_eq!(gateway.line_of(&answer).await["groups"]["l"], group);
        let asked = ["explain", method, "/", "-H", "x-api-key: k", "--json"];
        let done = tollgate(gateway.folder(), &asked).await;
        let explained: Value = serde_json::from_str(&done.stdout).unwrap();
        let limit = &explained["limits"][0];
        assert_eq!(limit["exempt"], true, "{done:?}");
        assert_eq!(limit["group"], group, "{done:?}");
    }
}

/// The user, the customer and the fault of a Basic credential are said, and its password is not.
#[tokio::test]
async fn users_and_their_passwords_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[groups.staff]\nby = \"basic\"\ncustomers = { clerk = \"sha256:582ec2d080190e7bada67215c87fee6bbc9579018e22b81b42612acb95d06d52\" }\n\
        [limits.user]\nby = \"basic:user\"\nmissing = \"refuse\"\nrate = \"9/h\"\n\
        [limits.staff]\nby = \"customer\"\nmissing = \"refuse\"\nrate = \"9/h\"\n\
        [upstreams.u]\nservers = \"127.0.0.1:1\"\n[routes.r]\nupstream = \"u\"\nlimits = [\"user\", \"staff\"]\n";
    std::fs::write(folder.path().join("gateway.toml"), file).unwrap();
    // `anna:right-1`, `anna:other`, `anna` without a colon, and no credential.
    for (credential, lines) in [
        (
            "Basic YW5uYTpyaWdodC0x",
            &[
                "customer clerk, staff, gateway.toml:1",
                "on the key anna",
                "on the key clerk",
            ][..],
        ),
        (
            "basic YW5uYTpvdGhlcg==",
            &[
                "on the key anna",
                "refuses: no group knows the request's basic",
            ],
        ),
        (
            "Basic YW5uYQ==",
            &[
                "refuses with 400: basic:user is malformed",
                "refuses with 400: basic is malformed",
            ],
        ),
        ("Bearer x", &["refuses: the request has no basic:user"]),
    ] {
        let field = format!("authorization: {credential}");
        let done = tollgate(folder.path(), &["explain", "GET", "/", "-H", &field]).await;
        for line in lines {
            assert!(done.stdout.contains(line), "{line}: {done:?}");
        }
        assert!(!done.stdout.contains("right-1"), "{done:?}");
    }
}

/// The line that names the customer is the one with the credential of the request. A plan's list alone names nobody.
#[tokio::test]
async fn a_customer_is_shown_with_groups_and_lines() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "keys.txt",
        "# NAME CREDENTIAL\nacme key-1\nbeta key-2\nacme\tkey-3\n",
    );
    write("gold.txt", "beta\nlost\nacme\n");
    write(
        "gateway.toml",
        "[groups.pro]\nby = \"header:x-api-key\"\ncustomers = \"keys.txt\"\n\
         [groups.gold]\nby = \"customer\"\nfile = \"gold.txt\"\n\
         [groups.office]\nby = \"ip\"\ncustomers = { acme = \"192.0.2.0/24\" }\n\
         [limits.l]\nby = \"customer\"\nmissing = \"refuse\"\nrate = \"9/h\"\ntiers.gold = { burst = 4 }\n\
         [upstreams.u]\nservers = \"127.0.0.1:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"l\"\n",
    );
    for (asked, said) in [
        (
            &["-H", "x-api-key: key-1"][..],
            "customer acme, pro, keys.txt:2; gold, gold.txt:3; office, gateway.toml:7",
        ),
        (
            &["-H", "x-api-key: key-3"],
            "customer acme, pro, keys.txt:4; gold, gold.txt:3; office, gateway.toml:7",
        ),
        (
            &["--customer", "acme"],
            "customer acme, pro, keys.txt:2; gold, gold.txt:3; office, gateway.toml:7",
        ),
        (
            &["--customer", "beta"],
            "customer beta, pro, keys.txt:3; gold, gold.txt:1\n",
        ),
        (
            &["--customer", "lost"],
            "customer lost, gold, gold.txt:2; no credential is known for it",
        ),
    ] {
        let all = [&["explain", "GET", "/"], asked].concat();
        let done = tollgate(folder.path(), &all).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.contains(said), "{said}: {done:?}");
        assert!(!done.stdout.contains("key-"), "{done:?}");
    }
    let all = ["explain", "GET", "/", "--customer", "acme", "--json"];
    let done = tollgate(folder.path(), &all).await;
    let said: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(said["customer"]["at"][0], "keys.txt:2", "{done:?}");
    assert_eq!(said["customer"]["has_credential"], true);
}

/// The route of an assumed customer depends on no token, so that no limit comes before the token.
#[tokio::test]
async fn an_assumed_customer_is_not_lost_before_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let key = format!("{}/tests/config/jwt/hs.secret", env!("CARGO_MANIFEST_DIR"));
    let file = format!(
        "[jwt]\nkeys = {key:?}\nalgorithms = \"HS256\"\n\
         [groups.pro]\nby = \"jwt:sub\"\ncustomers = true\n\
         [groups.gold]\nby = \"customer\"\nmembers = \"acme\"\n\
         [limits.l]\nby = \"ip\"\nrate = \"9/h\"\n[upstreams.u]\nservers = \"127.0.0.1:1\"\n\
         [routes.r]\nupstream = \"u\"\nlimits = \"l\"\ngroups = \"gold\"\n\
         [routes.rest]\nupstream = \"u\"\nlimits = \"l\"\n"
    );
    std::fs::write(folder.path().join("gateway.toml"), file).unwrap();
    let field = "authorization: Bearer opaque";
    let all = [
        "explain",
        "GET",
        "/",
        "--customer",
        "acme",
        "-H",
        field,
        "--json",
    ];
    let done = tollgate(folder.path(), &all).await;
    let said: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(said["route"]["name"], "r", "{done:?}");
    assert_eq!(
        said["limits_before_token"],
        serde_json::json!([]),
        "{done:?}"
    );
}

/// Groups of the main file come first, then those of the included files, in their order.
#[tokio::test]
async fn groups_of_several_files_have_one_order() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let group = |name: &str, members: &str| {
        format!("[groups.{name}]\nby = \"header:x-api-key\"\nmembers = {members}\n")
    };
    let main = group("main", "[\"all\"]");
    let rest = "[limits.l]\nby = \"ip\"\nrate = \"1/h\"\n\
        tiers.a = { burst = 2 }\ntiers.main = { burst = 3 }\ntiers.z = { burst = 4 }\n\
        [upstreams.u]\nservers = \"127.0.0.1:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"l\"\n";
    write("1.toml", &group("z", "[\"all\", \"two\"]"));
    write("2.toml", &group("a", "[\"all\", \"two\"]"));
    for (include, of_two) in [("[\"[0-9].toml\"]", "z"), ("[\"2.toml\", \"1.toml\"]", "a")] {
        write(
            "gateway.toml",
            &format!("include = {include}\n{main}{rest}"),
        );
        for (key, group) in [("all", "main"), ("two", of_two)] {
            let field = format!("x-api-key: {key}");
            let done = tollgate(folder.path(), &["explain", "GET", "/", "-H", &field]).await;
            let said = format!("for group {group}, which the client is in");
            assert!(done.stdout.contains(&said), "{include} {key}: {done:?}");
        }
    }
}

//! Tests of the changes of a reload in words.

use super::*;
use crate::config::{load, parse};
use std::sync::Arc;

const OLD: &str = "\
    [server]\nlisten = \":8080\"\n\
    [limits.a]\nby = \"ip\"\nrate = \"10/s\"\n\
    [limits.gone]\nby = \"ip\"\nrate = \"10/s\"\n\
    [upstreams.u]\nservers = \"a:1\"\n\
    [routes.r]\nupstream = \"u\"\nlimits = [\"a\", \"gone\"]\n";

fn changes(new: &str) -> Vec<String> {
    let old = parse("gateway.toml", OLD).unwrap().outline;
    let new = parse("gateway.toml", new).unwrap().outline;
    diff(&old, &new, &old.boot)
        .iter()
        .map(FileChange::to_string)
        .collect()
}

#[test]
fn the_same_file_changes_nothing() {
    assert!(changes(&format!("# a comment\n{OLD}")).is_empty());
}

#[test]
fn changes_are_said_in_words() {
    let new = OLD
        .replace(":8080", ":9090")
        .replace(
            "by = \"ip\"\nrate = \"10/s\"\n[limits.gone]",
            "by = \"ip\"\nrate = \"20/s\"\n[limits.fresh]",
        )
        .replace("\"gone\"", "\"fresh\"")
        .replace("a:1", "b:2");
    assert_eq!(
        changes(&new),
        [
            "limits.gone: removed; its counters go on if the limit comes back while they still exist",
            "limits.a: rate 10/s to 20/s, burst 10 to 20, units used stay used",
            "limits.fresh: added, counters start afresh, or go on where a limit of this name counted so before",
            "upstreams.u: servers http://a:1 to http://b:2",
            "routes.r: limits a+gone to a+fresh",
            "server.listen: changed, needs a restart; still :8080",
        ]
    );
}

#[test]
fn who_is_trusted_is_told() {
    let with = |trust: &str| {
        let text = OLD.replacen("[server]\n", &format!("[server]\ntrust = {trust}\n"), 1);
        parse("gateway.toml", &text).unwrap().outline
    };
    let (old, new) = (with("\"10.0.0.0/8\""), with("[\"10.0.0.0/8\", \"::1\"]"));
    let shown = diff(&old, &new, &old.boot);
    assert_eq!(
        shown[0].to_string(),
        "server.trust: 10.0.0.0/8 to 10.0.0.0/8+::1/128"
    );
    let new = with("\"10.0.0.0/8\"\ntrust_field = \"forwarded\"");
    let shown = diff(&old, &new, &old.boot);
    assert_eq!(
        shown[0].to_string(),
        "server.trust_field: either to forwarded"
    );
}

#[test]
fn the_field_that_names_clients_and_lost_networks_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    let with = |networks: &str| {
        std::fs::write(folder.path().join("cdn.txt"), networks).unwrap();
        let server = "[server]\ntrust = { file = \"cdn.txt\" }\ntrust_field = \"x-client\"\n";
        std::fs::write(&path, OLD.replacen("[server]\n", server, 1)).unwrap();
        load(&path).unwrap().outline
    };
    let (one, two) = (with("192.0.2.0/24\n"), with("192.0.2.0/24\n198.51.100.7\n"));
    let shown = diff(&one, &two, &one.boot);
    assert_eq!(
        shown[0].to_string(),
        "server.trust: 192.0.2.0/24 to 192.0.2.0/24+198.51.100.7/32"
    );
    assert_eq!(taken_away(&one, &two), None);
    let lost = taken_away(&two, &one);
    assert_eq!(lost.as_deref(), Some("198.51.100.7/32 of `server.trust`"));
    let old = parse("gateway.toml", OLD).unwrap().outline;
    let shown: Vec<String> = diff(&old, &one, &old.boot)
        .iter()
        .map(FileChange::to_string)
        .collect();
    assert!(
        shown.contains(&"server.trust_field: either to x-client".to_owned()),
        "{shown:?}"
    );
}

#[test]
fn what_clients_see_of_limits_is_told() {
    let new = OLD.replacen("rate = \"10/s\"\n", "rate = \"10/s\"\nshown = false\n", 1);
    assert_eq!(
        changes(&format!(
            "[response]\nx_ratelimit = {{ reset = \"seconds\" }}\n{new}"
        )),
        [
            "limits.a: shown true to false, counters kept",
            "response.x_ratelimit: reset unix to reset seconds",
        ]
    );
}

#[test]
fn weeks_of_the_calendar_are_other_weeks() {
    let week = "algorithm = \"fixed-window\"\nanchor = \"clock\"\nrate = \"10/w\"";
    let with = |more: &str| {
        let text = OLD.replacen("rate = \"10/s\"", &format!("{week}\n{more}"), 1);
        parse("gateway.toml", &text).unwrap().outline
    };
    let (old, new) = (with(""), with("timezone = \"UTC\""));
    let shown = diff(&old, &new, &old.boot);
    assert_eq!(shown.len(), 1);
    assert!(
        shown[0].to_string().starts_with("limits.a: timezone"),
        "{}",
        shown[0]
    );
}

#[test]
fn what_servers_may_owe_is_told() {
    for (line, shown) in [
        ("timeout = \"5s\"", "30s by default to 5s"),
        ("timeout = \"30s\"", "30s by default to 30s"),
        ("timeout = false", "30s by default to false"),
    ] {
        assert_eq!(
            changes(&format!("{OLD}{line}\n")),
            [format!("routes.r: timeout {shown}")]
        );
    }
}

#[test]
fn what_routes_ask_for_is_told() {
    let new = format!("{OLD}headers = {{ X-B = true, x-a = \"1\" }}\nscheme = \"https\"\n");
    assert_eq!(
        changes(&new),
        ["routes.r: headers any to x-a = \"1\"+x-b = true, scheme any to https"]
    );
}

#[test]
fn the_demand_of_a_route_is_told() {
    for word in ["required", "none"] {
        let new = format!("{OLD}client_cert = \"{word}\"\n");
        let change = format!("routes.r: client_cert as the identity demands to {word}");
        assert_eq!(changes(&new), [change]);
    }
}

#[test]
fn the_silence_of_a_route_is_told() {
    let new = format!("{OLD}idle = \"10m\"\n");
    assert_eq!(changes(&new), ["routes.r: idle the server's to 10min"]);
}

#[test]
fn what_routes_make_of_the_path_is_told() {
    let (a, b) = (
        format!("{OLD}path = \"/a/{{*rest}}\"\nstrip_prefix = \"/a\"\n"),
        format!("{OLD}path = \"/a/{{*rest}}\"\nrewrite = \"/b/{{*rest}}\"\n"),
    );
    let read = |text: &str| parse("gateway.toml", text).unwrap().outline;
    let (old, new) = (read(&a), read(&b));
    let shown = diff(&old, &new, &old.boot);
    assert_eq!(
        shown[0].to_string(),
        "routes.r: strip_prefix /a to none, rewrite none to /b/{*rest}"
    );
}

#[test]
fn changes_of_fields_are_told_without_values() {
    let with = |value: &str| {
        let set = format!("{{ set = {{ x-key = \"{value}\" }}, remove = \"cookie\" }}");
        parse(
            "gateway.toml",
            format!("{OLD}request_headers = {set}\n").as_str(),
        )
        .unwrap()
        .outline
    };
    let plain = parse("gateway.toml", OLD).unwrap().outline;
    let changes_between = |old: &Outline, new: &Outline| diff(old, new, &old.boot)[0].to_string();
    assert_eq!(
        changes_between(&plain, &with("one")),
        "routes.r: request_headers none to set x-key and remove cookie"
    );
    assert_eq!(
        changes_between(&with("one"), &with("two")),
        "routes.r: request_headers changed: set x-key and remove cookie"
    );
}

#[test]
fn hosts_members_and_what_is_told_of_clients_are_told() {
    const GROUP: &str = "[groups.g]\nby = \"header:x-api-key\"\nmembers = [\"k\"]\n";
    let with = |upstream: &str, route: &str| {
        let text = OLD.replace("\"a:1\"\n", &format!("\"a:1\"\n{upstream}"));
        let text = format!("{text}{route}{GROUP}");
        parse("gateway.toml", &text).unwrap().outline
    };
    let old = with("", "");
    let new = with(
        "host = \"upstream\"\n",
        "groups = \"g\"\nforward_identity = { x-who = \"g/{group}\" }\n",
    );
    let changed = diff(&old, &new, &old.boot);
    let changed: Vec<String> = changed.iter().map(FileChange::to_string).collect();
    assert_eq!(
        changed,
        [
            "upstreams.u: host client to upstream",
            "routes.r: groups any to g, forward_identity none to x-who = \"g/{group}\"",
        ]
    );
}

#[test]
fn another_end_is_told() {
    let with = |end: &str| {
        let text = OLD.replace("upstream = \"u\"", end);
        let outline = parse("gateway.toml", &text).unwrap().outline;
        (outline, text)
    };
    let (old, _) = with("upstream = \"u\"");
    let (lead, _) = with("redirect = { to = \"https://b.test\", status = 307 }");
    let (said, _) = with("respond = { status = 410 }");
    let (more, _) = with("respond = { status = 410, body = \"gone\" }");
    let changes_between = |old: &Outline, new: &Outline| diff(old, new, &old.boot)[0].to_string();
    assert_eq!(
        changes_between(&old, &lead),
        "routes.r: upstream u to none, redirect none to https://b.test (307)"
    );
    assert_eq!(
        changes_between(&lead, &said),
        "routes.r: redirect https://b.test (307) to none, respond none to 410"
    );
    assert_eq!(
        changes_between(&said, &more),
        "routes.r: respond changed: 410"
    );
}

#[test]
fn a_list_of_rates_is_told_as_one_limit() {
    let with = |rate: &str| OLD.replacen("rate = \"10/s\"", rate, 1);
    assert_eq!(
        changes(&with("rate = [\"10/s\", \"100/min\"]")),
        [
            "limits.a: rate 10/s to 10/s and 100/min, burst 10 to 10 and 100, counters start afresh, or go on where this limit counted so before"
        ]
    );
    let log = |rate: &str| with(&format!("algorithm = \"sliding-log\"\nrate = {rate}"));
    let parsed = |text: &str| parse("gateway.toml", text).unwrap().outline;
    let (old, new) = (
        parsed(&log("\"10/s\"")),
        parsed(&log("[\"9/s\", \"80/min\"]")),
    );
    let changes = diff(&old, &new, &old.boot);
    assert_eq!(
        changes[0].to_string(),
        "limits.a: rate 10/s to 9/s and 80/min, counters kept for rates over the same time"
    );
}

#[test]
fn another_kind_starts_afresh() {
    let new = OLD.replacen(
        "rate = \"10/s\"",
        "rate = \"10/s\"\nalgorithm = \"fixed-window\"",
        1,
    );
    assert_eq!(
        changes(&new),
        [
            "limits.a: algorithm token-bucket to fixed-window, counters start afresh, or go on where this limit counted so before"
        ]
    );
    let new = OLD.replacen("rate = \"10/s\"", "rate = \"10/s\"\nwith = \"t\"", 1);
    let shown = changes(&new).concat();
    assert!(shown.starts_with("limits.a: with its own keys to t, counters start afresh"));
}

#[test]
fn secrets_are_compared_and_not_shown() {
    let with = |url: &str| format!("[store]\nurl = \"{url}\"\n{OLD}");
    let old = parse("gateway.toml", &with("redis://:one@h"))
        .unwrap()
        .outline;
    let new = parse("gateway.toml", &with("redis://:two@h"))
        .unwrap()
        .outline;
    let changes = diff(&old, &new, &old.boot);
    assert_eq!(changes.len(), 1);
    assert_eq!(
        changes[0].to_string(),
        "store.password: changed; new connections use it"
    );
}

#[test]
fn what_is_believed_is_told_with_values_and_without_keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let outline = |jwt: &str, secret: &str| -> Arc<Outline> {
        let rest = "[limits.a]\nby = \"ip\"\nrate = \"10/s\"\n[upstreams.u]\nservers = \"a:1\"\n\
             [routes.r]\nupstream = \"u\"\nlimits = \"a\"\n";
        let jwt = jwt.replace("hs256", "algorithms = \"HS256\"");
        std::fs::write(&file, format!("{jwt}{rest}")).unwrap();
        for name in ["one.secret", "two.secret"] {
            std::fs::write(folder.path().join(name), secret).unwrap();
        }
        load(&file).unwrap().outline
    };
    let changes_between = |old: &Outline, new: &Outline| -> Vec<String> {
        let changes = diff(old, new, &old.boot);
        changes.iter().map(ToString::to_string).collect()
    };
    let (secret, other) = ("s".repeat(40), "o".repeat(40));
    let old = outline("[jwt]\nkeys = \"one.secret\"\nhs256\n", &secret);
    let more = "issuer = \"https://i.test\"\nleeway = \"30s\"\nrequire_exp = false\n";
    let new = outline(
        &format!("[jwt]\nkeys = \"one.secret\"\nhs256\n{more}"),
        &secret,
    );
    assert_eq!(
        changes_between(&old, &new),
        ["jwt: issuer none to https://i.test, leeway 0s to 30s, require_exp true to false"]
    );
    let moved = outline("[jwt]\nkeys = \"two.secret\"\nhs256\n", &secret);
    assert_eq!(changes_between(&old, &moved), [""; 0]);
    let another = outline("[jwt]\nkeys = \"two.secret\"\nhs256\n", &other);
    assert_eq!(
        changes_between(&old, &another),
        ["jwt: keys one.secret to two.secret"]
    );
    assert_eq!(
        changes_between(&moved, &another),
        ["jwt: the contents of two.secret have changed"]
    );
    assert_eq!(changes_between(&old, &outline("", "")), ["jwt: removed"]);
}

#[test]
fn an_order_with_another_authority_is_told() {
    let with = |keys: &str| {
        let text = format!(
            "{OLD}[tls.shop]\nacme = \"public\"\nhosts = \"shop.example\"\n[acme.public]\nagree = true\nstorage = \"acme\"\n{keys}"
        );
        parse("gateway.toml", &text).unwrap().outline
    };
    let (old, new) = (
        with(""),
        with("directory = \"staging\"\nprofile = \"shortlived\"\n"),
    );
    let shown = diff(&old, &new, &old.boot);
    assert_eq!(
        shown[0].to_string(),
        "tls.shop: certificate ordered from public (https://acme-v02.api.letsencrypt.org/directory) to ordered from public (https://acme-staging-v02.api.letsencrypt.org/directory, profile shortlived)"
    );
    // No certificate depends on a mail address.
    assert!(diff(&old, &with("contact = \"ops@example.com\"\n"), &old.boot).is_empty());
}

#[test]
fn what_an_answer_decides_is_told() {
    let line = "cost = { status = { \"401\" = 1 } }\nrefund = [\"404\", \"cancel\"]\n";
    let new = OLD.replacen("rate = \"10/s\"\n", &format!("rate = \"10/s\"\n{line}"), 1);
    let shown = changes(&new);
    assert!(
        shown[0].contains("cost 1 to 1 after 401, else 0 (1 before the answer)")
            && shown[0].contains("refund nothing to 404 or cancel"),
        "{shown:?}"
    );
}

/// In a cluster another slot may refuse, and a charge comes back by the history: states with one have another name.
#[test]
fn buckets_of_a_cluster_have_counters_of_their_own() {
    let one = parse("gateway.toml", OLD).unwrap().outline;
    let stored = |url: &str| {
        let text = format!("[store]\nurl = \"{url}\"\n{OLD}");
        parse("gateway.toml", &text).unwrap().outline
    };
    let kinds = |outline: &crate::config::outline::Outline| -> Vec<_> {
        outline
            .limits
            .iter()
            .map(|limit| limit.kind.to_string())
            .collect()
    };
    assert_eq!(kinds(&stored("redis://h:6379/0")), kinds(&one));
    let spread = kinds(&stored("redis+cluster://h:6379"));
    assert!(spread.iter().any(|kind| kind == "tbs"), "{spread:?}");
    assert!(!kinds(&one).contains(&"tbs".to_owned()));
}

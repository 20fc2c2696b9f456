//! `--set`: a second file is compared with the first. Mistakes in it are shown as they were written in the option.

use super::{Bench, at, count};
use serde_json::{Value, json};

/// A trace with twenty clients. The first client asks much more often than the others.
fn trace() -> String {
    let mut lines = Vec::new();
    for client in 0..20_u64 {
        let every = if client == 0 {
            150_000
        } else {
            700_000 + client * 1_000
        };
        for turn in 0..60_000_000 / every {
            lines.push((turn * every, client));
        }
    }
    lines.sort_unstable();
    let line = |(at, client): &(u64, u64)| {
        format!(
            "{{\"ts\":\"2026-11-20T17:48:{:02}.{:06}Z\",\"client\":\"203.0.113.{client}\"}}\n",
            at / 1_000_000,
            at % 1_000_000
        )
    };
    lines.iter().map(line).collect()
}

fn bench() -> Bench {
    Bench::limit("rate = \"5/s\"\nburst = 2").trace(trace())
}

#[tokio::test]
async fn the_two_files_are_compared() {
    let report = bench()
        .report(&["--set", "limits.a.rate=1/s", "--set", "limits.a.burst=1"])
        .await;
    let (file, changed) = (&report["file"], &report["changed"]);
    assert_eq!(report["clients"], 20);
    assert_eq!(
        report["set"],
        json!(["limits.a.rate=1/s", "limits.a.burst=1"])
    );
    assert_eq!(
        (&file["clients_refused"], &changed["clients_refused"]),
        (&json!(1), &json!(20))
    );
    assert_eq!(changed["clients_refused_for_the_first_time"], 19);
    // Two units were there before, and 5 a second came until the last request, 59.85 s later.
    assert_eq!(file["refused"], 400 - 2 - 299, "{file}");
    assert_eq!(
        file["worst_minute"],
        json!({ "start_us": 1_795_196_880_000_000_u64, "refused": 99 })
    );
    assert_eq!(report["hardest_hit"][0]["client"], "203.0.113.0");
    assert_eq!(report["hardest_hit"][0]["requests"], 400);
    let sum = |side: &Value| -> u64 {
        let course = &side["course"];
        let parts =
            ["admitted", "delayed", "refused"].map(|part| course[part].as_array().unwrap().clone());
        parts
            .iter()
            .flatten()
            .map(|count| count.as_u64().unwrap())
            .sum()
    };
    assert_eq!(
        (sum(file), sum(changed)),
        (
            report["requests"].as_u64().unwrap(),
            report["requests"].as_u64().unwrap()
        )
    );
}

#[tokio::test]
async fn decisions_are_those_of_the_changed_file() {
    let bench = bench();
    let before = bench.decisions(&[]).await;
    let set = ["--set", "limits.a.rate=1/s", "--set", "limits.a.burst=1"];
    let after = bench.decisions(&set).await;
    assert!(count(&after, "refuse") > count(&before, "refuse"));
    let text = std::fs::read_to_string(bench.path().join("gateway.toml")).unwrap();
    let text = text.replace("5/s", "1/s").replace("burst = 2", "burst = 1");
    let changed = Bench::of(&text).trace(trace());
    assert!(
        changed.decisions(&[]).await == after,
        "as if the file said so"
    );
}

#[tokio::test]
async fn any_key_can_be_set_and_new_limits_made() {
    let set = [
        "--set",
        "limits.b={by = \"everyone\", rate = \"2/s\", algorithm = \"leaky-bucket\"}",
        "--set",
        "limits.b.queue=3",
        "--set",
        "routes.r0.limits=[\"b\", \"a\"]",
        "--set",
        "server.trust=10.0.0.0/8",
    ];
    let bench = bench();
    let decisions = bench.decisions(&set).await;
    assert_eq!(decisions[0]["verdicts"][0]["limit"], "b");
    assert!(count(&decisions, "delay") > 0);
    let told = bench.simulate(&set).await.stdout;
    assert!(told.contains("by b"), "{told}");
}

#[tokio::test]
async fn mistakes_are_those_of_a_file_at_the_place_of_the_option() {
    let bench = bench();
    for (set, said) in [
        ("limits.a.rate=5", "--> --set limits.a.rate:1:15"),
        ("limits.a.rate=5", "write `\"5/s\"`"),
        ("limits.a.brust=5", "did you mean `burst`?"),
        ("limit.a.rate=5/s", "did you mean `limits`?"),
        ("routes.r0.limits=[\"x\"]", "there is no `[limits.x]`"),
        ("limits.a.burst=0", "--> --set limits.a.burst:1:16"),
        ("limits.a.burst=", "--> --set limits.a.burst:1:16"),
    ] {
        let done = bench.simulate(&["--set", set]).await;
        assert_eq!(done.code, Some(2), "{set}: {done:?}");
        assert!(
            done.stderr.contains(said),
            "{set}: {said}:\n{}",
            done.stderr
        );
        assert!(
            done.stderr.ends_with("in gateway.toml with --set\n"),
            "{}",
            done.stderr
        );
        assert_eq!(done.stdout, "");
    }
}

#[tokio::test]
async fn a_conflict_between_file_and_option_shows_both() {
    let bench = Bench::limit("rate = \"5/s\"\nburst = 2").trace(trace());
    let done = bench
        .simulate(&["--set", "limits.a.algorithm=fixed-window"])
        .await;
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains("burst = 2"), "{}", done.stderr);
}

#[tokio::test]
async fn what_is_no_setting_is_wrong_usage() {
    let bench = bench();
    for (set, said) in [
        ("limits.a.rate", "does not say what to set"),
        ("=5", "does not name a key"),
        ("limits..rate=5", "does not name a key"),
        ("store.url=redis://x", "--store"),
    ] {
        let done = bench.simulate(&["--set", set]).await;
        assert_eq!(done.code, Some(2), "{set}: {done:?}");
        assert!(done.stderr.contains(said), "{set}: {}", done.stderr);
    }
}

#[tokio::test]
async fn a_bad_file_is_a_bad_answer() {
    let bench = Bench::of("[limits.a]\nrate = 5\n").trace(trace());
    let done = bench.simulate(&["--set", "limits.a.rate=5/s"]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("--> gateway.toml:2:8"),
        "{}",
        done.stderr
    );
    let none = bench.simulate(&["--config", "absent.toml"]).await;
    assert_eq!(none.code, Some(1), "{none:?}");
}

#[tokio::test]
async fn the_files_own_store_is_ignored() {
    let file = "[store]\nurl = \"redis://127.0.0.1:1\"\npassword = { file = \"/not/there\" }\non_down = \"closed\"\n\
        [limits.a]\nby = \"ip\"\nrate = \"1/h\"\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = [\"a\"]\n";
    let decisions = Bench::of(file).trace(at([0, 1])).decisions(&[]).await;
    assert_eq!(super::words(&decisions), ["admit", "refuse"]);
}

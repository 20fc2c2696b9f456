//! Shadow limits: the report says what they would have done, and they change nothing.

use super::{Bench, at, words};
use crate::support::{File, Gateway, Upstream};
use serde_json::{Value, json};

const LIMITS: &str = "\
    [limits.calls]\nby = \"ip\"\nrate = \"3/s\"\ncandidate = { rate = \"2/s\" }\n\
    [limits.tight]\nby = \"ip\"\nrate = \"1/s\"\nalgorithm = \"sliding-log\"\nmode = \"shadow\"\n\
    [limits.keyed]\nby = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"1/s\"\nmode = \"shadow\"\n";

fn bench() -> Bench {
    // Five requests at once, and one when all units have come back.
    let trace = at([0, 0, 0, 0, 0, 10_000_000]);
    Bench::new(LIMITS, &[("/{*rest}", &["tight", "calls", "keyed"])]).trace(trace)
}

#[tokio::test]
async fn each_says_what_it_would_have_done() {
    let report = bench().report(&[]).await;
    let file = &report["file"];
    // The fourth and fifth requests are refused, and charge nothing.
    assert_eq!((&file["refused"], &file["delayed"]), (&json!(2), &json!(0)));
    assert_eq!(
        file["limits"],
        json!({ "calls": { "refused": 2, "delayed": 0 } })
    );
    let would = |limit: &str| file["shadow"][limit]["would_refuse"].as_u64();
    assert_eq!(would("tight"), Some(4));
    assert_eq!(would("calls:candidate"), Some(3));
    assert_eq!(would("keyed"), Some(6));
    let done = bench().simulate(&[]).await;
    assert!(
        done.stdout
            .contains("  shadow calls:candidate  3 (50.00 %) would be refused"),
        "{done:?}"
    );
}

#[tokio::test]
async fn every_decision_names_them() {
    let decisions = bench().decisions(&[]).await;
    let admits = ["admit", "admit", "admit", "refuse", "refuse", "admit"];
    assert_eq!(words(&decisions), admits);
    for (decision, (tight, candidate)) in decisions.iter().zip([
        (true, true),
        (false, true),
        (false, false),
        (false, false),
        (false, false),
        (true, true),
    ]) {
        assert_eq!(decision["verdicts"].as_array().unwrap().len(), 1);
        let shadow = decision["shadow"].as_array().unwrap();
        let names: Vec<_> = shadow
            .iter()
            .map(|one| (&one["limit"], &one["mode"]))
            .collect();
        let [shadowed, other] = [json!("shadow"), json!("candidate")];
        let [tight_name, calls, keyed] = [json!("tight"), json!("calls"), json!("keyed")];
        let expected = [
            (&tight_name, &shadowed),
            (&calls, &other),
            (&keyed, &shadowed),
        ];
        assert_eq!(names, expected);
        let admitted = |index: usize| shadow[index]["admitted"].as_bool().unwrap();
        assert_eq!(
            (admitted(0), admitted(1), admitted(2)),
            (tight, candidate, false)
        );
        assert_eq!(shadow[2]["key"], json!(null));
    }
}

#[tokio::test]
async fn a_file_without_them_says_nothing_of_them() {
    let bench = Bench::limit("rate = \"3/s\"").trace(at([0]));
    assert!(bench.decisions(&[]).await[0].get("shadow").is_none());
    assert_eq!(bench.report(&[]).await["file"]["shadow"], json!({}));
}

const LATER: &str = "[limits.units]\nby = \"ip\"\nrate = \"1/s\"\nburst = 10\n\
    cost = { response_header = \"x-units\", estimate = 4, max = 30 }\n";

#[tokio::test]
async fn the_true_cost_is_settled_when_the_request_ends() {
    let line = |ts: u64, cost: &str| {
        format!("{{\"ts\":{ts},\"client\":\"203.0.113.9\",\"duration_ms\":500{cost}}}\n")
    };
    let trace = [
        line(0, ",\"cost\":1"),
        // By then three units have come back, so nine are left. A tenth was refilled.
        line(1, ",\"costs\":{\"units\":16}"),
        // Six units are owed, less one that was refilled since. The total is nine, and four are asked for.
        line(2, ""),
        line(11, ",\"cost\":0"),
        line(12, ""),
    ];
    let bench = Bench::new(LATER, &[("/{*rest}", &["units"])]).trace(trace.concat());
    let decisions = bench.decisions(&[]).await;
    assert_eq!(
        words(&decisions),
        ["admit", "admit", "refuse", "admit", "admit"]
    );
    let left: Vec<_> = decisions
        .iter()
        .map(|one| one["verdicts"][0]["remaining"].as_u64().unwrap())
        .collect();
    assert_eq!(left, [6, 6, 0, 0, 1]);
    assert_eq!(decisions[2]["retry_after_us"], 9_000_000);
}

#[tokio::test]
async fn no_line_says_more_than_a_response_may() {
    let told = async |units: u32| {
        let trace = format!(
            "{{\"ts\":0,\"costs\":{{\"units\":{units}}}}}\n{{\"ts\":1,\"path\":\"/\"}}\n{{\"ts\":20,\"path\":\"/\"}}\n{{\"ts\":40,\"path\":\"/\"}}\n"
        );
        let bench = Bench::new(LATER, &[("/{*rest}", &["units"])]).trace(trace);
        bench.decisions(&[]).await
    };
    let most = told(30).await;
    assert_eq!(words(&most), ["admit", "refuse", "refuse", "admit"]);
    assert_eq!(told(1_000_000).await, most);
}

/// The log does not contain a key that no group knows. A line says of a shadow limit only that it would have refused,
/// and has no key of it: the shared counter of requests without a key does not count such a request.
#[tokio::test]
async fn a_key_that_no_group_knows_counts_nowhere() {
    let upstream = Upstream::echo().await;
    let by = "by = \"header:x-api-key\"\nmissing = \"shared\"\nunknown = \"refuse\"";
    let file = File::to(&upstream, &["keyed"])
        .with("[groups.gold]\nby = \"header:x-api-key\"\nmembers = \"k-gold\"")
        .limit("keyed", &format!("{by}\nrate = \"1/h\"\nmode = \"shadow\""))
        // Lines of several workers may be in another order.
        .server("workers = 1");
    let mut gateway = Gateway::start(&file).await;
    for key in ["k-other", "", "", "k-gold", "k-other"] {
        let answer = gateway.get_with("/", &[("X-Api-Key", key)]).await;
        answer.expect(200);
    }
    gateway.stop().await;
    let log = gateway.access.text() + "\n";
    let decisions = Bench::of(&file.text()).trace(&log).decisions(&[]).await;
    let mut said = Vec::new();
    for (line, decision) in log.lines().zip(&decisions) {
        let line: Value = serde_json::from_str(line).unwrap();
        let shadow = &decision["shadow"][0];
        let logged = line["keys"]["keyed"].as_str();
        assert_eq!(shadow["key"].as_str(), logged, "{line}\n{decision}");
        let would_refuse = line["shadow"] == json!(["keyed"]);
        assert_eq!(shadow["admitted"], !would_refuse, "{line}\n{decision}");
        said.push(shadow["admitted"].as_bool().unwrap());
    }
    assert_eq!(said, [false, true, false, true, false]);
}

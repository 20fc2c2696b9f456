//! Requests that clients rarely send: `explain` expects the answer that the gateway then gives.

use crate::support::{File, Gateway, Upstream, request, tollgate};
use serde_json::Value;

/// A method, a target, and fields.
type RareRequest<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

async fn explained(gateway: &Gateway, asked: RareRequest<'_>, more: &[&str]) -> Value {
    let (method, target, fields) = asked;
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let file = gateway.file().display().to_string();
    let mut words = vec!["explain", method, target, "--json", "--config", &file];
    words.extend(fields.iter().flat_map(|field| ["-H", field]));
    words.extend(more);
    let said = tollgate(gateway.folder(), &words).await;
    serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"))
}

#[tokio::test]
async fn rare_requests_get_the_answer_that_explain_expects() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["need-a", "need-k", "k"])
        .with("[groups.gold]\nby = \"header:x-api-key\"\nmembers = \"gold1\"\n")
        .limit(
            "need-a",
            "by = \"header:x-a\"\nmissing = \"refuse\"\nrate = \"100/s\"",
        )
        .limit(
            "need-k",
            "by = \"header:x-api-key\"\nmissing = \"skip\"\nunknown = \"refuse\"\nrate = \"100/s\"",
        )
        .limit(
            "k",
            "by = \"header:x-api-key\"\nmissing = \"skip\"\nrate = \"10/s\"\nburst = 2\ncost = { header = \"x-cost\", max = 50 }",
        );
    let gateway = Gateway::start(&file).await;
    let passes = ["1.1 tollgate"; 11].join(", ");
    let preflight = [
        ("origin", "http://a.test"),
        ("access-control-request-method", "GET"),
        ("content-length", "00"),
    ];
    let cases: [RareRequest<'_>; 11] = [
        // The first limit lacks its key, and the second refuses the key of the third.
        ("GET", "/", &[("x-api-key", "nobody"), ("x-cost", "5")]),
        ("GET", "/", &[("x-a", "1"), ("x-api-key", "nobody")]),
        ("GET", "/", &[("x-a", "1"), ("via", &passes)]),
        ("OPTIONS", "/", &preflight),
        ("POST", "/", &[("x-a", "1"), ("transfer-encoding", "gzip")]),
        ("GET", "/a<b?c=\"", &[("x-a", "1")]),
        ("GET", "/`", &[("x-a", "1")]),
        // Targets that no URI can be read from.
        ("GET", "http://a%2etest/", &[("x-a", "1")]),
        ("GET", "https:///x", &[("x-a", "1")]),
        ("GET", "/a b", &[("x-a", "1")]),
        ("GET", "/", &[("x-a", "1")]),
    ];
    for asked in cases {
        let said = explained(&gateway, asked, &[]).await;
        let (method, target, fields) = asked;
        let fields: Vec<_> = [("host", "gateway.test")]
            .iter()
            .chain(fields)
            .copied()
            .collect();
        let mut client = gateway.connect().await;
        client.send(request(method, target, &fields)).await;
        let answer = client.answer().await;
        let expected = said["answer"]["status"].as_u64().unwrap_or(200);
        assert_eq!(u64::from(answer.status), expected, "{asked:?}: {said}");
        let counted = said["limits"].as_array().into_iter().flatten();
        let counted = counted.filter(|limit| limit["key"].is_string()).count();
        if answer.status != 400 {
            let line = gateway.line_of(&answer).await;
            let keys = line["keys"].as_object().unwrap().len();
            assert_eq!(keys, counted, "{asked:?}: {said} {line}");
        }
    }
}

//! Budgets of tokens: the file of docs/token-budgets.md, sums of members, and answers that say nothing.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Answer, Connection, File, Gateway, PATIENCE, Upstream, eventually, request};
use serde_json::json;

on_both_stores! {
    the_file_of_the_manual_counts_five_models
    members_are_weighed_and_added
    silence_costs_the_most_where_the_file_says_so
    a_field_may_be_silent_too
    who_leaves_between_two_members_pays_the_most
}

/// An upstream that answers with the fields and the body in the request's `x-answer`, with `|` for the ends of lines.
async fn obedient() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let told = head.fields.get("x-answer").unwrap_or("||");
            let told = told.replace('|', "\r\n");
            let (fields, body) = told.split_once("\r\n\r\n").unwrap_or((&told, ""));
            let status = head.fields.get("x-status").unwrap_or("200 OK");
            let fields = match fields.trim() {
                "" => String::new(),
                fields => format!("{fields}\r\n"),
            };
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {status}\r\n{fields}content-length: {length}\r\n\r\n{body}");
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

async fn ask(gateway: &Gateway, path: &str, fields: &[(&str, &str)]) -> Answer {
    gateway.get_with(path, fields).await
}

async fn the_file_of_the_manual_counts_five_models(place: Place) {
    let upstream = obedient().await;
    let page = include_str!("../../../docs/token-budgets.md");
    let block = page.split("```toml\n").nth(1).unwrap();
    let block = block.split("```").next().unwrap();
    let file = block.replace("http://127.0.0.1:9000", &upstream.url());
    let gateway = place.gateway(File::default().with(&file)).await;
    let json = "content-type: application/json||";
    let events = "content-type: text/event-stream||";
    for (path, limit, answer, units) in [
        (
            "/v1/chat/completions",
            "openai-chat",
            format!("{json}{{\"usage\":{{\"prompt_tokens\":19,\"completion_tokens\":10}}}}"),
            59,
        ),
        (
            "/v1/responses",
            "openai-responses",
            format!("{events}data: {{\"response\":{{\"usage\":{{\"input_tokens\":37,\"output_tokens\":11}}}}}}||"),
            81,
        ),
        (
            "/v1/messages",
            "anthropic",
            format!("{events}data: {{\"message\":{{\"usage\":{{\"input_tokens\":11,\"output_tokens\":1}}}}}}||data: {{\"usage\":{{\"output_tokens\":6}}}}||"),
            41,
        ),
        (
            "/v1beta/models/m:generateContent",
            "gemini",
            format!("{json}[{{\"usageMetadata\":{{\"promptTokenCount\":7,\"candidatesTokenCount\":26}}}}]"),
            111,
        ),
        (
            "/api/chat",
            "ollama",
            "content-type: application/x-ndjson||{\"done\":false}|{\"done\":true,\"prompt_eval_count\":26,\"eval_count\":282}|".to_owned(),
            308,
        ),
        // A stream whose client did not ask for its usage.
        (
            "/v1/chat/completions",
            "openai-chat",
            format!("{events}data: {{\"choices\":[],\"usage\":null}}||data: [DONE]||"),
            400_000,
        ),
    ] {
        let fields = [("x-api-key", "example-key"), ("x-answer", &*answer)];
        let answer = ask(&gateway, path, &fields).await.expect(200);
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["costs"][limit], units, "{path} {line}");
    }
    for _ in 0..2 {
        let failing = [("x-api-key", "example-key"), ("x-status", "429 Wait")];
        ask(&gateway, "/api/chat", &failing).await.expect(429);
    }
    eventually(PATIENCE, "failed ones cost nothing", async || {
        let fields = [("x-api-key", "example-key"), ("x-status", "400 No")];
        let asked = ask(&gateway, "/api/chat", &fields).await;
        asked.remaining("ollama") == 5_000_000 - 308 - 2000
    })
    .await;
}

async fn members_are_weighed_and_added(place: Place) {
    let upstream = obedient().await;
    let lines = "by = \"everyone\"\nrate = \"100000/h\"\ncost = { response_json = { \"i|m.i\" = 1, \"c\" = -0.9, \"o\" = 2.5 }, estimate = 10, max = 900 }";
    let file = File::to(&upstream, &["units"]).limit("units", lines);
    let gateway = place.gateway(file).await;
    for (body, units) in [
        ("{\"i\":10,\"o\":3}", 18),
        ("{\"i\":10,\"c\":10}", 1),
        ("{\"i\":10,\"c\":20}", 0),
        ("{\"m\":{\"i\":30.0}}", 30),
        ("{\"i\":3e1,\"o\":0.5}", 32),
        ("{\"i\":1000}", 900),
        ("{\"c\":1}", 10),
        ("{\"i\":null}", 10),
        ("[{\"i\":5},{\"i\":6},{\"o\":2}]", 11),
    ] {
        let answer = format!("content-type: application/json||{body}");
        let answer = ask(&gateway, "/", &[("x-answer", &answer)])
            .await
            .expect(200);
        assert_eq!(answer.text(), body);
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["costs"], json!({ "units": units }), "{body}");
    }
}

async fn silence_costs_the_most_where_the_file_says_so(place: Place) {
    let upstream = obedient().await;
    let lines = "by = \"everyone\"\nrate = \"100000/h\"\ncost = { response_json = \"n\", estimate = 10, max = 900, on_silent = \"max\" }";
    let file = File::to(&upstream, &["units"]).limit("units", lines);
    let gateway = place.gateway(file).await;
    for (answer, status, units) in [
        ("content-type: application/json||{\"n\":3}", "200 OK", 3),
        ("content-type: application/json||{\"m\":3}", "200 OK", 900),
        (
            "content-type: application/json||{\"n\":\"3\"}",
            "200 OK",
            900,
        ),
        (
            "content-type: application/json|content-encoding: gzip||{\"n\":3}",
            "200 OK",
            900,
        ),
        ("content-type: text/html||hello", "201 Made", 900),
        // No body, and no success.
        ("content-type: application/json||", "200 OK", 10),
        ("content-type: application/json||{\"m\":3}", "400 No", 10),
        ("content-type: text/html||hello", "500 Oops", 10),
    ] {
        let fields = [("x-answer", answer), ("x-status", status)];
        let answer = ask(&gateway, "/", &fields).await;
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["costs"], json!({ "units": units }), "{fields:?}");
    }
    eventually(PATIENCE, "silence is counted", async || {
        let row = "tollgate_limit_costs_total{limit=\"units\",outcome=\"silent_max\"} 4\n";
        gateway.metrics().await.contains(row)
    })
    .await;
}

async fn a_field_may_be_silent_too(place: Place) {
    let upstream = obedient().await;
    let lines = "by = \"everyone\"\nrate = \"100000/h\"\ncost = { response_header = \"x-units\", estimate = 10, max = 900, on_silent = \"max\" }";
    let file = File::to(&upstream, &["units"]).limit("units", lines);
    let gateway = place.gateway(file).await;
    for (answer, units) in [
        ("x-units: 4||hello", 4),
        ("x-units: many||hello", 900),
        ("||hello", 900),
        ("||", 10),
    ] {
        let answer = ask(&gateway, "/", &[("x-answer", answer)])
            .await
            .expect(200);
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["costs"], json!({ "units": units }), "{line}");
    }
}

async fn who_leaves_between_two_members_pays_the_most(place: Place) {
    const EVENT: &str = "data: {\"m\":{\"i\":7}}\n\n";
    for (more, units) in [("", 900), (", on_leave = \"estimate\"", 10)] {
        let upstream = Upstream::playing(async |mut connection: Connection| {
            if connection.request().await.is_ok() {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
                connection.wire.send(format!("{head}{EVENT}")).await;
                connection.wire.ended(PATIENCE).await;
            }
        })
        .await;
        let lines = format!(
            "by = \"everyone\"\nrate = \"100000/h\"\ncost = {{ response_json = [\"i|m.i\", \"o\"], estimate = 10, max = 900{more} }}"
        );
        let file = File::to(&upstream, &["units"]).limit("units", &lines);
        let gateway = place.gateway(file).await;
        let mut client = gateway.connect().await;
        client.send(request("GET", "/", &[])).await;
        client.head().await;
        assert_eq!(client.chunk().await.unwrap(), EVENT);
        drop(client);
        let line = gateway.line_where("reason", "client_gone").await;
        assert_eq!(line["costs"], json!({ "units": units }), "{line}");
    }
}

//! The form of refusals: status, body, the limit's name, and the wait.

use crate::support::{Feed, File, Gateway, Upstream, request};
use http::Request;

const ONE: &str = "by = \"ip\"\nrate = \"1/h\"";

/// The answer to a request with these fields, which the one limit of the gateway, `ip`, refuses.
async fn refused(
    lines: &str,
    response: &str,
    fields: &[(&str, &str)],
) -> (Gateway, crate::support::Answer) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"])
        .limit("ip", &format!("{ONE}\n{lines}"))
        .with(&format!("[response]\n{response}"));
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let answer = gateway
        .connect()
        .await
        .ask(request("GET", "/", fields))
        .await;
    (gateway, answer)
}

#[tokio::test]
async fn of_limits_as_tight_as_each_other_the_first_in_the_file_is_told_of_and_of_a_refusal_the_one_named()
 {
    for (file_order, route_order) in [("bc", "cb"), ("cb", "bc"), ("bc", "bc")] {
        let upstream = Upstream::echo().await;
        let names: Vec<String> = route_order.chars().map(String::from).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut text = String::new();
        for name in file_order.chars() {
            let rate = if name == 'b' { "2/h" } else { "2/10s" };
            text += &format!(
                "[limits.{name}]\nby = \"everyone\"\nalgorithm = \"fixed-window\"\nrate = \"{rate}\"\n"
            );
        }
        let gateway = Gateway::start(&File::to(&upstream, &names).with(&text)).await;
        for _ in 0..2 {
            let answer = gateway.get("/").await.expect(200);
            let wait = answer.number("x-ratelimit-reset") - now();
            assert_eq!(
                wait > 60,
                file_order == "bc",
                "{wait} s, file order {file_order}"
            );
        }
        // Both limits refuse; `b` has the longer wait.
        let refused = gateway.get("/").await.expect(429);
        let wait = refused.number("x-ratelimit-reset") - now();
        assert!(
            wait.abs_diff(refused.number("retry-after")) <= 1,
            "{refused:?}"
        );
        assert!(wait > 60, "{refused:?}");
    }
}

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap().as_secs()
}

#[tokio::test]
async fn a_limit_chooses_the_status_of_its_refusals() {
    let (gateway, answer) = refused("status = 503", "", &[]).await;
    let body = answer.expect(503).json();
    assert_eq!(body["status"], 503);
    assert_eq!(body["title"], "Too many requests");
    let call = Request::post("http://gateway.test/pkg.Service/Call")
        .header("content-type", "application/grpc")
        .body(Feed::of("\0\0\0\0\0"))
        .unwrap();
    let answer = gateway.h2().await.ask(call).await.expect(200);
    assert_eq!(answer.field("grpc-status"), "8");
}

#[tokio::test]
async fn a_limit_chooses_the_status_for_who_lacks_the_key() {
    let upstream = Upstream::echo().await;
    let lines = "by = \"header:x-key\"\nmissing = \"refuse\"\nrate = \"1/h\"";
    for (status, told, challenged) in [("", 401, true), ("missing_status = 403", 403, false)] {
        let file = File::to(&upstream, &["keyed"]).limit("keyed", &format!("{lines}\n{status}"));
        let gateway = Gateway::start(&file).await;
        let answer = gateway.get("/").await.expect(told);
        assert_eq!(answer.fields.has("www-authenticate"), challenged);
        assert_eq!(answer.json()["status"], told);
    }
}

#[tokio::test]
async fn clients_see_the_public_name_alone() {
    let (_gateway, answer) = refused("public_name = \"requests\"", "", &[]).await;
    let answer = answer.expect(429);
    assert_eq!(answer.remaining("requests"), 0);
    assert_eq!(answer.parameter("ratelimit-policy", "requests", "q"), 1);
    let body = answer.json();
    assert_eq!(body["violated-policies"], serde_json::json!(["requests"]));
    let detail = body["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("The limit \"requests\" allows"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_delay_is_told_under_the_public_name() {
    let upstream = Upstream::echo().await;
    let lines = "by = \"ip\"\nrate = \"2/s\"\nalgorithm = \"leaky-bucket\"\npublic_name = \"even\"";
    let file = File::to(&upstream, &["smooth"]).limit("smooth", lines);
    let gateway = Gateway::start(&file).await;
    // If the machine stops for half a second between two requests, the second one is admitted at once.
    for _ in 0..20 {
        let answer = gateway.get("/").await.expect(200);
        if answer.fields.has("server-timing") {
            let told = answer.field("server-timing");
            assert!(told.contains("desc=\"even\""), "{answer:?}");
            return;
        }
    }
    panic!("no request was delayed");
}

#[tokio::test]
async fn a_body_is_written_in_the_form_that_the_file_names() {
    for (body, accept, kind) in [
        ("problem+json", "text/html", "application/problem+json"),
        ("text", "application/json", "text/plain; charset=utf-8"),
        ("html", "*/*", "text/html; charset=utf-8"),
        ("accept", "*/*", "application/problem+json"),
        ("accept", "text/html,*/*;q=0.8", "text/html; charset=utf-8"),
        ("accept", "text/plain", "text/plain; charset=utf-8"),
    ] {
        let response = format!("body = \"{body}\"");
        let (gateway, answer) = refused("", &response, &[("Accept", accept)]).await;
        let answer = answer.expect(429);
        assert_eq!(answer.field("content-type"), kind, "{body} {accept}");
        assert_eq!(answer.fields.has("vary"), body == "accept");
        assert!(answer.text().contains("1 request per hour"), "{answer:?}");
        assert!(
            answer.text().contains(answer.field("x-request-id")),
            "{answer:?}"
        );
        // The gateway's other errors have the same form.
        let lost = request("GET", "/%2f", &[("Accept", accept)]);
        let lost = gateway.connect().await.ask(lost).await.expect(400);
        assert_eq!(lost.field("content-type"), kind, "{body} {accept}");
    }
}

#[tokio::test]
async fn a_file_is_sent_with_its_places_filled_and_taken_over_by_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("deny.json");
    std::fs::write(
        &page,
        r#"{"code":{status},"limit":"{limit}","in":{retry_after}}"#,
    )
    .unwrap();
    let response = format!("body = \"file:{}\"", page.display());
    let (gateway, answer) = refused("", &response, &[]).await;
    let answer = answer.expect(429);
    assert_eq!(answer.field("content-type"), "application/json");
    let body = answer.json();
    assert_eq!((&body["code"], &body["limit"]), (&429.into(), &"ip".into()));
    assert_eq!(body["in"], answer.number("retry-after"));
    // Errors that no limit has caused keep the problem form.
    let lost = gateway.get("/%2f").await.expect(400);
    assert_eq!(lost.field("content-type"), "application/problem+json");

    std::fs::write(&page, "{}").unwrap();
    let told = "response.body: changed: a file";
    gateway.said.line(0, told, |line| line.contains(told)).await;
    assert_eq!(gateway.get("/").await.expect(429).text(), "{}");
}

#[tokio::test]
async fn a_limit_chooses_what_its_own_refusals_look_like() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("slow.html");
    std::fs::write(&page, "<p>{limit} {retry_after}</p>").unwrap();
    let upstream = Upstream::echo().await;
    let mut file = File::default()
        .upstream("main", &[&upstream])
        .with("[response]\nbody = \"text\"");
    let own = format!("file:{}", page.display());
    for (name, body) in [
        ("page", Some(&*own)),
        ("problem", Some("problem+json")),
        ("asked", Some("accept")),
        ("plain", None),
    ] {
        let body = body.map_or(String::new(), |body| format!("body = {body:?}"));
        file = file
            .limit(name, &format!("{ONE}\npublic_name = \"x-{name}\"\n{body}"))
            .route(name, &format!("/{name}"), "main", &[name]);
    }
    let keyed = "by = \"header:x-key\"\nmissing = \"refuse\"\nrate = \"1/h\"\nbody = \"html\"";
    let file = file
        .limit("keyed", keyed)
        .route("keyed", "/keyed", "main", &["keyed"]);
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    let asking = |path: &str, accept| request("GET", path, &[("Accept", accept), ("X-Key", "k")]);
    for (path, accept, kind) in [
        ("/page", "text/plain", "text/html; charset=utf-8"),
        ("/problem", "text/html", "application/problem+json"),
        ("/asked", "text/html", "text/html; charset=utf-8"),
        ("/asked", "*/*", "application/problem+json"),
        ("/plain", "text/html", "text/plain; charset=utf-8"),
        ("/keyed", "*/*", "text/html; charset=utf-8"),
    ] {
        client.ask(asking(path, accept)).await;
        let answer = client.ask(asking(path, accept)).await.expect(429);
        assert_eq!(answer.field("content-type"), kind, "{path}");
        assert_eq!(answer.fields.has("vary"), path == "/asked");
        if path == "/page" {
            let wait = answer.field("retry-after");
            assert_eq!(answer.text(), format!("<p>x-page {wait}</p>"));
        }
    }
    for (path, status) in [("/keyed", 401), ("/%2f", 400)] {
        let answer = client.ask(request("GET", path, &[])).await.expect(status);
        assert_eq!(answer.field("content-type"), "text/plain; charset=utf-8");
    }
    std::fs::write(&page, "slow").unwrap();
    let told = "limits.page: body changed: a file, counters kept";
    gateway.said.line(0, told, |line| line.contains(told)).await;
    let answer = client.ask(asking("/page", "*/*")).await.expect(429);
    assert_eq!(answer.text(), "slow");
}

#[tokio::test]
async fn jitter_makes_waits_longer_and_never_shorter() {
    let (gateway, _) = refused("", "jitter = \"50%\"", &[]).await;
    let mut told = Vec::new();
    for _ in 0..20 {
        let answer = gateway.get("/").await.expect(429);
        let wait = answer.number("retry-after-ms");
        assert!((3_590_000..=5_400_000).contains(&wait), "{wait}");
        assert_eq!(answer.json()["retry_after_ms"], wait);
        assert_eq!(answer.number("retry-after"), wait.div_ceil(1000));
        told.push(wait);
    }
    told.sort_unstable();
    assert!(told[19] - told[0] > 60_000, "{told:?}");
}

/// A flood of preflights is refused, whatever their fields, and does not count as requests.
#[tokio::test]
async fn preflights_count_beside_all_else() {
    for lines in [
        "by = \"header:x-key\"\nmissing = \"refuse\"",
        "by = \"query:k\"\nmissing = \"skip\"",
        "by = [\"ip\", \"path:rest\"]",
        "by = \"everyone\"",
    ] {
        let upstream = Upstream::echo().await;
        let file = File::to(&upstream, &["few"]).limit("few", &format!("{lines}\nrate = \"3/h\""));
        let gateway = Gateway::start(&file).await;
        let mut client = gateway.connect().await;
        let mut passed = 0;
        for n in 0..50 {
            let (key, target) = (format!("k-{n}"), format!("/x?k={n}"));
            let fields = [
                ("Origin", "https://app.test"),
                ("Access-Control-Request-Method", "PUT"),
                ("X-Key", key.as_str()),
            ];
            let answer = client.ask(request("OPTIONS", &target, &fields)).await;
            assert!(
                matches!(answer.status, 200 | 429),
                "{lines} {}",
                answer.status
            );
            passed += u32::from(answer.status == 200);
        }
        assert_eq!(passed, 3, "{lines}");
        for status in [200, 200, 200, 429] {
            let answer = client
                .ask(request("GET", "/x?k=mine", &[("X-Key", "mine")]))
                .await;
            assert_eq!(answer.status, status, "{lines}");
        }
    }
}

/// A request with a body, a cookie, a credential or another method is no preflight.
#[tokio::test]
async fn what_only_looks_like_a_preflight_is_a_request() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["few"]).limit("few", "by = \"ip\"\nrate = \"6/h\"");
    let gateway = Gateway::start(&file).await;
    let (origin, asks) = (
        ("Origin", "https://app.test"),
        ("Access-Control-Request-Method", "PUT"),
    );
    for more in [
        ("Cookie", "session=1"),
        ("Authorization", "Bearer x"),
        ("Content-Length", "2"),
        ("X-HTTP-Method-Override", "DELETE"),
        ("X-HTTP-Method", "DELETE"),
        ("X-Method-Override", "DELETE"),
    ] {
        let body = if more.0 == "Content-Length" { "ab" } else { "" };
        let asked = request("OPTIONS", "/", &[origin, asks, more]);
        let answer = gateway.connect().await.ask(format!("{asked}{body}")).await;
        answer.expect(200);
    }
    gateway.get("/").await.expect(429);
    let (feed, body) = Feed::open();
    let asked = Request::options("http://gateway.test/")
        .header("origin", "https://app.test")
        .header("access-control-request-method", "PUT")
        .body(body)
        .unwrap();
    // Over HTTP/2 no field has to announce a body.
    let answer = gateway.h2().await.ask(asked).await;
    drop(feed);
    answer.expect(429);
    let real = request("OPTIONS", "/", &[origin, asks]);
    gateway.connect().await.ask(real).await.expect(200);
}

/// A `concurrency` limit counts requests of all kinds.
#[tokio::test]
async fn preflights_take_slots() {
    let upstream = Upstream::silent().await;
    let limit = "by = \"header:x-key\"\nmissing = \"refuse\"\nalgorithm = \"concurrency\"\nmax = 2";
    let file = File::to(&upstream, &["slots"]).limit("slots", limit);
    let gateway = Gateway::start(&file).await;
    let fields = [
        ("Origin", "https://app.test"),
        ("Access-Control-Request-Method", "PUT"),
    ];
    let mut waiting = Vec::new();
    for n in 1..=2 {
        let mut client = gateway.connect().await;
        client.send(request("OPTIONS", "/", &fields)).await;
        upstream.sees(n).await;
        waiting.push(client);
    }
    let third = request("OPTIONS", "/", &fields);
    gateway.connect().await.ask(third).await.expect(429);
}

#[tokio::test]
async fn preflights_are_free_unless_the_file_counts_them() {
    for (lines, counted) in [("", false), ("preflights = \"counted\"", true)] {
        let upstream = Upstream::echo().await;
        let limit = "by = \"header:x-key\"\nmissing = \"refuse\"\nrate = \"1/h\"";
        let file = File::to(&upstream, &["keyed"]).limit("keyed", &format!("{limit}\n{lines}"));
        let gateway = Gateway::start(&file).await;
        let mut client = gateway.connect().await;
        let origin = ("Origin", "https://app.test");
        let asks = ("Access-Control-Request-Method", "PUT");
        let free = if counted { 401 } else { 200 };
        for (method, fields, status) in [
            ("OPTIONS", &[origin, asks][..], free),
            ("OPTIONS", &[origin], 401),
            ("OPTIONS", &[asks], 401),
            ("GET", &[origin, asks], 401),
            ("OPTIONS", &[], 401),
        ] {
            let answer = client.ask(request(method, "/", fields)).await;
            assert_eq!(answer.status, status, "{method} {fields:?}");
        }
    }
}

#[tokio::test]
async fn what_an_upstream_says_of_its_limits_stays() {
    let answering = |fields: &str| -> &'static str {
        format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: 0\r\n\r\n").leak()
    };
    let theirs = "RateLimit: \"db\";r=3;t=9\r\nRateLimit-Policy: \"db\";q=5;w=60\r\n\
        RateLimit: \"disk\";r=1";
    // Of our limit, 4 of 5 units are left.
    for (fields, lists, limit, left) in [
        (
            theirs,
            "\"ip\";r=4;t=720, \"db\";r=3;t=9, \"disk\";r=1",
            "5",
            "4",
        ),
        (
            "RateLimit: limit=3, remaining=1, reset=4",
            "\"ip\";r=4;t=720",
            "5",
            "4",
        ),
        (
            "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 10\r\nX-RateLimit-Reset: 7",
            "\"ip\";r=4;t=720",
            "100",
            "10",
        ),
        (
            "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 90",
            "\"ip\";r=4;t=720",
            "5",
            "4",
        ),
        (
            "X-RateLimit-Limit: 100, 100;w=60\r\nX-RateLimit-Remaining: 0",
            "\"ip\";r=4;t=720",
            "100, 100;w=60",
            "0",
        ),
        (
            "RateLimit: \"busy\";r=1;pk=\"a, b\"",
            "\"ip\";r=4;t=720, \"busy\";r=1;pk=\"a, b\"",
            "5",
            "4",
        ),
        ("X-RateLimit-Remaining: 4", "\"ip\";r=4;t=720", "5", "4"),
        ("X-RateLimit-Remaining: 0", "\"ip\";r=4;t=720", "", "0"),
    ] {
        let upstream = Upstream::answering(answering(fields)).await;
        let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"5/h\"");
        let gateway = Gateway::start(&file).await;
        let answer = gateway.get("/").await.expect(200);
        assert_eq!(answer.fields.all("ratelimit"), [lists]);
        let limits = answer.fields.all("x-ratelimit-limit").join("; ");
        assert_eq!(limits, limit, "{fields}");
        assert_eq!(
            answer.fields.all("x-ratelimit-remaining"),
            [left],
            "{fields}"
        );
        let policies = answer.fields.all("ratelimit-policy");
        let theirs = fields.contains("RateLimit-Policy");
        assert_eq!(policies[0].contains("\"db\";q=5;w=60"), theirs);
        assert!(policies[0].starts_with("\"ip\";q=5;w=3600"), "{policies:?}");
    }
}

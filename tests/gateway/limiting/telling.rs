//! The rate-limit fields of responses, and the clients that get them.

use crate::support::{Answer, Feed, File, Gateway, PATIENCE, Upstream, eventually, request};
use http::Request;

#[tokio::test]
async fn the_file_chooses_which_fields_are_sent() {
    for (choice, standard, legacy) in [
        ("both", true, true),
        ("standard", true, false),
        ("legacy", false, true),
        ("none", false, false),
    ] {
        let upstream = Upstream::echo().await;
        let file = File::to(&upstream, &["ip"])
            .limit("ip", "by = \"ip\"\nrate = \"1/h\"")
            .with(&format!("[response]\nheaders = \"{choice}\""));
        let gateway = Gateway::start(&file).await;
        for status in [200, 429] {
            let answer = gateway.get("/").await.expect(status);
            for (field, wanted) in [
                ("ratelimit", standard),
                ("ratelimit-policy", standard),
                ("x-ratelimit-limit", legacy),
                ("x-ratelimit-remaining", legacy),
                ("x-ratelimit-reset", legacy),
                ("retry-after", status == 429),
            ] {
                assert_eq!(
                    answer.fields.has(field),
                    wanted,
                    "{choice}: {field} in {answer:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_reset_is_an_instant_or_a_time() {
    let upstream = Upstream::echo().await;
    for (form, is_time) in [("unix", false), ("seconds", true)] {
        let file = File::to(&upstream, &["ip"])
            .limit("ip", "by = \"ip\"\nrate = \"1/h\"")
            .with(&format!(
                "[response]\nx_ratelimit = {{ reset = \"{form}\" }}"
            ));
        let gateway = Gateway::start(&file).await;
        for status in [200, 429, 429, 429] {
            let reset = gateway
                .get("/")
                .await
                .expect(status)
                .number("x-ratelimit-reset");
            assert_eq!((1..=3600).contains(&reset), is_time, "{form}: {reset}");
        }
    }
}

/// A hidden limit is in no field of an answer, unless it refuses: then no other is.
#[tokio::test]
async fn a_hidden_limit_is_stated_by_its_refusals_alone() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["shown", "hidden"])
        .limit("shown", "by = \"ip\"\nrate = \"3/h\"")
        .limit(
            "hidden",
            "by = \"header:x-user\"\nmissing = \"skip\"\nrate = \"1/h\"\nshown = false",
        );
    let gateway = Gateway::start(&file).await;
    let ask = async |user: &str| gateway.get_with("/", &[("X-User", user)]).await;
    let stated = |answer: &Answer| {
        let policy = answer.field("ratelimit-policy").contains("hidden");
        let standing = answer.field("ratelimit").contains("hidden");
        assert_eq!(policy, standing, "{answer:?}");
        (policy, answer.number("x-ratelimit-limit"))
    };
    assert_eq!(stated(&ask("anna").await.expect(200)), (false, 3));
    for _ in 0..3 {
        let refused = ask("anna").await.expect(429);
        assert_eq!(stated(&refused), (true, 1));
        assert!(!refused.field("ratelimit").contains("shown"), "{refused:?}");
    }
    assert_eq!(stated(&ask("bert").await.expect(200)), (false, 3));
    assert_eq!(stated(&gateway.get("/").await.expect(200)), (false, 3));
    for user in ["carl", "dora", "dora"] {
        assert_eq!(stated(&ask(user).await.expect(429)), (false, 3));
    }
}

/// Refusals are written after the pattern of an earlier one. What one of them has beyond the others stays its own.
#[tokio::test]
async fn a_later_refusal_has_its_own_values_and_nothing_of_an_earlier_one() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip", "all"])
        .limit("ip", "by = \"ip\"\nrate = \"1/h\"")
        .limit("all", "by = \"everyone\"\nrate = \"1000/h\"")
        .server("workers = 1");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    // The gateway does not read the rest of this body, so the answer ends its connection.
    let upload = async || {
        let head = request("POST", "/", &[("Content-Length", "90000000")]);
        gateway.connect().await.ask(head).await.expect(429)
    };
    let names = |answer: &Answer| answer.fields.names().join(" ");
    let mut waits = Vec::new();
    for _ in 0..2 {
        assert_eq!(upload().await.field("connection"), "close");
        let (one, other) = (gateway.get("/").await, gateway.get("/").await);
        assert_eq!(names(&one), names(&other));
        for answer in [one, other] {
            let answer = answer.expect(429);
            assert!(!answer.fields.has("connection"), "{answer:?}");
            let told = answer.json();
            assert_eq!(told["request_id"], answer.field("x-request-id"));
            assert_eq!(told["retry_after_ms"], answer.number("retry-after-ms"));
            assert_eq!(answer.remaining("ip"), 0);
            assert_eq!(answer.remaining("all"), 999);
            waits.push(answer.number("retry-after-ms"));
        }
    }
    assert!(waits.is_sorted_by(|one, next| one >= next), "{waits:?}");
    eventually(PATIENCE, "the wait shrinks", async || {
        gateway.get("/").await.number("retry-after-ms") < waits[0]
    })
    .await;
}

#[tokio::test]
async fn pages_of_another_origin_may_read_the_fields() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"5/h\"");
    let gateway = Gateway::start(&file).await;
    let exposed = gateway
        .get("/")
        .await
        .expect(200)
        .field("access-control-expose-headers")
        .to_ascii_lowercase();
    for name in [
        "ratelimit",
        "ratelimit-policy",
        "retry-after",
        "retry-after-ms",
        "server-timing",
        "x-ratelimit-remaining",
        "x-request-id",
    ] {
        assert!(
            exposed.split(',').any(|known| known.trim() == name),
            "{name} in {exposed}"
        );
    }
}

/// The names that the server or the file exposes are in one field together with ours, each once.
#[tokio::test]
async fn fields_that_are_exposed_are_one_list() {
    const OURS: &str = "RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, retry-after-ms, Server-Timing, X-Request-Id";
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: X-Own,, ratelimit\r\n\
         Access-Control-Expose-Headers: X-Other\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let set = "response_headers = { set = { access-control-expose-headers = \"x-total\" } }";
    let file = File::to(&upstream, &["ip"])
        .limit("ip", "by = \"ip\"\nrate = \"50/h\"")
        .with(&format!(
            "[routes.written]\npath = \"/written\"\nupstream = \"main\"\nlimits = \"ip\"\n{set}"
        ));
    let gateway = Gateway::start(&file).await;
    for (path, all) in [
        ("/", format!("X-Own, ratelimit, X-Other, {OURS}")),
        ("/written", format!("x-total, RateLimit, {OURS}")),
    ] {
        let answer = gateway.get(path).await.expect(200);
        assert_eq!(answer.fields.all("access-control-expose-headers"), [all]);
    }
}

#[tokio::test]
async fn a_refused_call_of_grpc_is_told_in_grpc() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let call = Request::post("http://gateway.test/pkg.Service/Call")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Feed::of("\0\0\0\0\0"))
        .unwrap();
    let answer = gateway.h2().await.ask(call).await.expect(200);
    assert_eq!(answer.field("grpc-status"), "8");
    assert_eq!(answer.field("content-type"), "application/grpc");
    assert!(answer.body.is_empty(), "{answer:?}");
}

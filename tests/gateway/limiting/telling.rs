//! Rate-limit fields of responses, and the clients that get them.

use crate::support::{Feed, File, Gateway, Upstream};
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

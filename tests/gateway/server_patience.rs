//! A server that gives up on a slow client has not failed: nothing is refunded, and no server is ejected. If the client
//! does not hold its body back, the fault is the server's own.

use crate::support::grpc::call;
use crate::support::h2_frames::{HEADERS, RST_STREAM, SETTINGS, frame, read_frame};
use crate::support::{
    Connection, End, Feed, File, Gateway, GrpcServer, PATIENCE, Upstream, eventually, request,
};
use bytes::Bytes;
use hyper::body::Frame;
use std::pin::pin;
use std::time::Duration;
use tokio::time::sleep;

/// The limit of all files in this test.
const FEW: &str = "by = \"ip\"\nrate = \"2/h\"\nrefund = \"5xx\"";

/// A gateway with two servers behind a limit, with these `lines` in the route. A single failure ejects a server.
async fn gateway(servers: [String; 2], lines: &str) -> Gateway {
    let text = format!(
        "[upstreams.main]\nservers = {servers:?}\neject = {{ after = 1 }}\n[routes.all]\npath = \"/{{*rest}}\"\nupstream = \"main\"\nlimits = [\"few\"]\n{lines}"
    );
    Gateway::start(&File::default().with(&text).limit("few", FEW)).await
}

/// A server of HTTP/1.1 that sends this text a time `after` each head, and closes the connection.
async fn http1(says: String, after: Duration) -> Upstream {
    Upstream::playing(move |mut connection: Connection| {
        let says = says.clone();
        async move {
            let _ = connection.request().await;
            sleep(after).await;
            let _ = connection.wire.try_send(says).await;
            // The bytes that came are read, so that no reset overtakes the answer.
            let _ = connection.wire.ended(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// A server of HTTP/2 that sends these frames on each stream, a time `after` its head.
async fn http2(frames: Vec<(u8, u8, Vec<u8>)>, after: Duration) -> Upstream {
    Upstream::playing(move |mut connection: Connection| {
        let frames = frames.clone();
        async move {
            let _ = play(&mut connection, &frames, after).await;
        }
    })
    .await
}

async fn play(
    connection: &mut Connection,
    frames: &[(u8, u8, Vec<u8>)],
    after: Duration,
) -> Result<(), End> {
    let wire = &mut connection.wire;
    wire.exactly(24).await?;
    wire.send(frame(SETTINGS, 0, 0, &[])).await;
    for stream in (1..).step_by(2) {
        while read_frame(wire).await?.0 != HEADERS {}
        sleep(after).await;
        for (kind, flags, payload) in frames {
            wire.send(frame(*kind, *flags, stream, payload)).await;
        }
    }
    Ok(())
}

fn status(status: &str) -> String {
    format!("HTTP/1.1 {status} Late\r\nContent-Length: 0\r\n\r\n")
}

/// The head of an answer that ends its stream.
fn whole(fields: &[u8]) -> (u8, u8, Vec<u8>) {
    (HEADERS, 5, fields.to_vec())
}

/// RST_STREAM with CANCEL, which gRPC servers send when the time of a call is over.
fn cancel() -> (u8, u8, Vec<u8>) {
    (RST_STREAM, 0, vec![0, 0, 0, 8])
}

/// Trailers with a gRPC status, or a head that is a whole answer.
fn grpc_status(status: &str, is_head: bool) -> (u8, u8, Vec<u8>) {
    let front = if is_head { &b"\x88"[..] } else { b"" };
    let length = [u8::try_from(status.len()).unwrap()];
    let field = [front, b"\x00\x0bgrpc-status", &length, status.as_bytes()];
    whole(&field.concat())
}

fn piece(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

/// The status of a POST whose last byte comes after `hold`, if the server has not answered by then.
async fn post(gateway: &Gateway, hold: Duration) -> u16 {
    let mut client = gateway.connect().await;
    client
        .send(request("POST", "/", &[("Content-Length", "10")]))
        .await;
    client.send("123456789").await;
    if let Ok(early) = tokio::time::timeout(hold, client.answer()).await {
        return early.status;
    }
    client.send("0").await;
    client.answer().await.status
}

/// The status of a call whose last message comes after `hold`, if the server has not ended it by then.
async fn grpc(gateway: &Gateway, method: &str, hold: Duration) -> String {
    let (frames, body) = Feed::open();
    let told = [("grpc-timeout", "60S")];
    let h2 = gateway.h2().await;
    let request = call(method, &told, body);
    let mut asking = pin!(h2.ask(request));
    let message = || piece("\0\0\0\0\0");
    frames.send(message()).await.unwrap();
    let answer = tokio::select! {
        early = asking.as_mut() => early,
        () = sleep(hold) => {
            let _ = frames.send(message()).await;
            drop(frames);
            asking.await
        }
    };
    let status = answer.trailers.get("grpc-status");
    status
        .unwrap_or_else(|| answer.field("grpc-status"))
        .to_owned()
}

/// Checks that no server was ejected, although a single failure ejects.
async fn both_are_there(gateway: &Gateway, what: &str) {
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    assert_eq!(shown["upstreams"][0]["available"], 2, "{what}: {shown}");
}

const LATE: Duration = Duration::from_millis(300);
const FOR_LONG: Duration = Duration::from_secs(5);

#[tokio::test]
async fn nothing_goes_back_however_a_server_shows_its_impatience() {
    for (says, code) in [
        (String::new(), 502),
        (status("408"), 408),
        (status("500"), 500),
        (status("502"), 502),
        (status("503"), 503),
        (status("504"), 504),
    ] {
        let servers = [http1(says.clone(), LATE).await, http1(says, LATE).await];
        let gateway = gateway([servers[0].url(), servers[1].url()], "").await;
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(post(&gateway, FOR_LONG).await);
        }
        assert_eq!(statuses, [code, code, 429, 429]);
        both_are_there(&gateway, &code.to_string()).await;
        let seen = servers[0].seen() + servers[1].seen();
        assert_eq!(seen, 2, "{code}");
    }
}

/// A gateway in front of two HTTP/2 servers that send these frames when they give up on a client.
async fn before_two(frames: Vec<(u8, u8, Vec<u8>)>) -> (Gateway, [Upstream; 2]) {
    let servers = [http2(frames.clone(), LATE).await, http2(frames, LATE).await];
    let urls = servers
        .each_ref()
        .map(|server| format!("h2c://127.0.0.1:{}", server.port()));
    (gateway(urls, "").await, servers)
}

#[tokio::test]
async fn nor_does_it_over_http2() {
    for (frames, code) in [
        (cancel(), 502),
        (whole(b"\x8e"), 500),
        (whole(b"\x08\x03503"), 503),
        (whole(b"\x08\x03504"), 504),
    ] {
        let frames = vec![frames];
        let (gateway, _servers) = before_two(frames).await;
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(post(&gateway, FOR_LONG).await);
        }
        assert_eq!(statuses, [code, code, 429]);
        both_are_there(&gateway, &code.to_string()).await;
    }
}

/// A call that its client keeps open and its server ends, before the head of its answer or after it.
#[tokio::test]
async fn nor_does_a_call() {
    let head = || (HEADERS, 4, b"\x88".to_vec());
    for (frames, code) in [
        (vec![cancel()], "14"),
        (vec![grpc_status("13", true)], "13"),
        (vec![grpc_status("14", true)], "14"),
        (vec![head(), grpc_status("2", false)], "2"),
        (vec![head(), grpc_status("14", false)], "14"),
        (vec![head(), cancel()], "14"),
    ] {
        let what = format!("{frames:?}");
        let (gateway, _servers) = before_two(frames).await;
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(grpc(&gateway, "Orders", FOR_LONG).await);
        }
        assert_eq!(statuses, [code, code, "8"], "{what}");
        both_are_there(&gateway, &what).await;
    }
}

/// The body ends early enough for the server to process it, but too late for its answer.
#[tokio::test]
async fn an_end_that_was_held_back_leaves_the_server_no_time() {
    let after = Duration::from_millis(900);
    for (code, is_clients) in [(503, true), (504, true), (500, false)] {
        let says = status(&code.to_string());
        let servers = [http1(says.clone(), after).await, http1(says, after).await];
        let gateway = gateway([servers[0].url(), servers[1].url()], "").await;
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(post(&gateway, Duration::from_millis(700)).await);
        }
        let third = if is_clients { 429 } else { code };
        assert_eq!(statuses, [code, code, third]);
        both_are_there(&gateway, &code.to_string()).await;
    }
}

/// A byte now and then does not hide that the client holds its body back.
#[tokio::test]
async fn a_trickle_holds_a_body_back() {
    let says = status("503");
    let after = Duration::from_millis(500);
    let servers = [http1(says.clone(), after).await, http1(says, after).await];
    let gateway = gateway([servers[0].url(), servers[1].url()], "").await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let mut client = gateway.connect().await;
        client
            .send(request("POST", "/", &[("Content-Length", "1000")]))
            .await;
        let answer = loop {
            let pause = Duration::from_millis(60);
            if let Ok(answer) = tokio::time::timeout(pause, client.answer()).await {
                break answer;
            }
            client.send("x").await;
        };
        statuses.push(answer.status);
    }
    assert_eq!(statuses, [503, 503, 429]);
    both_are_there(&gateway, "a trickle").await;
}

/// A server gets the route's time. It may end a call by this time, with any status, if the client held back the end of
/// the call.
#[tokio::test]
async fn a_call_whose_time_its_client_has_used_up_gives_nothing_back() {
    for status in ["2", "4", "13", "14"] {
        let method = format!("Deadline-{status}");
        for is_held in [true, false] {
            let servers = [GrpcServer::start().await, GrpcServer::start().await];
            let urls = [servers[0].url(), servers[1].url()];
            let gateway = gateway(urls, "timeout = \"500ms\"").await;
            let hold = Duration::from_millis(if is_held { 350 } else { 0 });
            let mut statuses = Vec::new();
            for _ in 0..3 {
                statuses.push(grpc(&gateway, &method, hold).await);
            }
            let third = if is_held { "8" } else { status };
            assert_eq!(statuses, [status, status, third], "held: {is_held}");
            if is_held {
                both_are_there(&gateway, &method).await;
            }
        }
    }
}

#[tokio::test]
async fn nor_does_one_that_its_server_resets_then() {
    let after = Duration::from_millis(500);
    for is_held in [true, false] {
        let servers = (
            http2(vec![cancel()], after).await,
            http2(vec![cancel()], after).await,
        );
        let urls = [servers.0.port(), servers.1.port()];
        let urls = urls.map(|port| format!("h2c://127.0.0.1:{port}"));
        let gateway = gateway(urls, "timeout = \"500ms\"").await;
        let hold = Duration::from_millis(if is_held { 350 } else { 0 });
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(grpc(&gateway, "Orders", hold).await);
        }
        let third = if is_held { "8" } else { "14" };
        assert_eq!(statuses[2], third, "held: {is_held}, {statuses:?}");
        if is_held {
            both_are_there(&gateway, "a reset").await;
        }
    }
}

/// An ordinary client writes the head and then the body. A fault of the server meanwhile is its own failure.
#[tokio::test]
async fn a_server_that_fails_each_upload_at_its_head_is_ejected() {
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    for says in ["garbage\r\n\r\n", "", busy] {
        let beside = Upstream::echo().await;
        let server = Upstream::playing(move |mut connection: Connection| async move {
            let _ = connection.request().await;
            let _ = connection.wire.try_send(says).await;
        })
        .await;
        let servers = [&*server.url(), &*beside.url()];
        let gateway = Gateway::start(&File::default().with(&format!(
            "[upstreams.main]\nservers = {servers:?}\neject = {{ after = 2 }}\n[routes.all]\npath = \"/{{*rest}}\"\nupstream = \"main\""
        )))
        .await;
        eventually(PATIENCE, "it is ejected", async || {
            let mut client = gateway.connect().await;
            client
                .send(request("POST", "/", &[("Content-Length", "4")]))
                .await;
            sleep(Duration::from_millis(30)).await;
            let _ = client.try_send("body").await;
            let _ = client.ended(Duration::from_millis(50)).await;
            let shown = gateway.admin_get("/v1/upstreams").await.json();
            shown["upstreams"][0]["available"] == 1
        })
        .await;
    }
}

/// A server that closes a connection although it has the whole body has failed, whoever its client is.
#[tokio::test]
async fn a_server_that_breaks_off_behind_the_body_gives_the_charge_back() {
    let server = Upstream::playing(async |mut connection: Connection| {
        let head = connection.request().await.unwrap();
        let _ = connection.wire.request_body(&head).await;
    })
    .await;
    let text = format!(
        "[upstreams.main]\nservers = \"{}\"\n[routes.all]\npath = \"/\"\nupstream = \"main\"\nlimits = [\"few\"]",
        server.url()
    );
    let gateway = Gateway::start(&File::default().with(&text).limit("few", FEW)).await;
    for _ in 0..4 {
        let mut client = gateway.connect().await;
        client
            .send(request("POST", "/", &[("Content-Length", "10")]) + "1234567890")
            .await;
        client.answer().await.expect(502);
    }
}

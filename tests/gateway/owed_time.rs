//! `timeout` counts the time that a server owes: a client that sends its body slowly uses up none of it.

use crate::support::grpc::call;
use crate::support::h2_frames::{HEADERS, RST_STREAM, SETTINGS, frame, read_frame};
use crate::support::tls::Authority;
use crate::support::{
    Connection, Feed, File, Gateway, GrpcServer, PATIENCE, Upstream, Wire, modern_acceptor, request,
};
use bytes::Bytes;
use http::Request;
use hyper::body::Frame;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, UnixListener};
use tokio::time::sleep;

/// A file with a route to `servers` with `lines`, behind `limits`.
fn file(servers: &[&str], lines: &str, limits: &str) -> File {
    File::default().with(&format!(
        "[upstreams.main]\nservers = {servers:?}\n[routes.all]\npath = \"/{{*rest}}\"\nupstream = \"main\"\nlimits = [{limits}]\n{lines}"
    ))
}

fn post(length: usize) -> String {
    request("POST", "/", &[("Content-Length", &length.to_string())])
}

/// A POST over HTTP/2 with a body of `length` bytes, which are still to come.
fn h2_post(length: usize, body: Feed) -> Request<Feed> {
    Request::post("http://gateway.test/")
        .header("content-length", length)
        .body(body)
        .unwrap()
}

fn piece(length: usize) -> Frame<Bytes> {
    Frame::data(Bytes::from(vec![b'x'; length]))
}

/// An upstream that reads a request's head, then reads nothing, and does not answer.
async fn unmoved() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        let _ = connection.request().await;
        std::future::pending::<()>().await;
    })
    .await
}

#[tokio::test]
async fn an_upload_may_last_longer_than_the_timeout() {
    let (old, new) = (Upstream::echo().await, GrpcServer::start().await);
    for server in [old.url(), new.url()] {
        let gateway = Gateway::start(&file(&[&server], "timeout = \"2s\"", "")).await;
        let (frames, body) = Feed::open();
        let h2 = gateway.h2().await;
        let target = Request::post("http://gateway.test/shop.Orders/Unary");
        let asked = tokio::spawn(async move { h2.ask(target.body(body).unwrap()).await });
        let mut client = gateway.connect().await;
        let length = [("Content-Length", "8")];
        client
            .send(request("POST", "/shop.Orders/Unary", &length))
            .await;
        for _ in 0..8 {
            sleep(Duration::from_millis(400)).await;
            client.send("x").await;
            frames.send(piece(1)).await.unwrap();
        }
        drop(frames);
        client.answer().await.expect(200);
        asked.await.unwrap().expect(200);
    }
}

#[tokio::test]
async fn a_server_that_takes_none_of_the_body_is_given_up() {
    let (old, new) = (unmoved().await, GrpcServer::start().await);
    for server in [old.url(), new.url()] {
        let gateway = Gateway::start(&file(&[&server], "timeout = \"1s\"", "")).await;
        let mut client = gateway.connect().await;
        let began = Instant::now();
        let length = [("Content-Length", "100000000")];
        client.send(request("POST", "/a/Hang", &length)).await;
        let piece = vec![b'x'; 1 << 20];
        // The client never pauses, so that bytes are available all the time.
        let sending = async { while client.try_send(&piece).await.is_ok() {} };
        let told = gateway.line_where("reason", "upstream_timeout");
        let line = tokio::select! {
            () = sending => panic!("the body is taken"),
            line = told => line,
        };
        assert_eq!(line["status"], 504, "{line}");
        let took = began.elapsed();
        assert!(
            took >= Duration::from_secs(1) && took < Duration::from_secs(4),
            "{took:?}"
        );
    }
}

/// An HTTP/2 server that has no room for a body, and refuses each stream 100 ms after its head.
async fn refusing() -> Upstream {
    const NO_ROOM: &[u8] = &[0, 4, 0, 0, 0, 0];
    const REFUSED: &[u8] = &[0, 0, 0, 7];
    Upstream::playing(|mut connection: Connection| async move {
        let wire = &mut connection.wire;
        let _ = wire.exactly(24).await;
        wire.send(frame(SETTINGS, 0, 0, NO_ROOM)).await;
        for stream in (1..).step_by(2) {
            loop {
                match read_frame(wire).await {
                    Ok((HEADERS, ..)) => break,
                    Ok((SETTINGS, 0, _)) => wire.send(frame(SETTINGS, 1, 0, &[])).await,
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
            sleep(Duration::from_millis(100)).await;
            wire.send(frame(RST_STREAM, 0, stream, REFUSED)).await;
        }
    })
    .await
}

/// The log states the whole time that a server had. The delay of one server does not count for the next server.
#[tokio::test]
async fn a_server_has_the_grace_that_it_has_earned() {
    let (stuck, beside, silent) = (unmoved().await, unmoved().await, Upstream::silent().await);
    let refusing = refusing().await;
    let (length, short) = (10_000_000, 10);
    for (servers, length, words) in [
        (
            format!("[\"{}\", \"{}\"]", stuck.url(), beside.url()),
            length,
            "no answer within 1.5s",
        ),
        (
            format!(
                "[{{ url = \"h2c://127.0.0.1:{}\", weight = 1000 }}, \"{}\"]",
                refusing.port(),
                silent.url()
            ),
            short,
            "no answer within 1s",
        ),
    ] {
        let gateway = Gateway::start(&File::default().with(&format!(
            "[upstreams.main]\nservers = {servers}\neject = {{ after = 1 }}\n[routes.all]\npath = \"/\"\nupstream = \"main\"\ntimeout = \"1s\""
        )))
        .await;
        let mut client = gateway.connect().await;
        client.send(post(length)).await;
        let _ = client.try_send(vec![b'x'; length]).await;
        let is_told = |line: &str| line.contains("gets no requests");
        let said = gateway.said.line(0, "an ejection", is_told).await;
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// The kind of connection to a server that reads slowly.
#[derive(Debug, Clone, Copy)]
enum Way {
    Tcp,
    Tls,
    Unix,
}

/// Reads a body of `length` bytes in steps with a pause before each, and answers.
async fn read_slowly(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    length: usize,
    (step, pause): (usize, u64),
) -> io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).await?;
        head.extend(byte);
    }
    let (mut left, mut room) = (length, vec![0; step]);
    while left > 0 {
        sleep(Duration::from_millis(pause)).await;
        let now = step.min(left);
        stream.read_exact(&mut room[..now]).await?;
        left -= now;
    }
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .await?;
    stream.flush().await?;
    // The gateway ends the connection, or the end of the test does.
    let _ = stream.read(&mut byte).await;
    Ok(())
}

/// Checks that an upload may last four times the timeout if its server reads at `pace`.
async fn is_given_its_time(way: Way, pace: (usize, u64), buffer: u32) {
    const LASTS: u64 = 4_000;
    let (step, pause) = pace;
    let length = step * usize::try_from(LASTS / pause).unwrap();
    let (folder, ca) = (tempfile::tempdir().unwrap(), Authority::new());
    let path = folder.path().join("server.sock");
    // Bytes in the buffer of the server's system count as taken, though the server has not read them. So the buffer
    // must be small.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(buffer).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let tcp = socket.listen(16).unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let address = tcp.local_addr().unwrap();
    let acceptor = modern_acceptor(&ca.server(&["127.0.0.1"]));
    let serving = tokio::spawn(async move {
        match way {
            Way::Tcp => read_slowly(tcp.accept().await?.0, length, pace).await,
            Way::Tls => {
                let stream = acceptor.accept(tcp.accept().await?.0).await?;
                read_slowly(stream, length, pace).await
            }
            Way::Unix => read_slowly(unix.accept().await?.0, length, pace).await,
        }
    });
    let (server, tls) = match way {
        Way::Tcp => (format!("http://{address}"), ""),
        Way::Tls => (format!("https://{address}"), "tls = { insecure = true }\n"),
        Way::Unix => (format!("unix:{}", path.display()), ""),
    };
    let file = File::default().with(&format!(
        "[upstreams.main]\nservers = {server:?}\n{tls}[routes.all]\npath = \"/\"\nupstream = \"main\"\ntimeout = \"1s\""
    ));
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    let began = Instant::now();
    client.send(post(length)).await;
    client.send(vec![b'x'; length]).await;
    let status = client.answer().await.status;
    assert_eq!(status, 200, "{way:?} {pace:?}, after {:?}", began.elapsed());
    assert!(
        began.elapsed() >= Duration::from_millis(LASTS) * 3 / 4,
        "it was slow"
    );
    serving.abort();
}

/// The system would hold megabytes for such a server, and report that it takes no more.
#[tokio::test]
async fn a_server_that_takes_the_body_slowly_is_given_its_time() {
    let ways = [Way::Tcp, Way::Tls, Way::Unix];
    for way in ways {
        tokio::join!(
            is_given_its_time(way, (65_000, 200), 64 * 1024),
            is_given_its_time(way, (200_000, 300), 64 * 1024),
            is_given_its_time(way, (400_000, 300), 64 * 1024),
        );
    }
    // The server takes little at a time, and takes it at once.
    is_given_its_time(Way::Tcp, (8192, 300), 4096).await;
}

/// The time begins with the last byte, and ends as usual.
#[tokio::test]
async fn a_server_that_owes_its_answer_is_given_up() {
    let server = Upstream::silent().await;
    let gateway = Gateway::start(&file(&[&server.url()], "timeout = \"1s\"", "")).await;
    let mut client = gateway.connect().await;
    client.send(post(2)).await;
    client.send("x").await;
    sleep(Duration::from_millis(1500)).await;
    let began = Instant::now();
    client.send("x").await;
    client.answer().await.expect(504);
    assert!(began.elapsed() >= Duration::from_secs(1));
}

/// A client that holds the last byte back until the time is over could otherwise cause its own 504, and get its charge
/// back.
#[tokio::test]
async fn no_client_makes_its_own_504() {
    for is_h2 in [false, true] {
        let (server, beside) = (Upstream::echo().await, Upstream::echo().await);
        let lines = "timeout = \"500ms\"";
        let limit = "by = \"ip\"\nrate = \"2/h\"\nrefund = \"5xx\"";
        let file = file(&[&server.url(), &beside.url()], lines, "\"few\"").limit("few", limit);
        let gateway = Gateway::start(&file).await;
        let mut statuses = Vec::new();
        for _ in 0..20 {
            let hold = sleep(Duration::from_millis(900));
            statuses.push(if is_h2 {
                let (frames, body) = Feed::open();
                let h2 = gateway.h2().await;
                let asking = tokio::spawn(async move { h2.ask(h2_post(10, body)).await.status });
                frames.send(piece(9)).await.unwrap();
                tokio::select! {
                    () = hold => {}
                    () = frames.closed() => {}
                }
                let _ = frames.send(piece(1)).await;
                drop(frames);
                asking.await.unwrap()
            } else {
                let mut client = gateway.connect().await;
                client.send(post(10)).await;
                client.send("123456789").await;
                if let Ok(early) =
                    tokio::time::timeout(Duration::from_millis(900), client.answer()).await
                {
                    early.status
                } else {
                    client.send("0").await;
                    client.answer().await.status
                }
            });
        }
        assert_eq!(statuses[..2], [200, 200], "{statuses:?}");
        assert!(
            statuses[2..].iter().all(|status| *status == 429),
            "{statuses:?}"
        );
        assert_eq!(server.seen() + beside.seen(), 2);
    }
}

/// A body that never ends is the client's failure: it causes no refund, and no server is ejected.
#[tokio::test]
async fn a_body_that_never_ends_is_no_failure_of_the_server() {
    let (server, beside) = (Upstream::echo().await, Upstream::echo().await);
    let limit = "by = \"ip\"\nrate = \"4/h\"\nrefund = \"5xx\"";
    let servers = [&*server.url(), &*beside.url()];
    let text = format!(
        "[upstreams.main]\nservers = {servers:?}\neject = {{ after = 1 }}\n[routes.all]\npath = \"/{{*rest}}\"\nupstream = \"main\"\nlimits = [\"few\"]\ntimeout = \"300ms\""
    );
    let file = File::default()
        .server("idle = \"1s\"")
        .with(&text)
        .limit("few", limit);
    let gateway = Gateway::start(&file).await;
    for _ in 0..2 {
        let mut client: Wire = gateway.connect().await;
        client.send(post(10)).await;
        client.send("half").await;
        client.answer().await.expect(408);
        let (frames, body) = Feed::open();
        frames.send(piece(4)).await.unwrap();
        gateway.h2().await.ask(h2_post(10, body)).await.expect(408);
    }
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    assert_eq!(shown["upstreams"][0]["available"], 2, "{shown}");
    gateway.get("/").await.expect(429);
    let line = gateway.line_where("reason", "client_timeout").await;
    assert_eq!(line["status"], 408, "{line}");
}

#[tokio::test]
async fn without_a_timeout_the_idle_time_holds() {
    let slow = Upstream::playing(async |mut connection: Connection| {
        while connection.request().await.is_ok() {
            sleep(Duration::from_millis(1200)).await;
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await;
    for (lines, status) in [
        ("timeout = \"500ms\"", 504),
        ("timeout = false", 200),
        ("timeout = false\nidle = \"500ms\"", 504),
    ] {
        let gateway = Gateway::start(&file(&[&slow.url()], lines, "")).await;
        gateway.get("/").await.expect(status);
    }
}

async fn status_of(gateway: &Gateway, method: &str, fields: &[(&str, &str)]) -> (String, Duration) {
    let began = Instant::now();
    let answer = gateway
        .h2()
        .await
        .ask(call(method, fields, Feed::of("x")))
        .await;
    let status = answer.trailers.get("grpc-status");
    let status = status.unwrap_or_else(|| answer.field("grpc-status"));
    (status.to_owned(), began.elapsed())
}

/// A call has the time of its client, but never more than a written `timeout`. Without either it has the idle time.
#[tokio::test]
async fn a_call_has_the_time_of_its_client() {
    let server = GrpcServer::start().await;
    let second = Duration::from_secs(1);
    for (lines, fields, least) in [
        ("timeout = \"1s\"", &[("grpc-timeout", "1H")][..], second),
        ("timeout = \"1s\"", &[], second),
        ("", &[("grpc-timeout", "1500m")], second),
        ("timeout = false", &[("grpc-timeout", "1500m")], second),
        ("idle = \"1s\"", &[], second),
        ("idle = \"1s\"\ntimeout = false", &[], second),
        // The call's own time takes precedence over the idle time.
        ("idle = \"500ms\"", &[("grpc-timeout", "2S")], second * 2),
    ] {
        let gateway = Gateway::start(&file(&[&server.url()], lines, "")).await;
        let (status, took) = status_of(&gateway, "Hang", fields).await;
        assert_eq!(status, "4", "{lines} {fields:?}");
        assert!(
            took >= least && took < PATIENCE / 3,
            "{lines} {fields:?}: {took:?}"
        );
    }
}

#[tokio::test]
async fn a_call_may_wait_for_its_first_message() {
    let server = GrpcServer::start().await;
    let gateway = Gateway::start(&file(&[&server.url()], "timeout = \"1s\"", "")).await;
    let (frames, body) = Feed::open();
    let h2 = gateway.h2().await;
    let asked = tokio::spawn(async move { h2.ask(call("Unary", &[], body)).await });
    for _ in 0..3 {
        sleep(Duration::from_millis(1300)).await;
        frames.send(piece(1)).await.unwrap();
    }
    drop(frames);
    let answer = asked.await.unwrap();
    assert_eq!(answer.trailers.get("grpc-status"), Some("0"), "{answer:?}");
    assert_eq!(answer.text(), "xxx");
}

//! One request in three ways: it is sent to the gateway, described to `explain`, and its log line is replayed by
//! `simulate`.

use super::draw_file::DrawnFile;
use super::draw_request::{DrawnRequest, HTTP2};
use super::world::World;
use crate::support::process::command_of;
use crate::support::{Feed, Fields, Gateway, H2, PATIENCE, Wire};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The gateway's answer, and its log line about the request.
#[derive(Debug, Clone, Default)]
pub(super) struct Answered {
    /// The status, or nothing if the connection ended without an answer.
    pub(super) status: Option<u16>,
    pub(super) id: Option<String>,
    /// The sentence in one of the gateway's own answers.
    pub(super) detail: Option<String>,
    /// The target of a redirect.
    pub(super) location: Option<String>,
    /// The request as the recording server got it.
    pub(super) forwarded: Option<Value>,
    /// The line of the access log.
    pub(super) line: Option<Value>,
}

/// The output of `explain`: an object, or the words with which it ended.
pub(super) type Explained = Result<Value, String>;

/// Sends a request on its own connection.
pub(super) async fn send(world: &World, file: &DrawnFile, request: &DrawnRequest) -> Answered {
    let tcp = connect(file, request).await;
    let is_http2 = request.version == HTTP2;
    let protocol = if is_http2 { "h2" } else { "http/1.1" };
    let tls = match request.tls {
        None => None,
        Some(handshake) => {
            let client = world.client(handshake.shows).speaking(&[protocol]);
            Some((client, handshake.sni))
        }
    };
    match tls {
        None if is_http2 => over_http2(&H2::over(tcp).await, request).await,
        None => over_http1(Wire::over(tcp), request).await,
        Some((client, sni)) => match client.over(tcp, sni).await {
            Err(_) => Answered::default(),
            Ok(stream) if is_http2 => over_http2(&H2::over(stream).await, request).await,
            Ok(stream) => over_http1(Wire::over_tls(stream), request).await,
        },
    }
}

async fn over_http2(connection: &H2, request: &DrawnRequest) -> Answered {
    let scheme = if request.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let (_, host) = &request.fields[0];
    let mut head = http::Request::builder()
        .method(request.method.as_str())
        .uri(format!("{scheme}://{host}{}", request.target));
    for (name, value) in request.fields.iter().skip(1) {
        head = head.header(name.to_ascii_lowercase(), value);
    }
    if request.early.contains(&"hosts disagree") {
        head = head.header("host", "other.test");
    }
    let body = match &*request.body {
        "" => Feed::empty(),
        _ => Feed::of("hello"),
    };
    match connection.try_ask(head.body(body).unwrap()).await {
        Ok(answer) => Answered::read(answer.status, &answer.fields, &answer.body),
        Err(_) => Answered::default(),
    }
}

async fn over_http1(mut wire: Wire, request: &DrawnRequest) -> Answered {
    // The gateway may close the connection before it has read everything.
    let _ = wire.try_send(request.text()).await;
    let head = loop {
        match wire.try_head().await {
            Ok(head) if head.status() >= 200 => break head,
            Ok(_) => {}
            Err(_) => return Answered::default(),
        }
    };
    let (status, fields) = (head.status(), head.fields.clone());
    if request.method == "HEAD" {
        return Answered::read(status, &fields, &[]);
    }
    match wire.rest_of(head).await {
        Ok(answer) => Answered::read(status, &fields, &answer.body),
        Err(_) => Answered::read(status, &fields, &[]),
    }
}

impl Answered {
    fn read(status: u16, fields: &Fields, body: &[u8]) -> Self {
        let first = |name: &str| fields.all(name).first().map(|value| (*value).to_owned());
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        Self {
            status: Some(status),
            id: first("x-request-id"),
            detail: body["detail"].as_str().map(str::to_owned),
            location: first("location"),
            forwarded: body.get("line").is_some().then_some(body),
            line: None,
        }
    }
}

/// A connection from the request's peer to its listener.
async fn connect(file: &DrawnFile, request: &DrawnRequest) -> TcpStream {
    let tls = request.tls.and(file.tls);
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket
        .bind(SocketAddr::new(request.from.into(), 0))
        .unwrap();
    let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), tls.unwrap_or(file.plain));
    let tcp = timeout(PATIENCE, socket.connect(to))
        .await
        .unwrap()
        .unwrap();
    tcp.set_nodelay(true).unwrap();
    tcp
}

/// Finds the log line of each answer.
pub(super) fn find_lines(answers: &mut [Answered], gateway: &Gateway) {
    let lines = gateway.access.lines();
    let lines = lines.iter().map(|line| {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        (
            line["request_id"].as_str().unwrap_or_default().to_owned(),
            line,
        )
    });
    let mut lines: std::collections::HashMap<String, Value> = lines.collect();
    for answer in answers {
        answer.line = answer.id.as_ref().and_then(|id| lines.remove(id));
    }
}

/// The sources that `explain` asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// `explain` asks nothing else.
    Alone,
    /// The running gateway, about its counters.
    Live,
    /// The issuers that publish keys at URLs.
    Connected,
}

/// Asks `explain` about a request.
pub(super) async fn explain(
    program: &Path,
    config: &Path,
    world: &World,
    request: &DrawnRequest,
    sight: Sight,
) -> Explained {
    let mut command = command_of(program);
    command
        .arg("explain")
        .arg(&request.method)
        .arg(&request.target);
    for (name, value) in &request.fields {
        command.arg("-H").arg(format!("{name}: {value}"));
    }
    command.arg("--from").arg(request.from.to_string());
    if let Some(handshake) = request.tls {
        command.arg("--sni").arg(handshake.sni);
        if handshake.shows {
            command.arg("--client-cert").arg(world.client_certificate());
        }
    }
    command.arg("--config").arg(config).arg("--json");
    match sight {
        Sight::Alone => {}
        Sight::Live => _ = command.arg("--live"),
        Sight::Connected => _ = command.arg("--connect"),
    }
    let output = timeout(PATIENCE, command.output()).await;
    let output = match output.expect("it ends by itself") {
        Ok(output) => output,
        Err(error) => return Err(error.to_string()),
    };
    if output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        return Ok(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")));
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{:?}: {said}", output.status.code()))
}

/// The decisions of `simulate` about log lines, one for each line.
pub(super) async fn simulate(program: &Path, config: &Path, lines: &[&Value]) -> Vec<Value> {
    if lines.is_empty() {
        return Vec::new();
    }
    let folder = tempfile::tempdir().unwrap();
    let (trace, out) = (
        folder.path().join("trace.json"),
        folder.path().join("out.json"),
    );
    let text: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&trace, text.concat()).unwrap();
    let mut command = command_of(program);
    command
        .arg("simulate")
        .arg(&trace)
        .arg("--config")
        .arg(config);
    command.arg("--decisions").arg(&out);
    let output = timeout(PATIENCE, command.output()).await;
    let output = output.expect("it ends by itself").unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let decisions = std::fs::read_to_string(&out).unwrap();
    let decisions: Vec<Value> = decisions
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(decisions.len(), lines.len(), "{text:?}");
    decisions
}

/// The complaint about a file, if the file is not valid.
pub(super) async fn check(program: &Path, config: &Path) -> Option<String> {
    let mut command = command_of(program);
    command.arg("check").arg("--config").arg(config);
    let output = timeout(PATIENCE, command.output()).await;
    let output = output.expect("it ends by itself").unwrap();
    let said = [output.stdout, output.stderr].concat();
    (!output.status.success()).then(|| String::from_utf8_lossy(&said).into_owned())
}

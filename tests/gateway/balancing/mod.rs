//! Several servers of one upstream: the server that gets a request, and the fate of requests whose server fails.

mod bounds;
mod chaos;
mod choosing;
mod ejection;
mod probing;
mod retrying;
mod with_limits;

use crate::support::{Connection, File, Upstream};

/// The fields of a WebSocket handshake.
const UPGRADE: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// A file whose upstream has these servers and these lines, with a route with `timeout = "500ms"`.
fn file(servers: &[String], lines: &str) -> File {
    let servers: Vec<String> = servers
        .iter()
        .map(|server| {
            if server.starts_with('{') {
                server.clone()
            } else {
                format!("\"{server}\"")
            }
        })
        .collect();
    File::default()
        .with(&format!(
            "[upstreams.main]\nservers = [{}]\n{lines}",
            servers.join(", ")
        ))
        .route("all", "/{*rest}", "main", &[])
        .with("timeout = \"500ms\"")
}

/// A server that answers all requests with this status.
async fn answering(status: u16) -> Upstream {
    Upstream::playing(move |mut connection: Connection| async move {
        while let Ok(head) = connection.request().await {
            if connection.wire.request_body(&head).await.is_err() {
                return;
            }
            let answer = format!("HTTP/1.1 {status} Answer\r\nContent-Length: 0\r\n\r\n");
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

/// A server that reads a request and ends the connection.
async fn breaking() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        let _ = connection.request().await;
    })
    .await
}

/// The value of a series, found by its name and labels in the form of the text.
fn metric(text: &str, series: &str) -> u64 {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap_or(0))
}

//! Upstreams with scripts, on raw sockets. They remember their requests and when these came.

use super::message::{Fields, Head};
use super::wire::{End, Wire};
use super::{PATIENCE, eventually};
use bytes::Bytes;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// A server that runs a script on every connection. When dropped, it stops listening.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    memory: Arc<Memory>,
    accepting: AbortHandle,
}

#[derive(Debug, Default)]
struct Memory {
    connections: AtomicUsize,
    closed: AtomicUsize,
    requests: Mutex<Vec<Seen>>,
}

/// A request's head as the upstream received it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// The instant at which the head was whole.
    pub(crate) at: Instant,
    /// The head.
    pub(crate) head: Head,
}

impl Upstream {
    /// Runs `script` on every connection.
    pub(crate) async fn playing<Play>(script: impl Fn(Connection) -> Play + Send + 'static) -> Self
    where
        Play: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self::on(listener, script)
    }

    fn on<Play>(listener: TcpListener, script: impl Fn(Connection) -> Play + Send + 'static) -> Self
    where
        Play: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().unwrap();
        let memory = Arc::new(Memory::default());
        let remembering = Arc::clone(&memory);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let nth = remembering.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let memory = Arc::clone(&remembering);
                let playing = script(Connection {
                    wire: Wire::over(stream).patient(),
                    nth,
                    port: address.port(),
                    memory: Arc::clone(&memory),
                });
                tokio::spawn(async move {
                    playing.await;
                    memory.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            memory,
            accepting: accepting.abort_handle(),
        }
    }

    /// Answers every request with what it received, as JSON.
    pub(crate) async fn echo() -> Self {
        Self::playing(Connection::echo).await
    }

    /// Answers every request with what it received, as JSON, on this port, which has no other listener.
    pub(crate) async fn echo_on(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        Self::on(listener.unwrap(), Connection::echo)
    }

    /// Answers every request with exactly these `bytes`.
    pub(crate) async fn answering(bytes: &'static str) -> Self {
        Self::playing(move |mut connection: Connection| async move {
            while let Ok(head) = connection.request().await {
                if connection.wire.request_body(&head).await.is_err() {
                    return;
                }
                if connection.wire.try_send(bytes).await.is_err() {
                    return;
                }
            }
        })
        .await
    }

    /// Reads requests and answers none.
    pub(crate) async fn silent() -> Self {
        Self::playing(
            async move |mut connection: Connection| {
                while connection.request().await.is_ok() {}
            },
        )
        .await
    }

    /// An upstream that answers the first request of each connection with these bytes, and closes the connection.
    pub(crate) async fn saying(bytes: &str) -> Self {
        let bytes = bytes.to_owned();
        Self::playing(move |mut connection: Connection| {
            let bytes = bytes.clone();
            async move {
                if connection.request().await.is_ok() {
                    let _ = connection.wire.try_send(bytes).await;
                }
            }
        })
        .await
    }

    /// The upstream's URL in the file.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The upstream's port.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.memory.connections.load(Ordering::SeqCst)
    }

    /// Waits until `count` connections are over.
    pub(crate) async fn closes(&self, count: usize) {
        eventually(
            PATIENCE,
            &format!("the upstream closes {count} connections"),
            async || self.memory.closed.load(Ordering::SeqCst) >= count,
        )
        .await;
    }

    /// The requests whose heads have arrived so far.
    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.memory.requests.lock().unwrap().clone()
    }

    /// The number of requests that have arrived so far.
    pub(crate) fn seen(&self) -> usize {
        self.memory.requests.lock().unwrap().len()
    }

    /// Waits until `count` requests have arrived.
    pub(crate) async fn sees(&self, count: usize) {
        eventually(
            PATIENCE,
            &format!("the upstream sees {count} requests"),
            async || self.seen() >= count,
        )
        .await;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// One connection of an upstream, used by its script.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The connection itself.
    pub(crate) wire: Wire,
    /// The connection's number, counted from 1.
    pub(crate) nth: usize,
    port: u16,
    memory: Arc<Memory>,
}

impl Connection {
    /// The next request's head, which the upstream remembers.
    pub(crate) async fn request(&mut self) -> Result<Head, End> {
        let head = self.wire.try_head().await?;
        let seen = Seen {
            at: Instant::now(),
            head: head.clone(),
        };
        self.memory.requests.lock().unwrap().push(seen);
        Ok(head)
    }

    /// Answers every request with what it received, until the other side leaves.
    pub(crate) async fn echo(mut self) {
        while let Ok(head) = self.request().await {
            let Ok((body, trailers)) = self.wire.request_body(&head).await else {
                return;
            };
            if self.send_echo(&head, &body, &trailers).await.is_err() {
                return;
            }
        }
    }

    /// Sends the received request back, as JSON.
    pub(crate) async fn send_echo(
        &mut self,
        head: &Head,
        body: &Bytes,
        trailers: &Fields,
    ) -> std::io::Result<()> {
        let text = json!({
            "line": head.line,
            "fields": head.fields.0,
            "trailers": trailers.0,
            "body": String::from_utf8_lossy(body),
            "port": self.port,
        })
        .to_string();
        let length = text.len();
        let body = if head.method() == "HEAD" { "" } else { &text };
        self.wire
            .try_send(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"))
            .await
    }
}

//! WebSocket: after a 101 the two connections are joined, and bytes pass both ways until one side ends or both idle.

use super::body::Body;
use super::exchange::{Exchange, ExchangeEnd};
use super::hop;
use super::upstream_answer::UpstreamAnswer;
use crate::clock;
use crate::listen::Peer;
use http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};

/// The most bytes of one read.
const CHUNK: usize = 16 * 1024;
/// Longest time for both sides to hand over their connections after the 101.
const HAND_OVER: Duration = Duration::from_secs(10);

/// Both sides of a tunnel about to be joined, and the 101 that announces it.
#[derive(Debug)]
pub struct Tunnel {
    response: Response<Body>,
    down: OnUpgrade,
    up: OnUpgrade,
}

/// Prepares a tunnel to an upstream that has agreed to it.
#[cold]
#[inline(never)]
#[must_use]
pub fn prepare(mut answer: UpstreamAnswer, down: OnUpgrade) -> Tunnel {
    let up = hyper::upgrade::on(&mut answer.response);
    let (parts, _) = answer.response.into_parts();
    let mut response = Response::new(Body::own(bytes::Bytes::new()));
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    hop::strip_response(parts.status, response.headers_mut());
    hop::mark_websocket(response.headers_mut());
    Tunnel { response, down, up }
}

impl Tunnel {
    /// Sends the 101 and joins both sides once it is out.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn begin(
        mut self,
        mut exchange: Box<Exchange>,
        peer: Rc<Peer>,
        idle: Duration,
    ) -> Response<Body> {
        exchange.upgraded();
        exchange.stamp(self.response.headers_mut());
        join(self.down, self.up, exchange, peer, idle);
        self.response
    }
}

/// Joins both sides in a task of its own. The exchange ends with the tunnel, and the peer's connection counts as open
/// until then.
fn join(down: OnUpgrade, up: OnUpgrade, exchange: Box<Exchange>, peer: Rc<Peer>, idle: Duration) {
    tokio::task::spawn_local(async move {
        let handed_over = timeout(HAND_OVER, async { tokio::try_join!(down, up) }).await;
        let Ok(Ok((down, up))) = handed_over else {
            exchange.end(ExchangeEnd::ClientGone);
            return;
        };
        let mut passing = TunnelBytes {
            exchange: Some(exchange),
            received: Cell::new(0),
            sent: Cell::new(0),
            ending: ExchangeEnd::ClientGone,
        };
        tunnel(TokioIo::new(down), TokioIo::new(up), idle, &passing).await;
        passing.ending = ExchangeEnd::Complete;
        drop(passing);
        drop(peer);
    });
}

/// The counters of a tunnel's bytes, which reach its exchange even when the tunnel is cut from outside.
struct TunnelBytes {
    exchange: Option<Box<Exchange>>,
    received: Cell<u64>,
    sent: Cell<u64>,
    ending: ExchangeEnd,
}

impl Drop for TunnelBytes {
    fn drop(&mut self) {
        if let Some(mut exchange) = self.exchange.take() {
            exchange.received(self.received.get());
            exchange.sent(self.sent.get());
            exchange.end(self.ending);
        }
    }
}

/// Copies until both directions have ended, or nothing has moved for `idle`.
async fn tunnel(
    down: impl AsyncRead + AsyncWrite,
    up: impl AsyncRead + AsyncWrite,
    idle: Duration,
    passing: &TunnelBytes,
) {
    let last = Cell::new(clock::now());
    let (down_read, down_write) = tokio::io::split(down);
    let (up_read, up_write) = tokio::io::split(up);
    let both = async {
        tokio::join!(
            copy(down_read, up_write, &last, &passing.received),
            copy(up_read, down_write, &last, &passing.sent)
        );
    };
    let idled = async {
        while last.get() + idle > clock::now() {
            sleep_until(last.get() + idle).await;
        }
    };
    tokio::select! {
        () = both => {}
        () = idled => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    last: &Cell<Instant>,
    count: &Cell<u64>,
) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = match from.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        // What is encrypted may wait behind a write.
        if to.write_all(&chunk[..read]).await.is_err() || to.flush().await.is_err() {
            break;
        }
        last.set(clock::now());
        count.set(count.get() + read as u64);
    }
    // The other direction may go on: an end of stream is passed on, and does not become a reset.
    let _ = to.shutdown().await;
}

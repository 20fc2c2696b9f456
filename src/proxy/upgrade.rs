//! WebSocket: after a 101 the two connections are joined, and bytes pass both ways until one side ends, both are idle,
//! or the gateway stops.

mod direction;
mod frame_tracker;
mod lookout;
mod tunnel;

use crate::clock;
use crate::descriptors::departure::SecondDescriptor;
use crate::listen::Peer;
use crate::listen::socket::SocketWatch;
use crate::proxy::answer::upstream_answer::UpstreamAnswer;
use crate::proxy::bodies::body::Body;
use crate::proxy::exchange::{Exchange, ExchangeEnd};
use crate::proxy::server::hop;
use crate::shutdown::Drain;
use crate::telemetry::metrics::EndedBy;
use crate::upstream::tunnel::ServerSide;
use http::Response;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{sleep_until, timeout};
use tunnel::{Passed, TunnelSide};

/// The longest time for both sides to hand over their connections after the 101.
const HAND_OVER: Duration = Duration::from_secs(10);
/// The time before the end of draining at which both sides are notified that the gateway goes away; at most a quarter
/// of the remaining time when draining begins.
const FAREWELL: Duration = Duration::from_secs(2);

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
    let mut response = Response::new(Body::from_bytes(bytes::Bytes::new()));
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    hop::strip_response(parts.status, response.headers_mut());
    hop::mark_websocket(response.headers_mut());
    Tunnel { response, down, up }
}

impl Tunnel {
    /// Sends the 101 and joins both sides after it.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn begin(
        mut self,
        mut exchange: Box<Exchange>,
        peer: Rc<Peer>,
        idle: Duration,
    ) -> Response<Body> {
        let drain = exchange.upgraded();
        exchange.stamp(&mut self.response);
        join(self.down, self.up, exchange, peer, idle, drain);
        self.response
    }
}

/// Joins both sides, the client's (`down`) and the server's, in a separate task. The exchange ends with the tunnel, and
/// the peer's connection counts as open until then.
fn join(
    down: OnUpgrade,
    up: OnUpgrade,
    exchange: Box<Exchange>,
    peer: Rc<Peer>,
    idle: Duration,
    drain: Drain,
) {
    tokio::task::spawn_local(async move {
        let handed_over = timeout(HAND_OVER, async { tokio::try_join!(down, up) }).await;
        let sides = handed_over.ok().and_then(Result::ok);
        let Some((down, server)) = sides.and_then(|(down, up)| Some((down, ServerSide::of(up)?)))
        else {
            exchange.end(ExchangeEnd::ClientGone);
            return;
        };
        let mut open = OpenTunnel {
            exchange: Some(exchange),
            passed: Passed::default(),
            ending: ExchangeEnd::ClientGone,
        };
        let client = ClientSide {
            stream: TokioIo::new(down),
            watch: peer.watch.clone(),
        };
        let leaving = async {
            tokio::select! {
                () = nearly_drained(drain) => EndedBy::Drain,
                () = peer.barred() => EndedBy::Certificate,
            }
        };
        tokio::select! {
            () = tunnel::pass(client, server, idle, leaving, &open.passed) => {}
            () = peer.cut() => {}
        }
        open.ending = ExchangeEnd::Complete;
        drop(open);
        drop(peer);
    });
}

/// Resolves shortly before the end of draining.
async fn nearly_drained(drain: Drain) {
    drain.begun().await;
    let now = clock::now();
    let deadline = drain.deadline().unwrap_or(now);
    let left = deadline.saturating_duration_since(now);
    sleep_until(deadline - FAREWELL.min(left / 4)).await;
}

/// A tunnel's exchange, and the number of bytes, which reaches it even if the tunnel is cut from outside.
struct OpenTunnel {
    exchange: Option<Box<Exchange>>,
    passed: Passed,
    ending: ExchangeEnd,
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        if let Some(mut exchange) = self.exchange.take() {
            exchange.received(self.passed.received.get());
            exchange.sent(self.passed.sent.get());
            exchange.tunnel_ended(self.passed.ended_by.get());
            exchange.end(self.ending);
        }
    }
}

/// The client's side of a tunnel.
struct ClientSide {
    stream: TokioIo<Upgraded>,
    watch: SocketWatch,
}

impl TunnelSide for ClientSide {
    fn second_descriptor(&self) -> Option<SecondDescriptor> {
        self.watch.second_descriptor()
    }

    fn end_in_reset(&mut self) {
        self.watch.end_in_reset();
    }
}

impl TunnelSide for ServerSide {
    fn second_descriptor(&self) -> Option<SecondDescriptor> {
        ServerSide::second_descriptor(self)
    }

    fn end_in_reset(&mut self) {
        ServerSide::end_in_reset(self);
    }
}

impl AsyncRead for ClientSide {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ClientSide {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

//! A connection of HTTP/2: hyper drives its streams, and it ends when it is idle, evicted, flooded or late.

use super::Session;
use super::h2_flood::{Flood, FloodMeter, goaway};
use super::handler::{Handler, RejectedHead};
use super::head_deadline::HeadDeadline;
use super::stream_deadline::{H2Service, IdleBounds, StreamSet, WorkerExecutor};
use crate::client::spelled;
use crate::clock;
use crate::listen::socket::{SocketProbe, Stream};
use crate::listen::{ListenSettings, Peer};
use crate::telemetry::h2_refusals::RefusedStream;
use crate::telemetry::log::Throttle;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::sleep_until;

/// The most bytes in a head that h2 hands over; the gateway refuses a head beyond its own bound. h2 counts 32 bytes for
/// each piece of a cookie, which the gateway joins before it counts: so heads with thousands of pieces still get the
/// gateway's own answer, whose log line has host and user agent.
pub(crate) const MOST_SEEN: u32 = 256 * 1024;
/// The bytes of a request's body that may be buffered here for its server. With the current piece, and the rounding of
/// allocations, an upload takes less than 128 KiB of memory.
pub(crate) const STREAM_WINDOW: u32 = 48 * 1024;
/// The bytes of an answer that may be buffered here for its client: hyper's own default.
pub(crate) const MOST_UNTAKEN: usize = 400 * 1024;
/// The time in which a client without a request may close its side; at most a quarter of the idle time, at whose end it
/// is placed.
const FAREWELL: Duration = Duration::from_secs(1);
/// The time in which another request may directly follow an answer. A client with such frequent requests is notified of
/// the end after an answer, when it awaits none.
const NEXT: Duration = Duration::from_millis(250);
/// The most concurrent requests on one connection.
pub(crate) const MOST_STREAMS: u32 = 128;

/// Causes for which a connection takes no more requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    /// The client has left, or violated the protocol.
    Closed,
    /// The connection has been idle for too long, or the gateway stops or begins to leave.
    Idle,
    /// A new connection needs the place of this one.
    Evicted,
    /// The client has sent too many PING and SETTINGS frames, or too many frames without effect.
    Flood(Flood),
    /// A head is late. After an incomplete head no other frame can arrive that a request might wait for.
    LateHead,
}

/// Serves a connection of HTTP/2.
pub(super) async fn serve<A: Handler>(session: &Session<'_, A>, stream: Stream) {
    let (peer, settings) = (&session.peer, session.settings);
    let probe = stream.track_http2();
    let streams = StreamSet::new(settings.rate_bound());
    let service = H2Service {
        handler: Rc::clone(&session.handler),
        peer: Rc::clone(peer),
        streams: Rc::clone(&streams),
    };
    let connection = http2::Builder::new(WorkerExecutor(Rc::clone(&streams)))
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(MOST_SEEN)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_send_buf_size(MOST_UNTAKEN)
        .initial_connection_window_size(1024 * 1024)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .serve_connection(TokioIo::new(stream), service);
    let served = ServedConnection {
        peer,
        handler: &*session.handler,
        probe: &probe,
        streams: &streams,
        settings,
        farewell: FAREWELL.min(settings.keep_alive.get() / 4),
    };
    {
        let mut connection = pin!(connection);
        let reason = served.until_end(connection.as_mut()).await;
        peer.registration.exempt();
        if !matches!(reason, EndReason::Closed | EndReason::Flood(_)) {
            connection.as_mut().graceful_shutdown();
        }
        match reason {
            EndReason::Closed => {}
            EndReason::Flood(flood) => {
                warn_of_flood(flood, peer);
                probe.write_last(&goaway(probe.latest_stream()));
            }
            EndReason::Idle => served.finish(connection).await,
            EndReason::Evicted | EndReason::LateHead => {
                if reason == EndReason::LateHead {
                    session.handler.rejected(&RejectedHead::LateHttp2, peer);
                }
                // The client is notified of the end if its socket takes the bytes at once.
                poll_fn(|cx| Poll::Ready(connection.as_mut().poll(cx).is_ready())).await;
            }
        }
    }
    streams.finish_responses();
    probe.give_up_soon();
}

/// The conditions that are watched on a connection while hyper drives it.
struct ServedConnection<'a, A: Handler> {
    peer: &'a Peer,
    handler: &'a A,
    probe: &'a SocketProbe,
    streams: &'a StreamSet<A::Body>,
    settings: &'a ListenSettings,
    farewell: Duration,
}

impl<A: Handler> ServedConnection<'_, A> {
    /// Drives the connection until it may take no more requests.
    async fn until_end(&self, connection: Pin<&mut impl Future>) -> EndReason {
        let (probe, registration) = (self.probe, &self.peer.registration);
        let now = clock::now();
        let bounds = IdleBounds {
            from: now,
            idle: self.settings.idle,
        };
        let mut head_deadline = HeadDeadline::default();
        // A connection that was accepted while the gateway leaves is served until draining begins.
        let is_late = registration.is_leaving();
        let mut flood = FloodMeter::new(now);
        let mut flooded = || {
            let traffic = probe.control_traffic();
            traffic.and_then(|traffic| flood.flood(traffic, clock::now))
        };
        tokio::select! {
            biased;
            // This check comes before hyper looks for another request.
            () = poll_fn(|cx| registration.poll_evicted(cx)) => EndReason::Evicted,
            _ = self.streams.drive(connection, registration, probe, |head| self.refused(head)) => EndReason::Closed,
            // This check comes after the connection has read the available bytes.
            flood = poll_fn(|_| flooded().map_or(Poll::Pending, Poll::Ready)) => EndReason::Flood(flood),
            () = poll_fn(|cx| head_deadline.poll(cx, probe.in_head(), self.settings.head())) => EndReason::LateHead,
            () = self.asked_to_leave(is_late) => EndReason::Idle,
            // hyper's keep-alive finds dead peers. A live client that sends no request, or takes nothing, is handled
            // here.
            () = self.streams.client_idle(bounds, || self.silent(), probe) => EndReason::Idle,
        }
    }

    /// The time without a request after which the connection is ended.
    fn silent(&self) -> Duration {
        let keep_alive = self.settings.keep_alive.get();
        keep_alive.saturating_sub(self.farewell).max(self.farewell)
    }

    /// Resolves when the client is to be asked to reconnect elsewhere: once the gateway leaves, when there is no
    /// request, and at once if its certificate is no longer trusted.
    ///
    /// A client should continue to wait for its answers after GOAWAY (RFC 9113, section 6.8), but some abandon all of
    /// them, such as Java's in many versions. After an answer GOAWAY harms no client. A client that always has a
    /// current request is notified of the end when draining begins.
    async fn asked_to_leave(&self, is_late: bool) {
        let registration = &self.peer.registration;
        poll_fn(|_| {
            if self.peer.is_barred() {
                return Poll::Ready(());
            }
            registration.poll_over(is_late)
        })
        .await;
        let mut has_asked = false;
        let mut rest = pin!(sleep_until(self.streams.quiet_since() + NEXT));
        poll_fn(|cx| {
            if registration.poll_draining().is_ready() || self.peer.is_barred() {
                return Poll::Ready(());
            }
            if !self.streams.are_still() {
                has_asked = true;
                return Poll::Pending;
            }
            if has_asked {
                return Poll::Ready(());
            }
            rest.as_mut().poll(cx)
        })
        .await;
    }

    /// Handles a head that the library has refused, which the streams do not see.
    #[cold]
    fn refused(&self, head: &RefusedStream) {
        self.handler.rejected(&RejectedHead::Http2(head), self.peer);
    }

    /// Finishes current requests; while draining, the application's deadline ends the ones that do not end by
    /// themselves.
    async fn finish(&self, connection: Pin<&mut impl Future>) {
        let bounds = IdleBounds {
            from: clock::now(),
            idle: self.settings.idle,
        };
        tokio::select! {
            _ = self.streams.drive(connection, &self.peer.registration, self.probe, |head| self.refused(head)) => {}
            () = self.streams.client_idle(bounds, || self.farewell, self.probe) => {}
        }
    }
}

#[cold]
fn warn_of_flood(flood: Flood, peer: &Peer) {
    static FLOOD: Throttle = Throttle::every(Duration::from_secs(10));
    if let Some(more) = FLOOD.pass() {
        let frames = match flood {
            Flood::Demands => "PING and SETTINGS",
            Flood::Idle => "frames without data (WINDOW_UPDATE, PRIORITY, unknown ones)",
        };
        tracing::warn!(
            "{} sent a flood of {frames} over HTTP/2: its connection was ended (ENHANCE_YOUR_CALM){more}",
            spelled(peer.ip())
        );
    }
}

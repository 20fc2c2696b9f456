//! A connection of HTTP/1.1: hyper parses and answers, the deadlines between requests and of heads are kept here.

use super::Session;
use crate::clock;
use crate::listen::connection_register::{ClientWait, Registration};
use crate::listen::handler::{Handler, MOST_HEAD, RejectedHead};
use crate::listen::requests::{H1Service, OpenRequests};
use crate::listen::socket::SocketProbe;
use crate::listen::{ListenSettings, Peer};
use http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};

/// The last answer on a connection whose head is late.
const HEAD_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Serves a connection of HTTP/1.1. A head is on its way since `head_since`, if there is one.
pub(super) async fn serve<A: Handler>(session: Session<'_, A>, head_since: Option<Instant>) {
    let (peer, settings) = (&session.peer, session.settings);
    let probe = session.stream.track_http1();
    let open = OpenRequests::new();
    let service = H1Service {
        handler: Rc::clone(&session.handler),
        peer: Rc::clone(peer),
        open: Rc::clone(&open),
        probe: probe.clone(),
    };
    // hyper's deadline for heads is left out, since it sets a timer anew for each request. hyper's way of noticing that
    // a client leaves is left out too, since it is a read.
    let connection = http1::Builder::new()
        .half_close(true)
        .max_header_size(MOST_HEAD)
        .serve_connection(TokioIo::new(session.stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let mut timer = pin!(sleep_until(open.since() + settings.idle));
    let mut quiet = QuietConnection {
        open: &open,
        probe: &probe,
        settings,
        head_since,
        body_bytes: 0,
    };
    let mut is_draining = false;
    let registration = &peer.registration;
    let rejected = poll_fn(|cx| {
        // This check comes before hyper looks for another request.
        if registration.poll_evicted(cx).is_ready() {
            return Poll::Ready(None);
        }
        if !is_draining && registration.poll_draining().is_ready() {
            is_draining = true;
            // The app's deadline ends a connection that does not end by itself.
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended.err().as_ref().and_then(status_of_hyper));
        }
        if !open.is_idle() {
            return probe.poll_left(cx).map(|()| None);
        }
        quiet.register_wait(registration);
        quiet.poll_over(cx, timer.as_mut())
    })
    .await;
    // The connection ends here, or becomes a tunnel.
    registration.exempt();
    if let Some(status) = rejected {
        report(status, &probe, &*session.handler, peer);
    }
}

/// Reports a head that hyper or its deadline has rejected.
fn report<A: Handler>(status: StatusCode, probe: &SocketProbe, handler: &A, peer: &Peer) {
    if status == StatusCode::REQUEST_TIMEOUT {
        probe.write_last(HEAD_TIMEOUT);
    }
    let line = &probe.first_line();
    handler.rejected(&RejectedHead { status, line }, peer);
}

/// A connection on which no request is under way: before its first request, or between two.
struct QuietConnection<'a> {
    open: &'a OpenRequests,
    probe: &'a SocketProbe,
    settings: &'a ListenSettings,
    /// The time since which a head is on its way.
    head_since: Option<Instant>,
    /// Bytes of bodies that had come at the last check.
    body_bytes: u64,
}

impl QuietConnection<'_> {
    /// Notes in the register the event that the connection waits for.
    fn register_wait(&self, registration: &Registration) {
        match self.probe.client_wait() {
            Some(ClientWait::Idle) => registration.set_waiting(ClientWait::Idle, self.open.since()),
            Some(wait) => registration.set_waiting(wait, clock::now()),
            None => registration.set_busy(),
        }
    }

    /// Ready when no request has come for too long, or when a head is late, with the status for that head. A body that
    /// still comes after its answer may go on, as long as bytes come.
    ///
    /// The call comes only where no request is under way. The timer, once set, is moved when it fires and not with each
    /// request; only a head that does not come in one piece brings it forward.
    fn poll_over(
        &mut self,
        cx: &mut Context<'_>,
        mut timer: Pin<&mut Sleep>,
    ) -> Poll<Option<StatusCode>> {
        let head_deadline = if self.probe.in_head() {
            Some(*self.head_since.get_or_insert_with(clock::now) + self.settings.head())
        } else {
            self.head_since = None;
            None
        };
        if let Some(deadline) = head_deadline
            && timer.deadline() > deadline
        {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            let now = clock::now();
            let until = head_deadline.unwrap_or_else(|| self.idle_until(now));
            if until <= now {
                return Poll::Ready(head_deadline.map(|_| StatusCode::REQUEST_TIMEOUT));
            }
            timer.as_mut().reset(until);
        }
    }

    /// Has enough of a body come since the last call?
    fn keeps_coming(&mut self, bytes: u64) -> bool {
        let new = bytes - std::mem::replace(&mut self.body_bytes, bytes).min(bytes);
        new >= self.settings.rate_bound().least.max(1)
    }

    fn idle_until(&mut self, now: Instant) -> Instant {
        let idle = self.settings.idle;
        match self.probe.in_body() {
            Some(bytes) if self.keeps_coming(bytes) => now + idle,
            // For hyper an answer is over before its last bytes are taken.
            _ => self.open.since().max(self.probe.wrote()) + idle,
        }
    }
}

/// The status of hyper's answer to a head that it could not read, if `error` is about such a head.
fn status_of_hyper(error: &hyper::Error) -> Option<StatusCode> {
    if error.is_parse_too_large() {
        // The status is never 414: a URI too long for hyper is in a head that is too large for the gateway.
        return Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    (error.is_parse() && !error.is_parse_version_h2()).then_some(StatusCode::BAD_REQUEST)
}

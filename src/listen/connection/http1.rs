//! A connection of HTTP/1.1: hyper parses and answers, while the deadlines between requests and of heads are enforced
//! here.

use super::handler::{Handler, MOST_REQUEST_HEAD, RejectedHead};
use super::requests::{H1Service, OpenRequests};
use super::{FAREWELL, Session};
use crate::clock;
use crate::listen::ListenSettings;
use crate::listen::accept::connection_register::{ClientWait, Registration};
use crate::listen::socket::{SocketProbe, Stream};
use http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// The time without a request after which a connection is put to rest.
const REST: Duration = Duration::from_secs(1);

/// The longest time for the rest of a body after the last answer, and the most bytes of it.
const HEARD_OUT: Duration = Duration::from_secs(5);
const MOST_HEARD_OUT: usize = 16 << 20;

/// The reason why hyper's connection is no longer driven.
enum Served {
    /// The connection ends, or becomes a tunnel. A head may have been rejected with this status.
    Ended(Option<StatusCode>),
    /// The client has sent nothing for too long.
    Silent,
    /// There is no request, and none has arrived for some time.
    Resting,
}

/// A connection from its first request on.
struct Http1Connection<'a, A> {
    session: &'a Session<'a, A>,
    probe: SocketProbe,
    open: Rc<OpenRequests>,
}

/// Serves a connection of HTTP/1.1. A head has been incomplete since `head_since`, if there is one.
///
/// Most connections of a gateway wait for a next request that may never arrive. Such a connection is put to rest:
/// hyper's connection, with two buffers of 8 KiB, is dropped, and created anew when bytes arrive.
pub(super) async fn serve<A: Handler>(
    session: &Session<'_, A>,
    mut stream: Stream,
    mut head_since: Option<Instant>,
) {
    let connection = Http1Connection {
        session,
        probe: stream.track_http1(),
        open: OpenRequests::new(),
    };
    loop {
        // The future is boxed, so that a connection at rest needs no room for it.
        let served = Box::pin(connection.serve_until_rest(stream, head_since.take())).await;
        match served {
            Served::Resting => {}
            Served::Ended(Some(status)) => Box::pin(connection.refuse(status)).await,
            Served::Ended(None) => connection.send_rest().await,
            // No further wait is worthwhile.
            Served::Silent => connection.send_withheld().await,
        }
        if !matches!(served, Served::Resting) {
            session.peer.registration.exempt();
            return;
        }
        if !connection.rest().await {
            connection.probe.give_up_soon();
            return;
        }
        let (peer, bound) = (&session.peer, session.settings.rate_bound());
        stream = Stream::resumed(&connection.probe, &peer.watch, bound);
    }
}

impl<A: Handler> Http1Connection<'_, A> {
    /// Lets hyper drive the connection.
    async fn serve_until_rest(&self, stream: Stream, head_since: Option<Instant>) -> Served {
        let Session { peer, settings, .. } = self.session;
        let registration = &peer.registration;
        // hyper's deadline for heads is not used, since it sets a timer anew for each request. hyper's detection of a
        // leaving client is not used either, since it is a read.
        let connection = http1::Builder::new()
            .half_close(true)
            .max_header_size(MOST_REQUEST_HEAD)
            .serve_connection(TokioIo::new(stream), self.service())
            .with_upgrades();
        let mut connection = pin!(connection);
        let mut quiet = QuietConnection {
            open: &self.open,
            probe: &self.probe,
            settings,
            head_since,
            body_bytes: 0,
            timer: pin!(sleep_until(
                clock::now() + REST.min(settings.keep_alive.get())
            )),
            is_set: false,
        };
        let mut is_draining = false;
        poll_fn(|cx| {
            // This check comes before hyper looks for another request. Only a connection that waits is evicted.
            if registration.is_waiting() && registration.poll_evicted(cx).is_ready() {
                return Poll::Ready(Served::Ended(None));
            }
            let mut ended = connection.as_mut().poll(cx);
            if !is_draining && ended.is_pending() && registration.poll_draining().is_ready() {
                is_draining = true;
                // hyper has just looked for a request: one that has arrived is answered. The application's deadline
                // ends a connection that does not end by itself.
                connection.as_mut().graceful_shutdown();
                ended = connection.as_mut().poll(cx);
            }
            if let Poll::Ready(ended) = ended {
                return Poll::Ready(Served::Ended(status_of_end(ended)));
            }
            if !self.open.is_idle() {
                let left = self.probe.poll_left(cx);
                return left.map(|()| Served::Ended(None));
            }
            quiet.poll_over(cx, registration)
        })
        .await
    }

    fn service(&self) -> H1Service<A> {
        H1Service {
            handler: Rc::clone(&self.session.handler),
            peer: Rc::clone(&self.session.peer),
            open: Rc::clone(&self.open),
            probe: self.probe.clone(),
        }
    }

    /// Waits at rest for the client. Returns false if the connection ends.
    async fn rest(&self) -> bool {
        let Session { peer, settings, .. } = self.session;
        peer.rest();
        self.probe.rest();
        let since = quiet_since(&self.open, &self.probe);
        let mut timer = pin!(sleep_until(since + settings.keep_alive.get()));
        poll_fn(|cx| {
            let registration = &peer.registration;
            if registration.poll_evicted(cx).is_ready() {
                return Poll::Ready(false);
            }
            if let Poll::Ready(has_bytes) = self.probe.poll_unread(cx) {
                return Poll::Ready(has_bytes);
            }
            if registration.poll_draining().is_ready() {
                return Poll::Ready(false);
            }
            // A reload may have changed the time, and wakes all connections then.
            let until = since + settings.keep_alive.get();
            if timer.deadline() != until {
                timer.as_mut().reset(until);
            }
            timer.as_mut().poll(cx).map(|()| false)
        })
        .await
    }

    /// Waits until the last answer is sent.
    async fn send_rest(&self) {
        self.send_withheld().await;
        if self.probe.is_in_message() {
            self.hear_out().await;
        }
    }

    async fn send_withheld(&self) {
        let withheld = self.probe.take_withheld();
        if !withheld.is_empty() {
            self.probe.say_last(&withheld, FAREWELL).await;
        }
    }

    /// Discards, below any encryption, the rest of a message whose answer was the last one. Some clients read no answer
    /// before they have sent everything, and find no answer if their connection is reset (RFC 9112, section 9.6).
    #[cold]
    async fn hear_out(&self) {
        let registration = &self.session.peer.registration;
        registration.set_waiting(ClientWait::Idle, clock::now());
        let mut left = MOST_HEARD_OUT;
        let reading = poll_fn(|cx| {
            if registration.poll_evicted(cx).is_ready() {
                return Poll::Ready(());
            }
            match ready!(self.probe.poll_discard(cx)) {
                Ok(count) if count > 0 && count < left => left -= count,
                _ => return Poll::Ready(()),
            }
            // Other tasks have their turn between two reads.
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        // The client may leave at any time.
        let _ = timeout(HEARD_OUT, reading).await;
    }

    /// Answers a head that hyper or its deadline has rejected, and ends the connection.
    #[cold]
    async fn refuse(&self, status: StatusCode) {
        let Session { peer, handler, .. } = self.session;
        let is_late = status == StatusCode::REQUEST_TIMEOUT;
        // hyper's own answer is not sent.
        drop(self.probe.take_withheld());
        let beginning = &self.probe.kept_head();
        let answer = handler.rejected(&RejectedHead::Http1 { status, beginning }, peer);
        if is_late {
            peer.registration.exempt();
        }
        self.probe.say_last(&answer, FAREWELL).await;
        if !is_late {
            // Unread bytes after the head would cause a reset, in which the answer would be lost.
            self.hear_out().await;
        }
    }
}

/// The time since which a connection without a request has been silent. For hyper an answer is complete before its last
/// bytes are taken.
fn quiet_since(open: &OpenRequests, probe: &SocketProbe) -> Instant {
    let since = open.since();
    probe.took_late().map_or(since, |late| late.max(since))
}

/// A connection without a current request: before its first request, or between two.
struct QuietConnection<'a> {
    open: &'a OpenRequests,
    probe: &'a SocketProbe,
    settings: &'a ListenSettings,
    /// The time since which a head has been incomplete.
    head_since: Option<Instant>,
    /// Bytes of bodies that had arrived at the last check.
    body_bytes: u64,
    /// The timer is moved when it fires rather than with each request; only a head in several pieces makes it earlier.
    timer: Pin<&'a mut Sleep>,
    /// The timer is set, and wakes the connection's task.
    is_set: bool,
}

impl QuietConnection<'_> {
    /// Ready when the connection may rest, when no request has arrived for too long, or when a head is late, with the
    /// status for that head. A body that continues after its answer may do so as long as bytes arrive. Notes in the
    /// register the event that the connection waits for.
    ///
    /// Must be called only while there is no request.
    fn poll_over(&mut self, cx: &mut Context<'_>, registration: &Registration) -> Poll<Served> {
        let wait = self.probe.poll_quiet_wait(cx);
        match wait.client {
            Some(ClientWait::Idle) => registration.set_waiting(ClientWait::Idle, self.open.since()),
            Some(other) => registration.set_waiting(other, clock::now()),
            None => registration.set_busy(),
        }
        if wait.in_head {
            return self.poll_late_head(cx);
        }
        self.head_since = None;
        // A timer that is set wakes the task without being polled.
        if self.is_set && !self.timer.is_elapsed() {
            return Poll::Pending;
        }
        self.poll_idle(cx, wait.is_between)
    }

    #[cold]
    fn poll_late_head(&mut self, cx: &mut Context<'_>) -> Poll<Served> {
        let since = *self.head_since.get_or_insert_with(clock::now);
        let deadline = since + self.settings.head();
        if self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
        }
        loop {
            ready!(self.poll_timer(cx));
            if deadline <= clock::now() {
                return Poll::Ready(Served::Ended(Some(StatusCode::REQUEST_TIMEOUT)));
            }
            self.timer.as_mut().reset(deadline);
        }
    }

    /// Checks again each time that the timer has fired. `may_rest` states whether hyper has no bytes that matter.
    #[cold]
    fn poll_idle(&mut self, cx: &mut Context<'_>, may_rest: bool) -> Poll<Served> {
        loop {
            ready!(self.poll_timer(cx));
            let now = clock::now();
            let since = quiet_since(self.open, self.probe);
            let allowed = match self.probe.in_body() {
                Some(_) => self.settings.idle,
                None => self.settings.keep_alive.get(),
            };
            let mut until = since + allowed;
            if until <= now {
                until = self.kept_coming(now);
            } else if may_rest {
                if since + REST <= now {
                    return Poll::Ready(Served::Resting);
                }
                until = until.min(since + REST);
            }
            if until <= now {
                self.probe.give_up_soon();
                return Poll::Ready(Served::Silent);
            }
            self.timer.as_mut().reset(until);
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let fired = self.timer.as_mut().poll(cx);
        self.is_set = fired.is_pending();
        fired
    }

    /// The time until which a connection that has been idle for too long may continue: `now`, unless enough of a body
    /// has arrived since the last call.
    fn kept_coming(&mut self, now: Instant) -> Instant {
        let Some(bytes) = self.probe.in_body() else {
            return now;
        };
        let new = bytes - std::mem::replace(&mut self.body_bytes, bytes).min(bytes);
        if new >= self.settings.rate_bound().least.max(1) {
            now + self.settings.idle
        } else {
            now
        }
    }
}

/// The status of hyper's answer to a head that it could not read, if such a head ended the connection.
fn status_of_end(ended: hyper::Result<()>) -> Option<StatusCode> {
    status_of_hyper(&ended.err()?)
}

/// The status of hyper's answer to a head that it could not read, if `error` is about such a head.
#[cold]
fn status_of_hyper(error: &hyper::Error) -> Option<StatusCode> {
    if error.is_parse_too_large() {
        // The status is never 414: a URI too long for hyper is in a head that is too large for the gateway.
        return Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    (error.is_parse() && !error.is_parse_version_h2()).then_some(StatusCode::BAD_REQUEST)
}

//! Both directions of a tunnel until one side ends it, no bytes have passed for too long, or the gateway stops.
//!
//! When one side leaves, the resources are freed regardless of the other side: a reset ends both sides at once, an end
//! or the closing frame leaves the other side a moment for its last bytes.

use crate::clock;
use crate::descriptors::departure::{Departure, SecondDescriptor};
use crate::proxy::upgrade::direction::{SideFault, TunnelDirection};
use crate::proxy::upgrade::frame_tracker;
use crate::proxy::upgrade::lookout::Lookout;
use crate::telemetry::metrics::EndedBy;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

/// The time for the other side's last bytes after one side has ended, or has sent the closing frame. The slot is thus
/// free two seconds after the end.
const LAST_BYTES: Duration = Duration::from_millis(1500);

/// One side of a tunnel.
pub(super) trait TunnelSide: AsyncRead + AsyncWrite + Unpin {
    /// A second descriptor of the side's socket, if one is available.
    fn second_descriptor(&self) -> Option<SecondDescriptor>;

    /// Makes the connection end in a reset when it is closed.
    fn end_in_reset(&mut self);
}

/// The bytes that have passed through a tunnel, noted as they pass: the tunnel may be cut from outside.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Bytes from the client.
    pub(super) received: Cell<u64>,
    /// Bytes from the server.
    pub(super) sent: Cell<u64>,
    /// The cause of the end.
    pub(super) ended_by: Cell<Option<EndedBy>>,
}

/// Passes bytes in both directions until the tunnel has ended. A pause may last for `idle`; when `leaving` resolves,
/// both sides are notified that the gateway goes away, and the result is the cause of the tunnel's end.
pub(super) async fn pass(
    mut client: impl TunnelSide,
    mut server: impl TunnelSide,
    idle: Duration,
    leaving: impl Future<Output = EndedBy>,
    passed: &Passed,
) {
    let began = clock::now();
    let mut leaving = pin!(unconstrained(leaving));
    let mut timer = pin!(sleep_until(began + idle));
    let mut tunnel = JoinedSides {
        to_server: TunnelDirection::new(),
        to_client: TunnelDirection::new(),
        at_client: Lookout::default(),
        at_server: Lookout::default(),
        last: began,
        idle,
        ends: None,
        is_leaving: false,
        passed,
    };
    let end = poll_fn(|cx| {
        if !tunnel.is_leaving
            && let Poll::Ready(by) = leaving.as_mut().poll(cx)
        {
            tunnel.leave(by);
        }
        tunnel.poll(cx, &mut client, &mut server, timer.as_mut())
    })
    .await;
    if end == End::Cut || tunnel.to_client.is_blocked() || tunnel.to_server.is_blocked() {
        // An orderly end would mean that all bytes have arrived.
        client.end_in_reset();
        server.end_in_reset();
    }
}

/// The kind of a tunnel's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Both sides are closed in order.
    Orderly,
    /// Both are reset.
    Cut,
}

/// A tunnel between two sides.
struct JoinedSides<'a> {
    to_server: TunnelDirection,
    to_client: TunnelDirection,
    at_client: Lookout,
    at_server: Lookout,
    /// The time at which bytes have passed last.
    last: Instant,
    idle: Duration,
    /// The time at which the tunnel is over, after one side has closed.
    ends: Option<Instant>,
    /// Both sides are notified that the gateway goes away.
    is_leaving: bool,
    passed: &'a Passed,
}

impl JoinedSides<'_> {
    /// The gateway goes away, or dismisses the client: notifies both sides.
    fn leave(&mut self, by: EndedBy) {
        self.is_leaving = true;
        self.note_end(by);
        self.to_client.bid_farewell(frame_tracker::going_away());
        self.to_server
            .bid_farewell(frame_tracker::going_away_masked());
    }

    fn note_end(&self, by: EndedBy) {
        let first = self.passed.ended_by.get().or(Some(by));
        self.passed.ended_by.set(first);
    }

    /// Notes that one side has closed.
    fn closes(&mut self, by: EndedBy) {
        self.note_end(by);
        self.ends.get_or_insert_with(|| clock::now() + LAST_BYTES);
    }

    /// Drives both directions. Ready at the tunnel's end.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut impl TunnelSide,
        server: &mut impl TunnelSide,
        mut timer: Pin<&mut Sleep>,
    ) -> Poll<End> {
        let moved = self.moved();
        let up = self.to_server.poll(cx, client, server);
        let down = self.to_client.poll(cx, server, client);
        self.note_moved(moved);
        if let Poll::Ready(Err(fault)) = up
            && let Some(end) = self.fails(&fault, EndedBy::Client, EndedBy::Server)
        {
            return Poll::Ready(end);
        }
        if let Poll::Ready(Err(fault)) = down
            && let Some(end) = self.fails(&fault, EndedBy::Server, EndedBy::Client)
        {
            return Poll::Ready(end);
        }
        if self.to_server.has_closed() {
            self.closes(EndedBy::Client);
        }
        if self.to_client.has_closed() {
            self.closes(EndedBy::Server);
        }
        if self.is_over() {
            return Poll::Ready(End::Orderly);
        }
        loop {
            if let Poll::Ready(end) = self.look(cx, client, server) {
                return Poll::Ready(end);
            }
            if let Some(end) = self.is_late(clock::now()) {
                return Poll::Ready(end);
            }
            // A timer that fires too early is set anew.
            let next = self.next_look();
            if timer.deadline() > next || timer.is_elapsed() {
                timer.as_mut().reset(next);
            }
            // The time is checked even while bytes keep passing.
            let fired = unconstrained(timer.as_mut());
            if pin!(fired).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Bytes that have passed, in both directions.
    fn moved(&self) -> u64 {
        self.to_server.moved() + self.to_client.moved()
    }

    fn note_moved(&mut self, before: u64) {
        if self.moved() != before {
            self.last = clock::now();
            self.passed.received.set(self.to_server.moved());
            self.passed.sent.set(self.to_client.moved());
        }
    }

    /// Handles the failure of a direction. The tunnel is over, unless the receiver failed and all of the receiver's
    /// bytes have arrived: these are passed on.
    fn fails(&mut self, fault: &SideFault, sender: EndedBy, receiver: EndedBy) -> Option<End> {
        let has_ended = match receiver {
            EndedBy::Server => self.to_client.has_ended(),
            _ => self.to_server.has_ended(),
        };
        match fault {
            SideFault::Sender => self.note_end(sender),
            SideFault::Receiver(_) if has_ended => {
                match receiver {
                    EndedBy::Server => self.to_server.stop(),
                    _ => self.to_client.stop(),
                }
                return None;
            }
            // The client has taken nothing for too long.
            SideFault::Receiver(io::ErrorKind::TimedOut) => self.note_end(EndedBy::Idle),
            SideFault::Receiver(_) => self.note_end(receiver),
        }
        Some(End::Cut)
    }

    /// Are both directions over? If the gateway goes away, both sides have answered its closing frame.
    fn is_over(&self) -> bool {
        let (up, down) = (&self.to_server, &self.to_client);
        let have_answered = self.is_leaving
            && up.has_closed()
            && down.has_closed()
            && !up.is_blocked()
            && !down.is_blocked();
        (up.is_over() && down.is_over()) || have_answered
    }

    /// Watches sides that are not read from.
    fn look(
        &mut self,
        cx: &mut Context<'_>,
        client: &impl TunnelSide,
        server: &impl TunnelSide,
    ) -> Poll<End> {
        let blocked = (self.to_server.is_blocked(), self.to_client.is_blocked());
        let looked_up = || client.second_descriptor();
        let at_client = self.at_client.poll(cx, blocked.0, looked_up);
        let looked_down = || server.second_descriptor();
        let at_server = self.at_server.poll(cx, blocked.1, looked_down);
        for (seen, by) in [(at_client, EndedBy::Client), (at_server, EndedBy::Server)] {
            match seen {
                Poll::Ready(Departure::Reset) => {
                    self.note_end(by);
                    return Poll::Ready(End::Cut);
                }
                Poll::Ready(Departure::End) => self.closes(by),
                Poll::Pending => {}
            }
        }
        Poll::Pending
    }

    /// The end of a tunnel whose time is over at `now`.
    fn is_late(&self, now: Instant) -> Option<End> {
        if self.ends.is_some_and(|ends| ends <= now) {
            return Some(End::Orderly);
        }
        if self.last + self.idle <= now {
            self.note_end(EndedBy::Idle);
            return Some(End::Orderly);
        }
        None
    }

    /// The time of the next check.
    fn next_look(&self) -> Instant {
        let looks = [self.ends, self.at_client.next(), self.at_server.next()];
        let idle = self.last + self.idle;
        looks.into_iter().flatten().fold(idle, Instant::min)
    }
}

//! Facts about a connection that are observed in step with hyper: heads and frames, waiting bytes, a leaving client.

use super::framing::{FramingFault, FramingTracker};
use super::h2_frames::{ControlTraffic, H2FrameTracker};
use super::{ProtocolTracker, SharedSocket, SocketState, lock};
use crate::listen::accept::connection_register::ClientWait;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Reports facts about a connection that hyper does not report, most of them in HTTP/1.1 only. The probe keeps the
/// socket open.
#[derive(Debug, Clone)]
pub(in crate::listen) struct SocketProbe(pub(super) SharedSocket);

/// The wait of a connection without a current request.
#[derive(Debug, Clone, Copy)]
pub(in crate::listen) struct QuietWait {
    /// The client's action that the connection waits for. `None` if an answer has not been sent yet, or a body
    /// continues.
    pub(in crate::listen) client: Option<ClientWait>,
    /// A head is incomplete.
    pub(in crate::listen) in_head: bool,
    /// All bytes that were read belong to messages that have ended, or are empty lines after them. No bytes wait to be
    /// written.
    pub(in crate::listen) is_between: bool,
}

impl SocketState {
    fn framing(&self) -> Option<&FramingTracker> {
        match &self.tracker {
            ProtocolTracker::Http1(framing) => Some(framing),
            ProtocolTracker::Http2(_) | ProtocolTracker::Off => None,
        }
    }

    fn frames(&self) -> Option<&H2FrameTracker> {
        match &self.tracker {
            ProtocolTracker::Http2(frames) => Some(frames),
            ProtocolTracker::Http1(_) | ProtocolTracker::Off => None,
        }
    }

    /// The wait of a connection while no request is under way.
    fn quiet_wait(&self) -> QuietWait {
        let (in_head, in_body) = match self.framing() {
            Some(framing) => (framing.in_head(), framing.in_body().is_some()),
            None => (false, false),
        };
        let client = if self.is_full || in_body {
            None
        } else if in_head {
            Some(ClientWait::HalfHead)
        } else {
            Some(ClientWait::Idle)
        };
        let is_before = self.framing().is_some_and(FramingTracker::is_before_head);
        QuietWait {
            client,
            in_head,
            is_between: is_before && !self.is_full,
        }
    }

    /// Sends bytes that looked like hyper's own answer but were not one, as far as the socket takes them: the rest
    /// precedes hyper's next write.
    #[cold]
    fn send_withheld(&mut self, cx: &mut Context<'_>) {
        while !self.withheld.is_empty() {
            let sent = self
                .channel
                .poll_write(cx, &[io::IoSlice::new(&self.withheld)]);
            match sent {
                Poll::Ready(Ok(sent)) if sent > 0 => drop(self.withheld.drain(..sent)),
                _ => return,
            }
        }
    }
}

impl SocketProbe {
    /// Notes that the `nth` request begins, counted from 1, and returns the fault in its head.
    pub(in crate::listen) fn begin(&self, nth: u64) -> Option<FramingFault> {
        match &mut lock(&self.0).tracker {
            ProtocolTracker::Http1(framing) => {
                framing.takes(nth);
                framing.fault(nth)
            }
            ProtocolTracker::Http2(_) | ProtocolTracker::Off => None,
        }
    }

    /// Notes that the connection rests, and frees the kept bytes of its last head.
    pub(in crate::listen) fn rest(&self) {
        if let ProtocolTracker::Http1(framing) = &mut lock(&self.0).tracker {
            framing.rest();
        }
    }

    /// Notes that the connection is about to become a tunnel.
    pub(in crate::listen) fn begin_tunnel(&self) {
        let mut socket = lock(&self.0);
        socket.tracker = ProtocolTracker::Off;
        socket.idle_alone = true;
    }

    /// The beginning of the latest head.
    pub(in crate::listen) fn kept_head(&self) -> Vec<u8> {
        let socket = lock(&self.0);
        let head = socket.framing().map(FramingTracker::kept);
        head.unwrap_or_default().to_owned()
    }

    /// Takes hyper's own answer, which is not sent.
    pub(in crate::listen) fn take_withheld(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.0).withheld)
    }

    /// Writes the last bytes of a connection on which hyper writes nothing any more, and ends its side. The client has
    /// `allowed` to take them.
    pub(in crate::listen) async fn say_last(&self, mut bytes: &[u8], allowed: Duration) {
        if self.is_full() {
            return;
        }
        let said = poll_fn(|cx| {
            let socket = &mut *lock(&self.0);
            while !bytes.is_empty() {
                let sent = ready!(socket.channel.poll_write(cx, &[io::IoSlice::new(bytes)]))?;
                bytes = &bytes[sent.min(bytes.len())..];
            }
            socket.channel.announce_end();
            if socket.channel.keeps_bytes() {
                ready!(socket.channel.poll_write(cx, &[]))?;
            }
            socket.channel.poll_shutdown(cx)
        });
        // The client may leave at any time.
        let _ = timeout(allowed, said).await;
    }

    /// Is a head incomplete?
    pub(in crate::listen) fn in_head(&self) -> bool {
        match &lock(&self.0).tracker {
            ProtocolTracker::Http1(framing) => framing.in_head(),
            ProtocolTracker::Http2(frames) => frames.in_head(),
            ProtocolTracker::Off => false,
        }
    }

    /// Writes the last bytes of a connection on which hyper writes nothing, if the socket takes them at once.
    pub(in crate::listen) fn write_last(&self, bytes: &[u8]) {
        let mut socket = lock(&self.0);
        if !socket.is_full {
            socket.channel.write_last(bytes);
        }
    }

    /// The control traffic of the client on a connection of HTTP/2.
    pub(in crate::listen) fn control_traffic(&self) -> Option<ControlTraffic> {
        lock(&self.0).frames().map(H2FrameTracker::control_traffic)
    }

    /// The latest stream that the client has begun on a connection of HTTP/2.
    pub(in crate::listen) fn latest_stream(&self) -> u32 {
        let latest = lock(&self.0).frames().map(H2FrameTracker::latest_stream);
        latest.unwrap_or(0)
    }

    /// Do bytes wait because the socket takes none?
    pub(in crate::listen) fn is_full(&self) -> bool {
        lock(&self.0).is_full
    }

    /// Ends a connection: in a reset if its client takes nothing of the waiting bytes. The system discards the bytes
    /// that it has taken over if the client takes nothing of them for some time.
    #[cold]
    pub(in crate::listen) fn give_up_soon(&self) {
        let socket = &mut *lock(&self.0);
        if socket.is_full {
            socket.channel.end_in_reset();
        } else {
            socket.channel.transport().bound_farewell();
        }
    }

    /// The last time at which the client took bytes late.
    pub(in crate::listen) fn took_late(&self) -> Option<Instant> {
        lock(&self.0).took_late
    }

    /// Ready when the client has sent bytes that are not read yet (true), or closed its side (false).
    pub(in crate::listen) fn poll_unread(&self, cx: &mut Context<'_>) -> Poll<bool> {
        lock(&self.0).channel.poll_peek(cx)
    }

    /// Discards received bytes, below any encryption; ready with the number of bytes, 0 at the end of stream.
    pub(in crate::listen) fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        lock(&self.0).channel.poll_discard(cx)
    }

    /// The number of bytes that have arrived, while in a request's body.
    pub(in crate::listen) fn in_body(&self) -> Option<u64> {
        lock(&self.0).framing()?.in_body()
    }

    /// May more of a request's body arrive, or of bytes that no parser follows any more?
    pub(in crate::listen) fn is_in_message(&self) -> bool {
        let socket = lock(&self.0);
        let framing = socket.framing();
        framing.is_some_and(|framing| framing.in_body().is_some() || framing.is_lost())
    }

    /// The event that the connection waits for without a current request. `None` if an answer has not been sent yet, or
    /// a body continues after it.
    pub(in crate::listen) fn client_wait(&self) -> Option<ClientWait> {
        lock(&self.0).quiet_wait().client
    }

    /// The wait of a connection without a current request. hyper has just been polled, and continues.
    pub(in crate::listen) fn poll_quiet_wait(&self, cx: &mut Context<'_>) -> QuietWait {
        let socket = &mut *lock(&self.0);
        if !socket.withheld.is_empty() {
            socket.send_withheld(cx);
        }
        socket.quiet_wait()
    }

    /// Ready when the client has left during a request, unless unread bytes hide it. hyper has just been polled, and
    /// continues.
    ///
    /// hyper would check by reading into 8 KiB, which it allocates for each request only for this purpose.
    pub(in crate::listen) fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        let socket = &mut *lock(&self.0);
        if !socket.withheld.is_empty() {
            socket.send_withheld(cx);
        }
        let in_body = socket.framing().and_then(FramingTracker::in_body);
        if in_body.is_some() || socket.is_unread {
            return Poll::Pending;
        }
        if ready!(socket.channel.poll_peek(cx)) {
            socket.is_unread = true;
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

//! What of a connection is seen beside hyper: heads and frames, bytes that wait, a client that leaves.

use super::{SharedSocket, lock};
use crate::listen::connection_register::ClientWait;
use crate::listen::framing::{FramingFault, FramingTracker};
use crate::listen::h2_frames::ControlTraffic;
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;
use tokio::time::Instant;

/// Sees what hyper does not tell of a connection, most of it in HTTP/1.1 only. Keeps the socket open.
#[derive(Debug, Clone)]
pub(in crate::listen) struct SocketProbe(pub(super) SharedSocket);

impl SocketProbe {
    /// What is wrong with the head of the `nth` request, counted from 1.
    pub(in crate::listen) fn found(&self, nth: u64) -> Option<FramingFault> {
        lock(&self.0).heads.as_ref()?.found(nth)
    }

    /// The connection is about to become a tunnel.
    pub(in crate::listen) fn begin_tunnel(&self) {
        let mut socket = lock(&self.0);
        socket.heads = None;
        socket.idle_alone = true;
    }

    /// The first line of the latest head, or its beginning.
    pub(in crate::listen) fn first_line(&self) -> Vec<u8> {
        let socket = lock(&self.0);
        let line = socket.heads.as_ref().map(FramingTracker::line);
        line.unwrap_or_default().to_owned()
    }

    /// Has a head begun that is not whole?
    pub(in crate::listen) fn in_head(&self) -> bool {
        let socket = lock(&self.0);
        match (&socket.heads, &socket.frames) {
            (Some(heads), _) => heads.in_head(),
            (None, Some(frames)) => frames.in_head(),
            (None, None) => false,
        }
    }

    /// Writes the last bytes of a connection that hyper has nothing to say on, as far as the socket takes them at once.
    pub(in crate::listen) fn write_last(&self, bytes: &[u8]) {
        let socket = lock(&self.0);
        if !socket.is_full {
            // Who is not there to read it misses nothing.
            let _ = socket.tcp.try_write(bytes);
        }
    }

    /// What [`FrameTracker::demanded`] and [`FrameTracker::stream`] say of a connection of HTTP/2.
    pub(in crate::listen) fn demanded(&self) -> Option<(ControlTraffic, u32)> {
        let socket = lock(&self.0);
        let frames = socket.frames.as_ref()?;
        Some((frames.demanded(), frames.stream()))
    }

    /// Bytes wait because the socket takes none.
    pub(in crate::listen) fn is_full(&self) -> bool {
        lock(&self.0).is_full
    }

    /// When the client last took bytes.
    pub(in crate::listen) fn wrote(&self) -> Instant {
        lock(&self.0).wrote
    }

    /// Bytes that have come, while a request's body is on its way.
    pub(in crate::listen) fn in_body(&self) -> Option<u64> {
        lock(&self.0).heads.as_ref()?.in_body()
    }

    /// What the connection waits for while no request is under way; nothing where an answer has not left yet, or a
    /// body still comes behind it.
    pub(in crate::listen) fn waiting(&self) -> Option<ClientWait> {
        let socket = lock(&self.0);
        let heads = socket.heads.as_ref();
        if socket.is_full || heads.is_some_and(|heads| heads.in_body().is_some()) {
            return None;
        }
        let half_head = heads.is_some_and(FramingTracker::in_head);
        Some(if half_head {
            ClientWait::HalfHead
        } else {
            ClientWait::Idle
        })
    }

    /// Ready when the client has left in the middle of a request, unless unread bytes hide it.
    ///
    /// hyper would look by reading, into 8 KiB that it gets for each request only for that.
    pub(in crate::listen) fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        let socket = &mut *lock(&self.0);
        let in_body = socket
            .heads
            .as_ref()
            .and_then(FramingTracker::in_body)
            .is_some();
        if in_body || socket.is_unread {
            return Poll::Pending;
        }
        let mut byte = [0];
        match ready!(socket.tcp.poll_peek(cx, &mut ReadBuf::new(&mut byte))) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(_) => {
                socket.is_unread = true;
                Poll::Pending
            }
        }
    }
}

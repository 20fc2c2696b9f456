//! The stream under a client's connection, which can be watched while hyper does not read.
//!
//! In: the bytes of a socket. Out: the same bytes for hyper, and the facts observed in them.
//!
//! ```text
//! transport        the socket that carries the bytes
//! channel          the socket, in clear text or under TLS
//! encrypted_layer  the layer of TLS over it
//! probe            heads, frames and a leaving client, seen in it
//! watch            a leaving client, and what a request may change about its socket
//! withheld         hyper's own answers, kept back from it
//! library_answer   hyper's own answer to a head, replaced by the gateway's
//! framing          in step with hyper's parser of HTTP/1.1: both framings at once, fragments
//! chunk_framing    the end of a chunked body
//! raw_target       bytes of a target that are encoded before hyper reads them
//! h2_frames        where a head of HTTP/2 begins and ends
//! minimum_rate     how slow a client may be, counted while it alone is waited for
//! ```

mod channel;
mod chunk_framing;
pub(super) mod encrypted_layer;
pub(super) mod framing;
pub(super) mod h2_frames;
mod library_answer;
pub mod minimum_rate;
mod probe;
pub(super) mod raw_target;
mod transport;
mod watch;
mod withheld;

pub(super) use probe::SocketProbe;
pub use watch::{SocketWatch, StallFlag};

use crate::clock;
use crate::descriptors::DescriptorShare;
use bytes::{Buf, Bytes, BytesMut};
use channel::Channel;
use encrypted_layer::EncryptedLayer;
use framing::FramingTracker;
use h2_frames::H2FrameTracker;
use minimum_rate::{RateBound, RateTimer};
use smallvec::SmallVec;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use transport::Transport;

/// Parts of a write with at most this size together are joined first.
const JOINED: usize = 1024;

/// The most bytes of a request's body in one read. hyper passes on one read as one piece, and reads one piece ahead; it
/// doubles its buffers when a read has filled one, so that this is just less than a buffer.
const MOST_OF_BODY: usize = 32 * 1024 - 1;

/// The stream of one connection, with a bound on the time for which its client may refuse to take bytes.
#[derive(Debug)]
pub struct Stream {
    socket: SharedSocket,
    /// Bytes that were read to recognise the protocol.
    read_ahead: Bytes,
    /// Bytes that the tracker has already followed: their encoded form did not fit where they were read.
    followed: Option<Box<BytesMut>>,
    stall: WriteStall,
}

/// The state that the stream shares with its watchers; only one thread locks it, for one call at a time.
type SharedSocket = Arc<Mutex<SocketState>>;

#[derive(Debug)]
struct SocketState {
    channel: Channel,
    tracker: ProtocolTracker,
    /// Some bytes have not been read by hyper yet.
    is_unread: bool,
    /// The transport takes no bytes now.
    is_full: bool,
    /// The last time at which the client took bytes late.
    took_late: Option<Instant>,
    /// The client may take bytes at any rate, as long as it takes some.
    idle_alone: bool,
    /// The time for which it may take none, if the route of its requests sets its own.
    route_idle: Option<Duration>,
    /// The share that counts a second descriptor of the socket.
    share: DescriptorShare,
    /// hyper's answer to a head that it refuses, which is not sent ([`library_answer`]).
    withheld: Vec<u8>,
}

/// The tracker that reads the connection's bytes in step with hyper.
#[derive(Debug)]
enum ProtocolTracker {
    /// No tracker: the protocol is not known yet, or the connection is a tunnel.
    Off,
    Http1(FramingTracker),
    Http2(H2FrameTracker),
}

/// The bound on a client's slowness in taking bytes: a client that hardly or never reads must not keep a response for
/// ever.
#[derive(Debug)]
struct WriteStall {
    bound: RateBound,
    /// The timer, created when a write waits for the first time.
    timer: Option<Box<RateTimer>>,
    over: StallFlag,
}

impl Stream {
    /// Takes over an accepted connection, of a network (`is_remote`) or of a Unix socket.
    ///
    /// # Errors
    /// If the runtime cannot register it.
    pub fn new(
        tcp: std::net::TcpStream,
        is_remote: bool,
        bound: RateBound,
        share: DescriptorShare,
    ) -> io::Result<Self> {
        let socket = SocketState {
            channel: Channel::new(Transport::new(tcp, is_remote)?),
            tracker: ProtocolTracker::Off,
            is_unread: false,
            is_full: false,
            took_late: None,
            idle_alone: false,
            route_idle: None,
            share,
            withheld: Vec::new(),
        };
        Ok(Self {
            socket: Arc::new(Mutex::new(socket)),
            read_ahead: Bytes::new(),
            followed: None,
            stall: WriteStall {
                bound,
                timer: None,
                over: StallFlag::default(),
            },
        })
    }

    /// A watch that detects the client's leaving.
    #[must_use]
    pub fn watch(&self) -> SocketWatch {
        SocketWatch {
            socket: Arc::downgrade(&self.socket),
            stalled: self.stall.over.clone(),
        }
    }

    /// Peeks at the next bytes. Must be called before any byte is read.
    pub(super) async fn peek(&self, seen: &mut [u8]) -> io::Result<usize> {
        let mut seen = ReadBuf::new(seen);
        let peeking = |cx: &mut Context<'_>| {
            let socket = lock(&self.socket);
            socket.channel.transport().poll_peek_bytes(cx, &mut seen)
        };
        poll_fn(peeking).await
    }

    /// Returns bytes that were read to recognise the protocol.
    pub fn unread(&mut self, bytes: Bytes) {
        self.read_ahead = bytes;
    }

    /// Installs a TLS layer over the connection.
    pub(super) fn encrypt(&self, layer: EncryptedLayer) {
        lock(&self.socket).channel.encrypt(layer);
    }

    /// Drives the handshake of the layer ([`Channel::poll_handshake`]).
    pub(super) fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.socket).channel.poll_handshake(cx)
    }

    /// Discards received bytes, below any encryption ([`Channel::poll_discard`]).
    pub(super) fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        lock(&self.socket).channel.poll_discard(cx)
    }

    /// Is there a TLS layer over the socket?
    pub(super) fn is_encrypted(&self) -> bool {
        self.of_layer(|_| ()).is_some()
    }

    /// Reads from the connection's TLS state; `None` in clear text.
    pub(super) fn of_layer<T>(&self, read: impl FnOnce(&EncryptedLayer) -> T) -> Option<T> {
        lock(&self.socket).channel.layer().map(read)
    }

    /// The stream of a connection whose previous stream was dropped between two requests.
    pub(super) fn resumed(probe: &SocketProbe, watch: &SocketWatch, bound: RateBound) -> Self {
        Self {
            socket: Arc::clone(&probe.0),
            read_ahead: Bytes::new(),
            followed: None,
            stall: WriteStall {
                bound,
                timer: None,
                over: watch.stalled(),
            },
        }
    }

    /// Follows the heads of HTTP/1.1 from now on.
    pub(super) fn track_http1(&self) -> SocketProbe {
        self.track(ProtocolTracker::Http1(FramingTracker::default()))
    }

    /// Follows the frames of HTTP/2 from now on.
    pub(super) fn track_http2(&self) -> SocketProbe {
        self.track(ProtocolTracker::Http2(H2FrameTracker::new()))
    }

    fn track(&self, tracker: ProtocolTracker) -> SocketProbe {
        lock(&self.socket).tracker = tracker;
        SocketProbe(Arc::clone(&self.socket))
    }
}

fn lock(socket: &Mutex<SocketState>) -> MutexGuard<'_, SocketState> {
    socket.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SocketState {
    #[inline]
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() > MOST_OF_BODY
            && let ProtocolTracker::Http1(framing) = &self.tracker
            && framing.in_body().is_some()
        {
            return self.poll_read_body(cx, buf);
        }
        self.channel.poll_read(cx, buf)
    }

    /// Reads at most as much of a body at once as may wait here for a server that does not take it.
    #[inline(never)]
    fn poll_read_body(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut room = ReadBuf::new(buf.initialize_unfilled_to(MOST_OF_BODY));
        ready!(self.channel.poll_read(cx, &mut room))?;
        let count = room.filled().len();
        buf.advance(count);
        Poll::Ready(Ok(()))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
        stall: &mut WriteStall,
    ) -> Poll<io::Result<usize>> {
        if self.may_answer_itself() {
            return self.poll_sifted(cx, bufs, stall);
        }
        self.poll_send(cx, bufs, stall)
    }

    #[inline]
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
        stall: &mut WriteStall,
    ) -> Poll<io::Result<usize>> {
        let was_full = self.is_full;
        let mut written = self.channel.poll_write(cx, bufs);
        self.is_full = written.is_pending();
        if self.is_full {
            written = Poll::Ready(ready!(self.poll_stalled(cx, bufs, stall)));
        } else if let Some(timer) = &mut stall.timer
            && let Poll::Ready(Ok(count)) = &written
        {
            timer.received(*count as u64);
        }
        if was_full || self.is_full {
            self.took_late = Some(clock::now());
        }
        self.is_full = false;
        if let ProtocolTracker::Http2(frames) = &mut self.tracker
            && let Poll::Ready(Ok(count)) = &written
        {
            frames.wrote(*count);
        }
        written
    }

    /// Waits until the socket has taken all written bytes. Without encryption no bytes wait here.
    fn poll_flush(&mut self, cx: &mut Context<'_>, stall: &mut WriteStall) -> Poll<io::Result<()>> {
        if self.channel.keeps_bytes() && self.withheld.is_empty() {
            ready!(self.poll_send(cx, &[], stall))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        &mut self,
        cx: &mut Context<'_>,
        stall: &mut WriteStall,
    ) -> Poll<io::Result<()>> {
        if !self.withheld.is_empty() {
            // hyper ends the connection after its answer: ours is sent first.
            return Poll::Ready(Ok(()));
        }
        self.channel.announce_end();
        ready!(self.poll_flush(cx, stall))?;
        self.channel.poll_shutdown(cx)
    }

    /// Waits for the client. A write is tried periodically without the runtime's readiness, and the client's rate is
    /// checked.
    #[cold]
    fn poll_stalled(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
        stall: &mut WriteStall,
    ) -> Poll<io::Result<usize>> {
        let timer = stall
            .timer
            .get_or_insert_with(|| Box::new(RateTimer::new(stall.bound)));
        let bound = self
            .route_idle
            .map_or(stall.bound, |idle| stall.bound.over(idle));
        timer.bind(if self.idle_alone {
            bound.idle_alone()
        } else {
            bound
        });
        loop {
            ready!(timer.poll_check(cx));
            let mut sent = 0;
            let written = self.channel.write_at_once(bufs, &mut sent);
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The client has taken some of the bytes before these.
                    if sent > 0 {
                        timer.received(sent);
                        continue;
                    }
                }
                written => {
                    timer.received(sent);
                    return Poll::Ready(written);
                }
            }
            if timer.is_late() {
                stall.over.set(timer.lateness());
                // Otherwise bytes that the client's system has not taken would stay in ours for minutes.
                self.channel.end_in_reset();
                let error = io::Error::new(io::ErrorKind::TimedOut, "the peer takes too little");
                return Poll::Ready(Err(error));
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self.get_mut();
        let mut socket = lock(&this.socket);
        let before = buf.filled().len();
        if let Some(followed) = &mut this.followed {
            if put_beginning(followed, buf) {
                this.followed = None;
            }
            return Poll::Ready(Ok(()));
        }
        if let ProtocolTracker::Http2(frames) = &mut socket.tracker
            && frames.pauses()
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if this.read_ahead.is_empty() {
            socket.is_unread = false;
            ready!(socket.poll_read(cx, buf))?;
        } else {
            let count = this.read_ahead.len().min(buf.remaining());
            buf.put_slice(&this.read_ahead[..count]);
            this.read_ahead.advance(count);
            if this.read_ahead.is_empty() {
                this.read_ahead = Bytes::new();
            }
        }
        let read = &buf.filled()[before..];
        match &mut socket.tracker {
            ProtocolTracker::Http1(framing) => {
                framing.advance(read);
                if let Some(mut encoded) = framing.encoded(read) {
                    buf.set_filled(before);
                    if !put_beginning(&mut encoded, buf) {
                        this.followed = Some(Box::new(encoded));
                    }
                }
            }
            ProtocolTracker::Http2(frames) => frames.advance(read),
            ProtocolTracker::Off => {}
        }
        Poll::Ready(Ok(()))
    }
}

/// Copies as many of `bytes` into `buf` as fit. Returns true if none are left.
#[cold]
fn put_beginning(bytes: &mut BytesMut, buf: &mut ReadBuf<'_>) -> bool {
    let count = bytes.len().min(buf.remaining());
    buf.put_slice(&bytes[..count]);
    bytes.advance(count);
    bytes.is_empty()
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self.get_mut();
        lock(&this.socket).poll_write(cx, &[io::IoSlice::new(buf)], &mut this.stall)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self.get_mut();
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        if total > JOINED {
            return lock(&this.socket).poll_write(cx, bufs, &mut this.stall);
        }
        // The parts are a head and a small body: copying a few hundred bytes costs less than a gathering system call.
        let mut joined = SmallVec::<[u8; JOINED]>::new();
        for buf in bufs {
            joined.extend_from_slice(buf);
        }
        let joined = io::IoSlice::new(&joined);
        lock(&this.socket).poll_write(cx, &[joined], &mut this.stall)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.get_mut();
        lock(&this.socket).poll_flush(cx, &mut this.stall)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.get_mut();
        lock(&this.socket).poll_shutdown(cx, &mut this.stall)
    }
}

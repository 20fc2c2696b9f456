//! Sockets: the stream under a connection, which can be watched while hyper is not reading.

mod probe;

pub(super) use probe::SocketProbe;

use super::framing::FramingTracker;
use super::h2_frames::FrameTracker;
use super::minimum_rate::{RateBound, RateTimer};
use crate::descriptors::{DescriptorShare, SpareDescriptor};
use bytes::{Buf, Bytes};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Silence after which a peer is asked for a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// What is written in parts up to this size is joined first.
const JOINED: usize = 1024;

/// The stream of one connection, with a bound on how long it may refuse to take bytes.
#[derive(Debug)]
pub struct Stream {
    socket: SharedSocket,
    /// What was read to tell the protocol.
    read_ahead: Bytes,
    stall: WriteStall,
}

/// Shared between the stream and its watchers; locked for the length of one call, by one thread.
type SharedSocket = Arc<Mutex<SocketState>>;

#[derive(Debug)]
struct SocketState {
    tcp: TcpStream,
    /// In HTTP/1.1.
    heads: Option<FramingTracker>,
    /// In HTTP/2.
    frames: Option<FrameTracker>,
    /// There are bytes that hyper has not read yet.
    is_unread: bool,
    /// It takes nothing now.
    is_full: bool,
    /// When the peer last took bytes.
    wrote: Instant,
    /// What is written may come as slowly as it likes, as long as something does.
    idle_alone: bool,
    /// Where a second descriptor of it is counted.
    share: DescriptorShare,
}

/// How slowly a peer may take what waits for it: one that never reads, or hardly, must not hold a response for ever.
#[derive(Debug)]
struct WriteStall {
    allowed: RateBound,
    /// Nothing before it has taken its time once.
    pace: Option<Box<RateTimer>>,
    over: StallFlag,
}

/// Whether a connection was ended because its peer took no bytes. Outlives the connection.
#[derive(Debug, Clone, Default)]
pub struct StallFlag(Arc<AtomicBool>);

/// Sees a client leave although hyper is not reading from its socket.
#[derive(Debug, Clone)]
pub struct SocketWatch {
    socket: Weak<Mutex<SocketState>>,
    stalled: StallFlag,
}

impl Stream {
    /// Takes over an accepted connection.
    ///
    /// # Errors
    /// When the runtime cannot register it.
    pub fn new(
        tcp: std::net::TcpStream,
        allowed: RateBound,
        share: DescriptorShare,
    ) -> io::Result<Self> {
        tcp.set_nonblocking(true)?;
        tcp.set_nodelay(true)?;
        SockRef::from(&tcp).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE))?;
        let socket = SocketState {
            tcp: TcpStream::from_std(tcp)?,
            heads: None,
            frames: None,
            is_unread: false,
            is_full: false,
            wrote: Instant::now(),
            idle_alone: false,
            share,
        };
        Ok(Self {
            socket: Arc::new(Mutex::new(socket)),
            read_ahead: Bytes::new(),
            stall: WriteStall {
                allowed,
                pace: None,
                over: StallFlag::default(),
            },
        })
    }

    /// Something that sees the client leave.
    #[must_use]
    pub fn watch(&self) -> SocketWatch {
        SocketWatch {
            socket: Arc::downgrade(&self.socket),
            stalled: self.stall.over.clone(),
        }
    }

    /// Gives bytes back that were read to tell the protocol.
    pub fn unread(&mut self, bytes: Bytes) {
        self.read_ahead = bytes;
    }

    /// Follows the heads of HTTP/1.1 from here on.
    pub(super) fn follow(&self) -> SocketProbe {
        lock(&self.socket).heads = Some(FramingTracker::new());
        self.beside()
    }

    /// Follows the frames of HTTP/2 from here on.
    pub(super) fn follow_frames(&self) -> SocketProbe {
        lock(&self.socket).frames = Some(FrameTracker::new());
        self.beside()
    }

    /// What hyper does not tell of the connection.
    fn beside(&self) -> SocketProbe {
        SocketProbe(Arc::clone(&self.socket))
    }
}

fn lock(socket: &Mutex<SocketState>) -> MutexGuard<'_, SocketState> {
    socket.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SocketState {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
        stall: &mut WriteStall,
    ) -> Poll<io::Result<usize>> {
        let tcp = Pin::new(&mut self.tcp);
        let mut written = match bufs {
            [buf] => tcp.poll_write(cx, buf),
            bufs => tcp.poll_write_vectored(cx, bufs),
        };
        self.is_full = written.is_pending();
        if self.is_full {
            written = Poll::Ready(ready!(self.poll_stalled(cx, bufs, stall)));
        } else if let (Some(pace), Poll::Ready(Ok(count))) = (&mut stall.pace, &written) {
            pace.comes(*count as u64);
        }
        self.is_full = false;
        self.wrote = Instant::now();
        if let (Some(frames), Poll::Ready(Ok(count))) = (&mut self.frames, &written) {
            frames.wrote(*count);
        }
        written
    }

    /// The peer is waited for. Now and then what it has taken is made up for, and looked at.
    #[cold]
    fn poll_stalled(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
        stall: &mut WriteStall,
    ) -> Poll<io::Result<usize>> {
        let pace = stall
            .pace
            .get_or_insert_with(|| Box::new(RateTimer::new(stall.allowed)));
        if self.idle_alone {
            pace.idle_alone();
        }
        loop {
            ready!(pace.poll_check(cx));
            match self.write_at_once(bufs) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    pace.comes(written.as_ref().map_or(0, |count| *count as u64));
                    return Poll::Ready(written);
                }
            }
            if pace.is_late() {
                stall.over.set();
                let error = io::Error::new(io::ErrorKind::TimedOut, "the peer takes too little");
                return Poll::Ready(Err(error));
            }
        }
    }

    /// Writes without asking whether the socket is writable: Linux says so only when a third of its buffer is free, which
    /// grows to megabytes, so that a peer that reads all the time, but slowly, would seem to take nothing for minutes.
    fn write_at_once(&self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        SockRef::from(&self.tcp).send_vectored(bufs)
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
        let known = buf.filled().len();
        if this.read_ahead.is_empty() {
            socket.is_unread = false;
            ready!(Pin::new(&mut socket.tcp).poll_read(cx, buf))?;
        } else {
            let count = this.read_ahead.len().min(buf.remaining());
            buf.put_slice(&this.read_ahead[..count]);
            this.read_ahead.advance(count);
            if this.read_ahead.is_empty() {
                this.read_ahead = Bytes::new();
            }
        }
        if let Some(heads) = &mut socket.heads {
            heads.over(&buf.filled()[known..]);
        } else if let Some(frames) = &mut socket.frames {
            frames.over(&buf.filled()[known..]);
        }
        Poll::Ready(Ok(()))
    }
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
        // A head and a small body: copying a few hundred bytes costs less than a system call that gathers them.
        let mut joined = [0; JOINED];
        let mut end = 0;
        for buf in bufs {
            joined[end..end + buf.len()].copy_from_slice(buf);
            end += buf.len();
        }
        let joined = io::IoSlice::new(&joined[..end]);
        lock(&this.socket).poll_write(cx, &[joined], &mut this.stall)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.socket).tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.socket).tcp).poll_shutdown(cx)
    }
}

impl StallFlag {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// It was.
    #[must_use]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl SocketWatch {
    /// Has the gateway itself let go of the connection?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.socket.strong_count() == 0
    }

    /// Resolves when the client has closed or reset its side.
    ///
    /// The connection sees that only while nothing lies unread before the end; a request with a pipelined byte behind it
    /// would keep its place for as long as it likes (notes: `reliability`, section 0, trap c). A second registration of
    /// the same socket hears of the closing whatever lies unread. A client that only half-closes counts as gone.
    pub async fn gone(&self) {
        let Some((watch, _descriptor)) = self.register() else {
            // The connection is already over, and hyper ends this request by itself; or no descriptor is left to look with.
            return std::future::pending().await;
        };
        loop {
            match watch.ready(Interest::READABLE).await {
                Ok(ready) if !(ready.is_read_closed() || ready.is_error()) => {
                    // Only bytes have come. Claiming that there were none makes tokio wait for the next event; the
                    // bytes stay where they are, for hyper.
                    let _ = watch.try_io(Interest::READABLE, || {
                        Err::<(), _>(io::ErrorKind::WouldBlock.into())
                    });
                }
                _ => return,
            }
        }
    }

    /// Tells, also later, whether the connection was ended because its peer took no bytes.
    #[must_use]
    pub fn stalled(&self) -> StallFlag {
        self.stalled.clone()
    }

    /// The connection ends in a reset when it is closed, and not in order, which would say that all has been sent. What
    /// the client's system has not taken by then is lost.
    pub fn end_in_reset(&self) {
        if let Some(socket) = self.socket.upgrade() {
            // At worst it ends in order.
            let _ = SockRef::from(&lock(&socket).tcp).set_linger(Some(Duration::ZERO));
        }
    }

    /// What is written to the client from here on may come as slowly as it likes, as long as something does.
    pub fn idle_alone(&self) {
        if let Some(socket) = self.socket.upgrade() {
            lock(&socket).idle_alone = true;
        }
    }

    fn register(&self) -> Option<(TcpStream, SpareDescriptor)> {
        let socket = self.socket.upgrade()?;
        let socket = lock(&socket);
        // A connection to a server is worth more than hearing of a client that leaves.
        let descriptor = socket.share.take_spare()?;
        let copy = socket.tcp.as_fd().try_clone_to_owned().ok()?;
        let copy = TcpStream::from_std(std::net::TcpStream::from(copy)).ok()?;
        Some((copy, descriptor))
    }
}

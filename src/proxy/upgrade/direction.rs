//! One direction of a tunnel: bytes pass from one side to the other as they arrive, and so does their end.

use crate::proxy::upgrade::frame_tracker::FrameTracker;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of one read.
const CHUNK: usize = 16 * 1024;

/// The failure of a direction.
#[derive(Debug)]
pub(super) enum SideFault {
    /// The sending side has failed.
    Sender,
    /// The receiving side has failed with this error.
    Receiver(io::ErrorKind),
}

/// One direction of a tunnel.
#[derive(Debug)]
pub(super) struct TunnelDirection {
    frames: FrameTracker,
    /// Bytes that the receiver has not taken, from `at` on. Memory is allocated only while there are any.
    waiting: Vec<u8>,
    at: usize,
    /// The receiver's stream may buffer bytes that it has taken, in encrypted form.
    is_unflushed: bool,
    /// The sender has ended its side.
    has_ended: bool,
    /// The end has been passed on, or the receiver takes nothing any more.
    is_over: bool,
    farewell: Farewell,
    /// Bytes that have passed.
    moved: u64,
}

/// The gateway's own last frame for the receiver.
#[derive(Debug)]
enum Farewell {
    /// No frame.
    None,
    /// This frame, at the next frame boundary.
    Due(Vec<u8>),
    /// The frame has been sent: no more bytes of the sender follow.
    Said,
}

impl TunnelDirection {
    pub(super) fn new() -> Self {
        Self {
            frames: FrameTracker::new(),
            waiting: Vec::new(),
            at: 0,
            is_unflushed: false,
            has_ended: false,
            is_over: false,
            farewell: Farewell::None,
            moved: 0,
        }
    }

    /// Bytes that have passed.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// Do bytes wait for the receiver?
    pub(super) fn is_blocked(&self) -> bool {
        !self.is_over && (self.at < self.waiting.len() || self.is_unflushed)
    }

    /// Has the sender ended its side, or sent the closing frame?
    pub(super) fn has_closed(&self) -> bool {
        self.has_ended || self.frames.is_closed()
    }

    /// Has the sender ended its side?
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Has the end been passed on?
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Stops the direction, since the receiver takes nothing.
    pub(super) fn stop(&mut self) {
        self.is_over = true;
    }

    /// Sends `frame` to the receiver at the next frame boundary, unless the sender has closed.
    pub(super) fn bid_farewell(&mut self, frame: Vec<u8>) {
        if !self.has_closed() {
            self.farewell = Farewell::Due(frame);
        }
    }

    /// Passes available bytes. Ready when the sender's end has been passed on.
    ///
    /// # Errors
    /// If either side fails.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        sender: &mut (impl AsyncRead + Unpin),
        receiver: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<Result<(), SideFault>> {
        if self.is_over {
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.poll_pass(cx, receiver))?;
            if self.has_ended {
                // The other direction detects a failure when it reads from the receiver.
                let _ = ready!(Pin::new(&mut *receiver).poll_shutdown(cx));
                self.is_over = true;
                return Poll::Ready(Ok(()));
            }
            if self.frames.is_at_border() && self.say_farewell(&[]) {
                continue;
            }
            let mut room = [const { MaybeUninit::uninit() }; CHUNK];
            let mut room = ReadBuf::uninit(&mut room);
            match ready!(Pin::new(&mut *sender).poll_read(cx, &mut room)) {
                Ok(()) => {}
                // The end of a TLS connection without `close_notify` counts as an end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                Err(_) => return Poll::Ready(Err(SideFault::Sender)),
            }
            self.has_ended = room.filled().is_empty();
            self.take(cx, room.filled(), receiver)?;
        }
    }

    /// Passes waiting bytes to the receiver.
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        receiver: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<Result<(), SideFault>> {
        while self.at < self.waiting.len() {
            let written = Pin::new(&mut *receiver).poll_write(cx, &self.waiting[self.at..]);
            let count = taken(ready!(written))?;
            self.at += count;
            self.moved += count as u64;
        }
        if !self.waiting.is_empty() {
            (self.waiting, self.at) = (Vec::new(), 0);
        }
        if self.is_unflushed {
            // Encrypted bytes may wait after a write.
            let flushed = ready!(Pin::new(&mut *receiver).poll_flush(cx));
            flushed.map_err(|error| SideFault::Receiver(error.kind()))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Passes bytes that were read to the receiver; bytes that it does not take at once wait.
    fn take(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        receiver: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), SideFault> {
        match self.farewell {
            Farewell::None => self.frames.pass(bytes),
            Farewell::Due(_) => {
                let passed = self.frames.pass_frame(bytes);
                if self.frames.is_at_border() {
                    self.say_farewell(&bytes[..passed]);
                } else {
                    self.wait(bytes);
                }
                self.frames.pass(&bytes[passed..]);
                return Ok(());
            }
            Farewell::Said => {
                self.frames.pass(bytes);
                return Ok(());
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let mut rest = bytes;
        if let Poll::Ready(written) = Pin::new(receiver).poll_write(cx, bytes) {
            let count = taken(written)?;
            self.moved += count as u64;
            rest = &bytes[count..];
        }
        self.wait(rest);
        Ok(())
    }

    fn wait(&mut self, bytes: &[u8]) {
        self.is_unflushed = true;
        self.waiting.extend_from_slice(bytes);
    }

    /// Sends the due farewell, after `last`. Returns false if none is due.
    fn say_farewell(&mut self, last: &[u8]) -> bool {
        if !matches!(self.farewell, Farewell::Due(_)) {
            return false;
        }
        if let Farewell::Due(frame) = std::mem::replace(&mut self.farewell, Farewell::Said) {
            self.wait(last);
            self.wait(&frame);
        }
        true
    }
}

/// The number of bytes of a write.
fn taken(written: io::Result<usize>) -> Result<usize, SideFault> {
    match written {
        Ok(0) => Err(SideFault::Receiver(io::ErrorKind::WriteZero)),
        Ok(count) => Ok(count),
        Err(error) => Err(SideFault::Receiver(error.kind())),
    }
}

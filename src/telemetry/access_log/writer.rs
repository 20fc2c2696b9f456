//! The one thread that writes the access log, and the bounded channel to it.
//!
//! Only this thread meets a slow, full or broken output. Whatever that output does, the channel fills up and lines are
//! dropped and counted; no worker waits.
//!
//! `tracing-appender` was weighed for this: its `non_blocking` copies each buffer, counts dropped writes where `/metrics`
//! has lines, does not report the lines that a shutdown loses, and does not end a torn line.

use crate::clock;
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::Metrics;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Chunks on the way: at 32 KiB each, 8 MiB at most.
const UNDERWAY: usize = 256;

/// A buffer that has grown beyond this is not used again.
const KEPT: usize = 128 * 1024;

/// How long an output that cannot take more just now is left alone.
const PAUSE: Duration = Duration::from_millis(5);

/// Whole lines, and where to send the empty buffer.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: u64,
    pub(super) home: SyncSender<Vec<u8>>,
}

enum Message {
    Lines(Chunk),
    Close,
}

/// The way to the thread.
pub(super) struct WriterHandle {
    sender: SyncSender<Message>,
    /// What workers still held when they ended.
    left: Arc<Mutex<Vec<Chunk>>>,
    /// Lines handed over and neither written nor given up.
    underway: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
    /// Disconnects when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

impl fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way")
            .field("underway", &self.underway)
            .finish_non_exhaustive()
    }
}

impl WriterHandle {
    pub(super) fn start(
        sink: Box<dyn Write + Send>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Arc<Self>> {
        let (sender, chunks) = sync_channel(UNDERWAY);
        let (alive, ended) = sync_channel(0);
        let handle = Arc::new(Self {
            sender,
            left: Arc::default(),
            underway: Arc::default(),
            metrics: Arc::clone(&metrics),
            ended: Mutex::new(ended),
        });
        let writer = LineWriter {
            sink,
            is_torn: false,
            left: Arc::clone(&handle.left),
            underway: Arc::clone(&handle.underway),
            metrics,
            _alive: alive,
        };
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run(&chunks))?;
        Ok(handle)
    }

    /// Hands lines over if there is room, else drops them and gives the buffer back.
    pub(super) fn offer(&self, chunk: Chunk) -> Result<(), Vec<u8>> {
        let lines = chunk.lines;
        self.underway.fetch_add(lines, Ordering::Relaxed);
        match self.sender.try_send(Message::Lines(chunk)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => {
                self.underway.fetch_sub(lines, Ordering::Relaxed);
                self.metrics.access_lines_dropped(lines);
                match message {
                    Message::Lines(chunk) => Err(chunk.bytes),
                    Message::Close => Err(Vec::new()),
                }
            }
        }
    }

    /// Hands over the last lines of a worker that ends; they are written at shutdown even if the way is full now.
    pub(super) fn leave(&self, chunk: Chunk) {
        self.underway.fetch_add(chunk.lines, Ordering::Relaxed);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.push(chunk);
    }

    /// Another line stands for these.
    pub(super) fn summarised(&self, lines: u64) {
        self.metrics.access_lines_summarised(lines);
    }

    /// Asks the thread to finish and waits for it; returns the lines lost to the deadline.
    pub(super) fn shutdown(&self, deadline: Duration) -> u64 {
        let end = clock::now() + deadline;
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while let Err(TrySendError::Full(_)) = self.sender.try_send(Message::Close) {
            if clock::now() >= end {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        // Nothing is ever sent: this waits for the thread to drop its end.
        let _ = ended.recv_timeout(end.saturating_duration_since(clock::now()));
        let lost = self.underway.load(Ordering::Relaxed);
        self.metrics.access_lines_dropped(lost);
        lost
    }
}

struct LineWriter {
    sink: Box<dyn Write + Send>,
    /// The output ends in the middle of a line.
    is_torn: bool,
    left: Arc<Mutex<Vec<Chunk>>>,
    underway: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
    _alive: SyncSender<()>,
}

impl LineWriter {
    fn run(mut self, chunks: &Receiver<Message>) {
        while let Ok(Message::Lines(chunk)) = chunks.recv() {
            self.take(chunk);
        }
        while let Ok(message) = chunks.try_recv() {
            if let Message::Lines(chunk) = message {
                self.take(chunk);
            }
        }
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        for chunk in left {
            self.take(chunk);
        }
    }

    fn take(&mut self, chunk: Chunk) {
        static BROKEN: Throttle = Throttle::every(Duration::from_secs(60));
        if let Err(error) = self.write(&chunk.bytes) {
            self.metrics.access_lines_dropped(chunk.lines);
            if let Some(more) = BROKEN.pass() {
                tracing::warn!("the access log cannot be written: {error}{more}");
            }
        }
        self.underway.fetch_sub(chunk.lines, Ordering::Relaxed);
        let mut buffer = chunk.bytes;
        if buffer.capacity() <= KEPT {
            buffer.clear();
            // A worker that has enough of them, or has ended, needs no buffer.
            let _ = chunk.home.try_send(buffer);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.write_all(b"\n")?;
        }
        self.write_all(bytes)?;
        self.sink.flush()
    }

    /// As the standard one, but it waits where the output cannot take more and remembers where it broke off.
    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.sink.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    let (done, rest) = bytes.split_at(written.min(bytes.len()));
                    self.is_torn = done.last() != Some(&b'\n');
                    bytes = rest;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The parent process may have made the output non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Standard output without its lock, so that a blocked log does not block `println!`.
#[cfg(unix)]
pub(super) fn unbuffered(stdout: &io::Stdout) -> io::Result<std::fs::File> {
    use std::os::fd::AsFd;
    Ok(stdout.as_fd().try_clone_to_owned()?.into())
}

/// Standard output as it is.
#[cfg(not(unix))]
pub(super) fn unbuffered(_: &io::Stdout) -> io::Result<io::Stdout> {
    Ok(io::stdout())
}

//! The one thread that writes the access log, and the bounded queue to it.
//!
//! Only this thread is affected by a slow, full or broken output. For any fault of the output, the queue fills up and
//! lines are dropped and counted; no worker waits.
//!
//! `tracing-appender` was considered: its `non_blocking` copies each buffer, counts dropped writes where `/metrics` has
//! lines, does not report the lines that a shutdown loses, and does not end a torn line.

use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::Metrics;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

/// Chunks that wait for the thread: at 32 KiB each, 8 MiB at most.
const UNDERWAY: usize = 256;

/// Emptied buffers that may wait to be used again.
const SPARE: usize = 32;

/// A buffer that has grown beyond this is not used again.
const KEPT: usize = 128 * 1024;

/// The pause after the output could take no more bytes.
const PAUSE: Duration = Duration::from_millis(5);

/// Whole lines.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: u64,
}

/// The handle of the thread, which ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct WriterHandle {
    queue: Arc<ChunkQueue>,
    pub(super) metrics: Arc<Metrics>,
}

/// Chunks that wait to be written. Locked for a few moves of pointers, never during a write.
#[derive(Debug, Default)]
struct ChunkQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    chunks: VecDeque<Chunk>,
    spare: Vec<Vec<u8>>,
    /// Lines that were handed over and are neither written nor abandoned.
    underway: u64,
    /// The queue accepts no more chunks.
    is_closed: bool,
}

impl ChunkQueue {
    /// The next chunk; `None` if the queue is closed and empty.
    fn next(&self) -> Option<Chunk> {
        let mut state = self.state.lock();
        let is_waiting = |state: &mut QueueState| state.chunks.is_empty() && !state.is_closed;
        self.changed.wait_while(&mut state, is_waiting);
        state.chunks.pop_front()
    }

    /// Notes that the lines of `chunk` are written or abandoned.
    fn finish(&self, mut chunk: Chunk) {
        let mut state = self.state.lock();
        state.underway -= chunk.lines;
        if chunk.bytes.capacity() <= KEPT && state.spare.len() < SPARE {
            chunk.bytes.clear();
            state.spare.push(chunk.bytes);
        }
        self.changed.notify_all();
    }

    fn close(&self) -> MutexGuard<'_, QueueState> {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.changed.notify_all();
        state
    }
}

impl WriterHandle {
    pub(super) fn start(
        sink: Box<dyn Write + Send>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Arc<Self>> {
        let queue = Arc::<ChunkQueue>::default();
        let writer = LineWriter {
            sink,
            is_torn: false,
            queue: Arc::clone(&queue),
            metrics: Arc::clone(&metrics),
        };
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run())?;
        Ok(Arc::new(Self { queue, metrics }))
    }

    /// Hands lines over if there is room, else drops them. Returns an empty buffer for the next ones.
    pub(super) fn offer(&self, chunk: Chunk) -> Vec<u8> {
        self.push(chunk, UNDERWAY)
    }

    /// Hands over the last lines of a worker that ends; they are written at shutdown even if the queue is full now.
    pub(super) fn leave(&self, chunk: Chunk) {
        self.push(chunk, usize::MAX);
    }

    fn push(&self, mut chunk: Chunk, most: usize) -> Vec<u8> {
        let mut state = self.queue.state.lock();
        if state.is_closed || state.chunks.len() >= most {
            drop(state);
            self.metrics.access_lines_dropped(chunk.lines);
            chunk.bytes.clear();
            return chunk.bytes;
        }
        state.underway += chunk.lines;
        state.chunks.push_back(chunk);
        let spare = state.spare.pop().unwrap_or_default();
        drop(state);
        self.queue.changed.notify_all();
        spare
    }

    /// Asks the thread to finish and waits for it; returns the lines lost to the deadline.
    pub(super) fn shutdown(&self, deadline: Duration) -> u64 {
        let is_writing = |state: &mut QueueState| state.underway > 0;
        let mut closed = self.queue.close();
        let changed = &self.queue.changed;
        changed.wait_while_for(&mut closed, is_writing, deadline);
        let lost = closed.underway;
        self.metrics.access_lines_dropped(lost);
        lost
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        drop(self.queue.close());
    }
}

struct LineWriter {
    sink: Box<dyn Write + Send>,
    /// The output ends in the middle of a line.
    is_torn: bool,
    queue: Arc<ChunkQueue>,
    metrics: Arc<Metrics>,
}

impl LineWriter {
    fn run(mut self) {
        while let Some(chunk) = self.queue.next() {
            self.take(&chunk);
            self.queue.finish(chunk);
        }
    }

    fn take(&mut self, chunk: &Chunk) {
        static BROKEN: Throttle = Throttle::every(Duration::from_secs(60));
        if let Err(error) = self.write(&chunk.bytes) {
            self.metrics.access_lines_dropped(chunk.lines);
            if let Some(more) = BROKEN.pass() {
                tracing::warn!("the access log cannot be written: {error}{more}");
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.write_all(b"\n")?;
        }
        self.write_all(bytes)?;
        self.sink.flush()
    }

    /// Writes like the standard method, but waits if the output cannot take more, and remembers an incomplete line.
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
pub(super) fn unbuffered(stdout: &io::Stdout) -> io::Result<std::fs::File> {
    Ok(stdout.as_fd().try_clone_to_owned()?.into())
}

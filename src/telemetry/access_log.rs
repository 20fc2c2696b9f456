//! The access log: one line for each request, written without delaying any request.
//!
//! A worker formats lines into a buffer of its own and hands the buffer to the one writing thread when it is full or 10
//! ms old. The queue to that thread is bounded: if the reader of the log is too slow or gone, lines are dropped and
//! counted, and requests continue. Each line is one request, except that a client's refusals beyond a hundred in a
//! second are summarised (`repeated`, see `refusal_summary`).
//!
//! ```text
//! record           the facts at a request's end
//! refusal_summary  clients that are refused again and again
//! json             the line as JSON
//! text             the line as text
//! timestamp        its instant
//! escape           texts from outside, made harmless
//! line_buffer      one worker's lines
//! writer           the one thread that writes
//! ```

mod escape;
mod json;
mod line_buffer;
mod record;
mod refusal_summary;
#[cfg(test)]
mod tests;
mod text;
mod timestamp;
mod writer;

pub(crate) use escape::LONGEST as LONGEST_TEXT;
#[cfg(test)]
pub(crate) use refusal_summary::LINES_A_SECOND;

pub use record::{AccessRecord, CallRecord, Charge, NumbersOf, Reason, TlsFacts};

use super::AccessFormat;
use super::metrics::Metrics;
use crate::clock;
use line_buffer::LineBuffer;
use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use writer::WriterHandle;

/// The time for which a line may wait in its worker for further lines.
const GATHER: Duration = Duration::from_millis(10);

/// The access log of this process: its thread, and the queue to that thread.
#[derive(Debug, Clone)]
pub struct AccessLog(Option<Output>);

#[derive(Debug, Clone)]
struct Output {
    form: LineFormat,
    handle: Arc<WriterHandle>,
}

/// The form of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineFormat {
    Json,
    Short { is_coloured: bool },
    Combined,
}

impl AccessLog {
    /// Opens the log on standard output.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn stdout(format: AccessFormat, metrics: &Arc<Metrics>) -> io::Result<Self> {
        let stdout = io::stdout();
        let is_coloured = stdout.is_terminal() && super::log::may_colour();
        Self::start(format, is_coloured, writer::unbuffered(&stdout)?, metrics)
    }

    /// Opens the log on `sink`, which may block or fail at any time.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        format: AccessFormat,
        is_coloured: bool,
        sink: impl Write + Send + 'static,
        metrics: &Arc<Metrics>,
    ) -> io::Result<Self> {
        let form = match format {
            AccessFormat::Json => LineFormat::Json,
            AccessFormat::Short => LineFormat::Short { is_coloured },
            AccessFormat::Combined => LineFormat::Combined,
            AccessFormat::Off => return Ok(Self(None)),
        };
        let handle = WriterHandle::start(Box::new(sink), Arc::clone(metrics))?;
        Ok(Self(Some(Output { form, handle })))
    }

    /// One worker's writer. Each worker creates one, on its own thread, and keeps it.
    #[must_use]
    pub fn worker(&self) -> AccessWriter {
        AccessWriter(self.0.as_ref().map(|open| {
            Rc::new(WorkerLog {
                buffer: RefCell::new(LineBuffer::new(open.form, &open.handle)),
                begun: Notify::new(),
            })
        }))
    }

    /// Writes the lines that the workers have handed over and ends the thread. Blocks until then, or until `deadline`
    /// has passed, and returns the number of lost lines.
    ///
    /// The log is complete if the workers have dropped their [`AccessWriter`]s before.
    pub fn shutdown(&self, deadline: Duration) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |open| open.handle.shutdown(deadline))
    }
}

/// One worker's writer of the access log. Its remaining lines are handed over when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct AccessWriter(Option<Rc<WorkerLog>>);

#[derive(Debug)]
struct WorkerLog {
    buffer: RefCell<LineBuffer>,
    /// Notified when the first line after a flush is buffered.
    begun: Notify,
}

impl AccessWriter {
    /// Is any line written? If not, no record needs to be filled in.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Writes the line of a request that has ended. The call never blocks.
    pub fn record(&self, record: &AccessRecord<'_>) {
        let Some(log) = &self.0 else {
            return;
        };
        let mut buffer = log.buffer.borrow_mut();
        let was_idle = buffer.is_idle();
        buffer.record(record, || clock::now().into_std());
        if was_idle && !buffer.is_idle() {
            log.begun.notify_one();
        }
    }

    /// Flushes buffered lines after a short time. The future is spawned once on the worker's runtime, where it runs
    /// until the runtime ends. Without the future, lines are written when there are many of them or at the end.
    pub fn flushing(&self) -> impl Future<Output = ()> + 'static {
        let log = self.0.clone();
        async move {
            let Some(log) = log else {
                return;
            };
            loop {
                log.begun.notified().await;
                loop {
                    tokio::time::sleep(GATHER).await;
                    let mut buffer = log.buffer.borrow_mut();
                    buffer.tick(clock::now().into_std());
                    if buffer.is_idle() {
                        break;
                    }
                }
            }
        }
    }
}

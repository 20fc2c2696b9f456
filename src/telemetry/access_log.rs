//! The access log: one line for each request, written without ever keeping one waiting.
//!
//! A worker formats lines into a buffer of its own and hands it to the one writing thread when it is full or 10 ms old.
//! The queue to that thread is bounded: when the reader of the log is too slow or gone, lines are dropped and counted,
//! and requests go on. Each line is one request, except that a client refused more than a hundred times in a second is
//! summed up (`repeated`, see `refusal_summary`).

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

pub use record::{AccessRecord, Charge, Reason};

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

/// How long a line may stay in its worker for others to join it.
const GATHER: Duration = Duration::from_millis(10);

/// The access log of this process: its thread, and the way there.
#[derive(Debug, Clone)]
pub struct AccessLog(Option<Output>);

#[derive(Debug, Clone)]
struct Output {
    form: LineFormat,
    handle: Arc<WriterHandle>,
}

/// What lines look like.
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
    /// When the thread cannot be started.
    pub fn stdout(format: AccessFormat, metrics: &Arc<Metrics>) -> io::Result<Self> {
        let stdout = io::stdout();
        let is_coloured = stdout.is_terminal() && super::log::may_colour();
        Self::start(format, is_coloured, writer::unbuffered(&stdout)?, metrics)
    }

    /// Opens the log on `sink`, which may block or fail as it likes.
    ///
    /// # Errors
    /// When the thread cannot be started.
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

    /// One worker's end. To be asked for by each worker, on its own thread, and kept.
    #[must_use]
    pub fn worker(&self) -> AccessWriter {
        AccessWriter(self.0.as_ref().map(|open| {
            Rc::new(WorkerLog {
                buffer: RefCell::new(LineBuffer::new(open.form, &open.handle)),
                begun: Notify::new(),
            })
        }))
    }

    /// Writes what the workers have handed over and ends the thread. Blocks for as long as that takes, at most until
    /// `deadline` has passed; returns how many lines were lost by then.
    ///
    /// Complete when the workers have dropped their [`AccessWriter`]s before.
    pub fn shutdown(&self, deadline: Duration) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |open| open.handle.shutdown(deadline))
    }
}

/// One worker's end of the access log. What it still holds is handed over when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct AccessWriter(Option<Rc<WorkerLog>>);

#[derive(Debug)]
struct WorkerLog {
    buffer: RefCell<LineBuffer>,
    /// Notified when there is something to flush and was not before.
    begun: Notify,
}

impl AccessWriter {
    /// Whether anything is written at all; where not, no record need be filled in.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Writes the line of a request that has ended. Never waits.
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

    /// Keeps lines from gathering for longer than a moment. To be spawned once on the worker's runtime, where it runs
    /// until the runtime ends; without it, lines come out when there are many of them or at the end.
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

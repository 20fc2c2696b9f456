//! One worker's lines: formatted on the thread that served the request, handed over in chunks.

use super::record::AccessRecord;
use super::refusal_summary::RefusalSummary;
use super::timestamp::TimestampText;
use super::writer::{Chunk, WriterHandle};
use super::{LineFormat, escape, json, text};
use crate::client::Client;
use std::sync::Arc;
use std::time::Instant;

/// The number of bytes at which the buffer is handed over at once.
const CHUNK: usize = 32 * 1024;

/// Formats lines and hands them over.
#[derive(Debug)]
pub(super) struct LineBuffer {
    form: LineFormat,
    timestamp: TimestampText,
    buffer: Vec<u8>,
    lines: u64,
    refusals: RefusalSummary,
    handle: Arc<WriterHandle>,
}

impl LineBuffer {
    pub(super) fn new(form: LineFormat, handle: &Arc<WriterHandle>) -> Self {
        Self {
            form,
            timestamp: TimestampText::default(),
            buffer: Vec::with_capacity(CHUNK),
            lines: 0,
            refusals: RefusalSummary::default(),
            handle: Arc::clone(handle),
        }
    }

    /// Has the buffer no lines to hand over, now or later?
    pub(super) const fn is_idle(&self) -> bool {
        self.buffer.is_empty() && !self.refusals.is_pending()
    }

    /// Writes a request's line, or counts the request if the flood rule applies. Only the flood rule needs the time.
    pub(super) fn record(&mut self, record: &AccessRecord<'_>, now: impl FnOnce() -> Instant) {
        if !record.reason.refuses() {
            return self.write(record);
        }
        let now = now();
        self.turn(now);
        let client = record.client.map(Client::of);
        let (form, timestamp) = (self.form, &mut self.timestamp);
        let is_written = self.refusals.refused(client, now, || {
            let mut line = Vec::new();
            format(form, timestamp, &mut line, record);
            line
        });
        if is_written {
            self.write(record);
        }
    }

    /// Does due work: ends the flood rule's second, hands over buffered lines.
    pub(super) fn tick(&mut self, now: Instant) {
        self.turn(now);
        self.hand_over();
    }

    fn write(&mut self, record: &AccessRecord<'_>) {
        format(self.form, &mut self.timestamp, &mut self.buffer, record);
        self.end_line(0);
    }

    fn end_line(&mut self, repeated: u64) {
        end(self.form, &mut self.buffer, repeated);
        self.lines += 1;
        if self.buffer.len() >= CHUNK {
            self.hand_over();
        }
    }

    fn turn(&mut self, now: Instant) {
        if self.refusals.is_over(now) {
            self.close_second();
        }
    }

    fn close_second(&mut self) {
        let mut refusals = std::mem::take(&mut self.refusals);
        let mut summarised = 0;
        refusals.close(|closing| {
            self.buffer.extend(&closing.line);
            self.end_line(closing.repeated);
            summarised += closing.repeated;
        });
        self.refusals = refusals;
        if summarised > 0 {
            self.handle.metrics.access_lines_summarised(summarised);
        }
    }

    fn hand_over(&mut self) {
        if !self.buffer.is_empty() {
            let chunk = self.take_chunk();
            self.buffer = self.handle.offer(chunk);
        }
    }

    fn take_chunk(&mut self) -> Chunk {
        Chunk {
            bytes: std::mem::take(&mut self.buffer),
            lines: std::mem::take(&mut self.lines),
        }
    }
}

impl Drop for LineBuffer {
    fn drop(&mut self) {
        self.close_second();
        if !self.buffer.is_empty() {
            let chunk = self.take_chunk();
            self.handle.leave(chunk);
        }
    }
}

/// Writes a line without its end.
fn format(
    form: LineFormat,
    timestamp: &mut TimestampText,
    out: &mut Vec<u8>,
    record: &AccessRecord<'_>,
) {
    match form {
        LineFormat::Json => json::write(out, timestamp, record),
        LineFormat::Short { is_coloured } => text::short(out, timestamp, record, is_coloured),
        LineFormat::Combined => text::combined(out, timestamp, record),
    }
}

/// Writes the end of a line, with the number of further requests that the line represents.
fn end(form: LineFormat, out: &mut Vec<u8>, repeated: u64) {
    let (before, after, end) = match form {
        LineFormat::Json => (",\"repeated\":", "", "}\n"),
        LineFormat::Short { .. } => (" (and ", " more like this)", "\n"),
        LineFormat::Combined => (" repeated=", "", "\n"),
    };
    if repeated > 0 {
        out.extend(before.as_bytes());
        escape::number(out, repeated);
        out.extend(after.as_bytes());
    }
    out.extend(end.as_bytes());
}

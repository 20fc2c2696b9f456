//! One worker's lines: formatted where the request was served, handed over in pieces.

use super::flood::{Flood, Pass};
use super::record::AccessRecord;
use super::stamp::Stamp;
use super::thread::{Chunk, Way};
use super::{Form, escape, json, plain};
use crate::client::Client;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

/// Bytes gathered before they are handed over at once.
const CHUNK: usize = 32 * 1024;

/// Emptied buffers that may wait to be used again.
const SPARE: usize = 8;

/// Formats lines and hands them over.
#[derive(Debug)]
pub(super) struct Pen {
    form: Form,
    stamp: Stamp,
    buffer: Vec<u8>,
    lines: u64,
    flood: Flood,
    way: Arc<Way>,
    home: SyncSender<Vec<u8>>,
    spare: Receiver<Vec<u8>>,
}

impl Pen {
    pub(super) fn new(form: Form, way: &Arc<Way>) -> Self {
        let (home, spare) = sync_channel(SPARE);
        Self {
            form,
            stamp: Stamp::default(),
            buffer: Vec::with_capacity(CHUNK),
            lines: 0,
            flood: Flood::default(),
            way: Arc::clone(way),
            home,
            spare,
        }
    }

    /// Nothing to hand over, now or later.
    pub(super) const fn is_idle(&self) -> bool {
        self.buffer.is_empty() && !self.flood.is_pending()
    }

    /// Writes a request's line, or counts it where the flood rule says so, which is when the time is asked for.
    pub(super) fn record(&mut self, record: &AccessRecord<'_>, now: impl FnOnce() -> Instant) {
        if !record.reason.refuses() {
            return self.write(record);
        }
        let now = now();
        self.turn(now);
        let client = record.client.map(Client::of);
        match self.flood.refused(client, now) {
            Pass::Write => self.write(record),
            Pass::Keep => {
                let mut line = Vec::new();
                format(self.form, &mut self.stamp, &mut line, record);
                self.flood.keep(client, line);
            }
            Pass::Counted => {}
        }
    }

    /// Does what time asks for: ends the flood rule's second, hands over what has gathered.
    pub(super) fn tick(&mut self, now: Instant) {
        self.turn(now);
        self.hand_over();
    }

    fn write(&mut self, record: &AccessRecord<'_>) {
        format(self.form, &mut self.stamp, &mut self.buffer, record);
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
        if self.flood.is_over(now) {
            self.close_second();
        }
    }

    fn close_second(&mut self) {
        let mut flood = std::mem::take(&mut self.flood);
        let mut summarised = 0;
        flood.close(|closing| {
            self.buffer.extend(&closing.line);
            self.end_line(closing.repeated);
            summarised += closing.repeated;
        });
        self.flood = flood;
        if summarised > 0 {
            self.way.summarised(summarised);
        }
    }

    fn hand_over(&mut self) {
        if let Some(chunk) = self.take_chunk()
            && let Err(mut refused) = self.way.offer(chunk)
        {
            refused.clear();
            self.buffer = refused;
        }
    }

    fn take_chunk(&mut self) -> Option<Chunk> {
        if self.buffer.is_empty() {
            return None;
        }
        let spare = self.spare.try_recv().unwrap_or_default();
        Some(Chunk {
            bytes: std::mem::replace(&mut self.buffer, spare),
            lines: std::mem::take(&mut self.lines),
            home: self.home.clone(),
        })
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        self.close_second();
        if let Some(chunk) = self.take_chunk() {
            self.way.leave(chunk);
        }
    }
}

/// Everything of a line but its end.
fn format(form: Form, stamp: &mut Stamp, out: &mut Vec<u8>, record: &AccessRecord<'_>) {
    match form {
        Form::Json => json::write(out, stamp, record),
        Form::Short { is_coloured } => plain::short(out, stamp, record, is_coloured),
        Form::Combined => plain::combined(out, stamp, record),
    }
}

/// The end of a line, which says for how many more it stands.
fn end(form: Form, out: &mut Vec<u8>, repeated: u64) {
    let (before, after) = match form {
        Form::Json => (&br#","repeated":"#[..], &b""[..]),
        Form::Short { .. } => (&b" (and "[..], &b" more like this)"[..]),
        Form::Combined => (&b" repeated="[..], &b""[..]),
    };
    if repeated > 0 {
        out.extend(before);
        escape::number(out, repeated);
        out.extend(after);
    }
    out.extend(if form == Form::Json {
        &b"}\n"[..]
    } else {
        b"\n"
    });
}

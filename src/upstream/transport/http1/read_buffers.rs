//! The memory that answers are read into: a buffer moves from connection to connection, so that an idle one has none.

use bytes::BytesMut;
use std::cell::RefCell;

/// The least room for a read; with less, a new buffer is used.
const LEAST: usize = 2 * 1024;
/// The usual size of a buffer.
const USUAL: usize = 8 * 1024;
/// The most room for a read.
const MOST: usize = 128 * 1024;

/// The buffer that no connection of a worker uses at present.
#[derive(Debug, Default)]
pub struct ReadBuffers {
    spare: RefCell<BytesMut>,
}

/// The bytes of one connection that have been read and not yet used.
#[derive(Debug, Default)]
pub(super) struct ReadBuffer {
    /// The bytes.
    pub(super) bytes: BytesMut,
    /// The room for the next read, estimated from the last ones.
    room: usize,
}

impl ReadBuffer {
    /// Makes room for a read.
    pub(super) fn make_room(&mut self, buffers: &ReadBuffers) {
        let least = LEAST.max(self.room);
        if self.bytes.capacity() == 0 {
            self.bytes = buffers.spare.take();
        }
        if self.bytes.capacity() - self.bytes.len() < least {
            self.bytes.reserve(least.max(USUAL));
        }
    }

    /// Notes that `count` bytes have been read. If they filled all the room, there is more the next time.
    pub(super) fn note_read(&mut self, count: usize) {
        if self.bytes.len() == self.bytes.capacity() {
            self.room = (2 * count).clamp(USUAL, MOST);
        }
    }

    /// Returns the memory, at the end of an answer.
    pub(super) fn release(&mut self, buffers: &ReadBuffers) {
        self.room = 0;
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() && bytes.capacity() <= 2 * USUAL {
            buffers.spare.replace(bytes);
        }
    }
}

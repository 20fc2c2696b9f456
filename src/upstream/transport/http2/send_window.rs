//! The connection's send window, over all streams together (RFC 9113, section 6.9). The library does not expose it, so
//! that it is counted from the frames in both directions: an upload that its server does not read may use it up, and a
//! request with a body that was sent on the connection then would hang.

use crate::clock;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// The window that every connection begins with.
const INITIAL: i64 = 65_535;
/// The room that a long body, or one of unknown length, needs.
pub(in crate::upstream) const ENOUGH: u32 = 16 * 1024;
/// The time after which an insufficient window that does not change counts as stuck.
const STUCK: Duration = Duration::from_millis(100);
/// The bytes that a client sends before its first frame.
const PREFACE: usize = 24;
/// The length of a frame's head.
const HEAD: usize = 9;
/// Types of frames.
const DATA: u8 = 0;
const WINDOW_UPDATE: u8 = 8;

/// The window of one connection.
#[derive(Debug)]
pub(super) struct SendWindow {
    /// The bytes that may still be sent.
    left: Cell<i64>,
    /// Bytes that the library has within that, and has not written yet.
    handed: Cell<i64>,
    /// The last change while there was not enough room.
    moved: Cell<Option<Instant>>,
    going: RefCell<FrameCounter>,
    coming: RefCell<FrameCounter>,
    /// Wakes the tasks that wait for room.
    grown: Notify,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self {
            left: Cell::new(INITIAL),
            handed: Cell::new(0),
            moved: Cell::new(None),
            going: RefCell::new(FrameCounter::behind(PREFACE)),
            coming: RefCell::new(FrameCounter::behind(0)),
            grown: Notify::new(),
        }
    }
}

impl SendWindow {
    /// Counts sent bytes.
    pub(super) fn goes(&self, bytes: &[u8]) {
        let sent = self.going.borrow_mut().count(bytes, DATA);
        if sent > 0 {
            self.handed.set((self.handed.get() - sent).max(0));
            self.moves(-sent);
        }
    }

    /// Notes that the library has bytes of a body, which it will send: they leave less room for others.
    pub(super) fn hands(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.handed.set(self.handed.get().saturating_add(bytes));
    }

    /// Notes that all bytes of the library have been written, or dropped with their stream.
    pub(super) fn all_is_written(&self) {
        self.handed.set(0);
    }

    /// Counts received bytes.
    pub(super) fn comes(&self, bytes: &[u8]) {
        let more = self.coming.borrow_mut().count(bytes, WINDOW_UPDATE);
        if more > 0 {
            self.moves(more);
            self.grown.notify_waiters();
        }
    }

    fn moves(&self, by: i64) {
        let left = self.left.get().saturating_add(by);
        self.left.set(left);
        if left < i64::from(ENOUGH) {
            self.moved.set(Some(clock::now()));
        }
    }

    /// Is there room for `need` bytes, [`ENOUGH`] at most?
    pub(super) fn has_room(&self, need: u32) -> bool {
        self.left.get() - self.handed.get() >= i64::from(need)
    }

    /// Is there no room for `need` bytes, and has that not changed for long? Bytes that are still to be written count
    /// as a change.
    pub(super) fn is_stuck(&self, need: u32, now: Instant) -> bool {
        let moved = self.moved.get();
        self.is_below(need) && moved.is_some_and(|moved| now >= moved + STUCK)
    }

    /// Will there be no room for `need` bytes until the server grants some?
    fn is_below(&self, need: u32) -> bool {
        self.left.get() < i64::from(need)
    }

    /// Waits until the server grants room. Returns false if the window is stuck.
    pub(super) async fn waited(self: Rc<Self>, need: u32) -> bool {
        loop {
            let now = clock::now();
            if self.has_room(need) {
                return true;
            }
            if self.is_stuck(need, now) {
                return false;
            }
            let since = self.moved.get().filter(|_| self.is_below(need));
            let until = since.unwrap_or(now) + STUCK;
            if timeout_at(until, self.grown.notified()).await.is_ok() {
                return true;
            }
        }
    }
}

/// Finds frames in passing bytes.
#[derive(Debug)]
struct FrameCounter {
    /// The head of the next frame, and the number that follows the head of an update.
    head: [u8; HEAD + 4],
    /// The number of its bytes that have passed.
    known: usize,
    /// Bytes of the previous frame that are left to pass.
    skipped: usize,
}

impl FrameCounter {
    /// A counter for frames that begin after this number of bytes.
    fn behind(skipped: usize) -> Self {
        Self {
            head: [0; HEAD + 4],
            known: 0,
            skipped,
        }
    }

    /// The bytes that frames of `kind` in `bytes` take from a connection's window or add to it.
    fn count(&mut self, mut bytes: &[u8], kind: u8) -> i64 {
        let mut counted = 0;
        loop {
            let passed = self.skipped.min(bytes.len());
            self.skipped -= passed;
            bytes = &bytes[passed..];
            let is_update = self.known >= HEAD;
            let wanted = if is_update { HEAD + 4 } else { HEAD };
            let taken = (wanted - self.known).min(bytes.len());
            self.head[self.known..self.known + taken].copy_from_slice(&bytes[..taken]);
            self.known += taken;
            bytes = &bytes[taken..];
            if self.known < wanted {
                return counted;
            }
            let [a, b, c, of, _, s0, s1, s2, s3, n0, n1, n2, n3] = self.head;
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            let is_of_connection = u32::from_be_bytes([s0 & 0x7F, s1, s2, s3]) == 0;
            if is_update {
                counted += i64::from(u32::from_be_bytes([n0 & 0x7F, n1, n2, n3]));
            } else if of == kind && kind == WINDOW_UPDATE && is_of_connection && length == 4 {
                // The number follows.
                continue;
            } else {
                self.skipped = length;
                if of == kind && kind == DATA {
                    counted += i64::try_from(length).unwrap_or(0);
                }
            }
            self.known = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, 0], &stream.to_be_bytes()].concat();
        [head, payload.to_vec()].concat()
    }

    #[test]
    fn frames_are_counted_however_they_are_cut() {
        let going = [
            vec![b'P'; PREFACE],
            frame(4, 0, &[]),
            frame(DATA, 1, &[8; 700]),
            frame(1, 3, &[0; 20]),
            frame(DATA, 3, &[]),
            frame(DATA, 3, &[0; 300]),
        ]
        .concat();
        let coming = [
            frame(4, 0, &[0; 6]),
            frame(WINDOW_UPDATE, 1, &[0, 0, 9, 9]),
            frame(WINDOW_UPDATE, 0, &[0, 0, 2, 0]),
            frame(DATA, 1, &frame(WINDOW_UPDATE, 0, &[0, 1, 0, 0])),
            frame(WINDOW_UPDATE, 0, &[0x80, 0, 0, 1]),
        ]
        .concat();
        for size in [1, 2, 3, 7, 13, 64, 5_000] {
            let window = SendWindow::default();
            going.chunks(size).for_each(|bytes| window.goes(bytes));
            assert_eq!(window.left.get(), INITIAL - 1_000, "{size} at a time");
            coming.chunks(size).for_each(|bytes| window.comes(bytes));
            assert_eq!(window.left.get(), INITIAL - 1_000 + 513);
        }
    }

    #[test]
    fn what_the_library_was_given_is_no_room() {
        let window = SendWindow::default();
        window.goes(&[0; PREFACE]);
        window.hands(60_000);
        assert!(window.has_room(5_000) && !window.has_room(6_000));
        window.goes(&frame(DATA, 1, &[0; 60_000]));
        assert!(window.has_room(5_000) && !window.has_room(6_000));
        window.hands(5_000);
        assert!(!window.has_room(5_000));
        window.all_is_written();
        assert!(window.has_room(5_000), "its stream was reset");
        // The window was low earlier, and is not now.
        window.moved.set(Some(clock::now()));
        window.comes(&frame(WINDOW_UPDATE, 0, &[0, 0, 0xF0, 0]));
        window.hands(60_000);
        let late = clock::now() + STUCK * 2;
        assert!(!window.has_room(ENOUGH) && !window.is_stuck(ENOUGH, late));
    }

    #[tokio::test]
    async fn a_window_without_room_is_stuck_once_it_has_not_moved_for_a_while() {
        let window = Rc::<SendWindow>::default();
        assert!(window.has_room(ENOUGH) && !window.is_stuck(ENOUGH, clock::now()));
        window.goes(&[0; PREFACE]);
        window.goes(&frame(DATA, 1, &[0; 60_000]));
        assert!(window.has_room(5_000) && !window.has_room(6_000));
        assert!(!Rc::clone(&window).waited(6_000).await, "nothing comes");
        assert!(window.is_stuck(6_000, clock::now()));
        assert!(Rc::clone(&window).waited(5_000).await, "there is room");
        let before = clock::now();
        window.comes(&frame(WINDOW_UPDATE, 0, &[0, 0, 0, 1]));
        assert!(!window.is_stuck(6_000, before), "it moves");
        window.moved.set(Some(before + STUCK * 1_000));
        let moving = async { window.comes(&frame(WINDOW_UPDATE, 0, &[0, 0, 0, 1])) };
        let (has_come, ()) = tokio::join!(Rc::clone(&window).waited(6_000), moving);
        assert!(has_come, "it moves on");
    }
}

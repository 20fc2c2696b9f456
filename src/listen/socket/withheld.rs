//! Writes to the socket of HTTP/1.1, without hyper's own answers.

use super::library_answer::{self, Sifted};
use super::{ProtocolTracker, SocketState, WriteStall};
use std::io;
use std::task::{Context, Poll, ready};

impl SocketState {
    /// May hyper write its own answer now?
    #[inline]
    pub(super) fn may_answer_itself(&self) -> bool {
        let ProtocolTracker::Http1(framing) = &self.tracker else {
            return false;
        };
        framing.is_ahead() || !self.withheld.is_empty()
    }

    /// Writes everything except hyper's own answer, which is withheld.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_sifted(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
        stall: &mut WriteStall,
    ) -> Poll<io::Result<usize>> {
        // The withheld bytes were no such answer, since hyper continues.
        while !self.withheld.is_empty() {
            let withheld = std::mem::take(&mut self.withheld);
            let sent = self.poll_send(cx, &[io::IoSlice::new(&withheld)], stall);
            self.withheld = withheld;
            let sent = ready!(sent)?;
            self.withheld.drain(..sent);
        }
        match library_answer::sift(bufs) {
            Sifted::All => self.poll_send(cx, bufs, stall),
            Sifted::Nothing => {
                for buf in bufs {
                    self.withheld.extend_from_slice(buf);
                }
                Poll::Ready(Ok(self.withheld.len()))
            }
            Sifted::Before(length) => {
                let mut first = Vec::with_capacity(length);
                for buf in bufs {
                    first.extend_from_slice(&buf[..buf.len().min(length - first.len())]);
                }
                self.poll_send(cx, &[io::IoSlice::new(&first)], stall)
            }
        }
    }
}

//! The deadline of a head on an HTTP/2 connection, from its first byte on.

use crate::clock;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep_until};

/// The timer of an incomplete head, without cost while there is none.
#[derive(Debug, Default)]
pub(super) struct HeadDeadline(Option<Pin<Box<Sleep>>>);

impl HeadDeadline {
    /// Ready when a head has been incomplete for longer than `allowed`; `in_head` states whether one is.
    pub(in crate::listen) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        in_head: bool,
        allowed: Duration,
    ) -> Poll<()> {
        if !in_head {
            self.0 = None;
            return Poll::Pending;
        }
        let timer = self
            .0
            .get_or_insert_with(|| Box::pin(sleep_until(clock::now() + allowed)));
        timer.as_mut().poll(cx)
    }
}

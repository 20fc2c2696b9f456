//! A head has one deadline, from its first byte: the moment it has begun, and the moment it is late.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// The deadline of whatever head is on its way on an HTTP/2 connection. Costs nothing while none is.
#[derive(Debug, Default)]
pub(super) struct HeadDeadline(Option<Pin<Box<Sleep>>>);

impl HeadDeadline {
    /// A head is on its way, or none is; ready when it has been for longer than `allowed`.
    pub(super) fn poll(
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
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + allowed)));
        timer.as_mut().poll(cx)
    }
}

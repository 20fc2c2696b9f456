//! The watch on a tunnel's side that is not read from, since the other side does not take the earlier bytes.

use crate::clock;
use crate::descriptors::departure::{Departure, SecondDescriptor};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// The time after which the watch begins: most receivers are slow for a shorter time.
const PATIENCE: Duration = Duration::from_millis(100);

/// Detects that a sender leaves while its receiver takes nothing.
#[derive(Default)]
pub(super) struct Lookout {
    /// The time since which the receiver takes nothing.
    since: Option<Instant>,
    /// Resolves when the sender leaves.
    leaving: Option<Pin<Box<dyn Future<Output = Departure>>>>,
    /// The sender has left.
    is_over: bool,
}

impl Lookout {
    /// The time at which the watch must begin, if it has not.
    pub(super) fn next(&self) -> Option<Instant> {
        let since = self.since.filter(|_| self.leaving.is_none())?;
        Some(since + PATIENCE)
    }

    /// Ready once, when the sender has left. `second` returns a second descriptor of its socket.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        is_blocked: bool,
        second: impl FnOnce() -> Option<SecondDescriptor>,
    ) -> Poll<Departure> {
        if !is_blocked || self.is_over {
            (self.since, self.leaving) = (None, None);
            return Poll::Pending;
        }
        let since = *self.since.get_or_insert_with(clock::now);
        if self.leaving.is_none() && since + PATIENCE <= clock::now() {
            self.leaving = Some(match second() {
                Some(second) => Box::pin(second.into_departure()),
                // No descriptor is left for the watch.
                None => Box::pin(std::future::pending()),
            });
        }
        let Some(leaving) = &mut self.leaving else {
            return Poll::Pending;
        };
        let departure = leaving.as_mut().poll(cx);
        if departure.is_ready() {
            self.is_over = true;
        }
        departure
    }
}

//! The bound on pauses in a body: a pause ends the body when it has lasted too long, or the client has left.

use crate::clock;
use crate::listen::socket::SocketWatch;
use crate::proxy::bodies::body_failure::BodyError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// The pause from which on the client is watched: a leaving client is then detected within a second. The many short
/// pauses cost nothing.
pub const QUICK: Duration = Duration::from_millis(500);

/// Bounds the pauses of one body, without cost until there is one.
pub struct SoftTimeout {
    allowed: Duration,
    client: SocketWatch,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    leaving: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl fmt::Debug for SoftTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftTimeout")
            .field("allowed", &self.allowed)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

impl SoftTimeout {
    /// A bound for pauses: each may last `allowed`, and only while `client` stays.
    #[must_use]
    pub fn new(allowed: Duration, client: SocketWatch) -> Self {
        Self {
            allowed,
            client,
            since: None,
            timer: None,
            leaving: None,
        }
    }

    /// Notes the end of a pause.
    pub fn resumed(&mut self) {
        self.since = None;
    }

    /// Notes a pause. Ready when the pause has been too long, or the client has left.
    pub fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        let since = *self.since.get_or_insert_with(clock::now);
        loop {
            let mut wait = self.allowed.min(QUICK);
            if let Some(leaving) = &mut self.leaving {
                if leaving.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(BodyError::ClientGone);
                }
                wait = self.allowed;
            }
            ready!(self.poll_until(since + wait, cx));
            if clock::now() >= since + self.allowed {
                return Poll::Ready(BodyError::Idle);
            }
            let client = self.client.clone();
            self.leaving = Some(Box::pin(async move { client.gone().await }));
        }
    }

    fn poll_until(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(cx)
    }
}

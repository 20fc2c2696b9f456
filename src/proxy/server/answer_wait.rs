//! The wait for the head of an answer: `timeout` counts the time that the server owes, and the client of a gRPC call
//! may set an end of its own.

use crate::clock;
use crate::listen::Peer;
use crate::proxy::bodies::request_body::Upload;
use crate::proxy::bodies::soft_timeout::QUICK;
use crate::proxy::error::ProxyError;
use crate::snapshot::AnswerTimeout;
use crate::upstream::failure::UpstreamError;
use crate::upstream::owed_time::UploadState as _;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep_until};

/// The bounds of the wait for the head of one answer.
#[derive(Debug)]
pub(in crate::proxy) struct AnswerWait {
    /// The time at which forwarding began.
    start: Instant,
    /// The longest time that a server may owe.
    owed: Option<Duration>,
    /// The deadline that the client sets.
    ends: Option<Instant>,
    /// The progress of the request's body.
    upload: Option<Rc<Upload>>,
}

impl AnswerWait {
    /// The wait of a request that is forwarded at `start`, if the route has this `timeout` and its bodies may be silent
    /// for `idle`.
    #[inline]
    pub(in crate::proxy) fn new(
        start: Instant,
        timeout: AnswerTimeout,
        idle: Duration,
        upload: Option<Rc<Upload>>,
    ) -> Self {
        Self {
            start,
            owed: Some(timeout.time().unwrap_or(idle)),
            ends: None,
            upload,
        }
    }

    /// The wait of a gRPC call, for which its client may set an end: that end applies, and a configured `timeout`. With
    /// neither, a server may be silent for the idle time, as in a stream that has begun.
    #[cold]
    pub(in crate::proxy) fn of_call(
        self,
        timeout: AnswerTimeout,
        idle: Duration,
        ends: Option<Instant>,
    ) -> Self {
        let idle = ends.is_none().then_some(idle);
        Self {
            owed: timeout.written().or(idle),
            ends,
            ..self
        }
    }

    /// The end of the wait as known at `now`: a server that waits for bytes, or takes some, gets more time.
    #[inline]
    fn end(&self, now: Instant) -> Instant {
        let owed = self.owed.map(|owed| match &self.upload {
            None => self.start + owed,
            Some(upload) => {
                let upload = upload.owed();
                upload.since().unwrap_or(now) + owed + upload.grace(owed)
            }
        });
        let ends = [owed, self.ends].into_iter().flatten();
        ends.min().unwrap_or(now)
    }

    /// The failure of a server that has not answered in time.
    fn failure(&self) -> ProxyError {
        let upload = self.upload.as_ref();
        let waited = self.owed.map(|owed| {
            let grace = upload.map(|upload| upload.owed().grace(owed));
            owed + grace.unwrap_or_default()
        });
        UpstreamError::Timeout(waited.unwrap_or_else(|| self.start.elapsed())).into()
    }

    /// Runs `exchange` while there is time, and only while the client stays. It is taken by reference, because it is
    /// large.
    ///
    /// # Errors
    /// With 504, if the server owes a response or reading for too long. If the client leaves, with an error that is
    /// never sent.
    pub(in crate::proxy) async fn bound<T>(
        &self,
        mut exchange: Pin<&mut impl Future<Output = Result<T, ProxyError>>>,
        peer: &Peer,
    ) -> Result<T, ProxyError> {
        let soon = peer.until(self.end(self.start).min(self.start + QUICK));
        // `before` is not used here, since it would move the answer once more.
        tokio::select! {
            biased;
            outcome = exchange.as_mut() => return outcome,
            () = unconstrained(soon) => {}
        }
        // A request seldom gets beyond this point, and its wait may cost an allocation.
        Box::pin(async move {
            let mut gone = pin!(unconstrained(peer.watch.gone()));
            loop {
                let end = self.end(clock::now());
                let outcome = tokio::select! {
                    biased;
                    outcome = before(exchange.as_mut(), sleep_until(end)) => outcome,
                    () = gone.as_mut() => return Err(ProxyError::ClientGone),
                };
                if let Some(outcome) = outcome {
                    return outcome;
                }
                let now = clock::now();
                if self.end(now) <= now {
                    return Err(self.failure());
                }
            }
        })
        .await
    }
}

/// The outcome of `exchange`, unless `deadline` resolves first.
///
/// A server that keeps the exchange busy uses up the budget that the runtime grants a task at a time, and then no timer
/// of the runtime is ready. The deadline is therefore checked nevertheless.
async fn before<T>(
    exchange: Pin<&mut impl Future<Output = T>>,
    deadline: impl Future<Output = ()>,
) -> Option<T> {
    tokio::select! {
        biased;
        outcome = exchange => Some(outcome),
        () = unconstrained(deadline) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::coop::consume_budget;
    use tokio::time::sleep;

    #[tokio::test]
    async fn a_deadline_is_seen_beside_an_exchange_that_never_rests() {
        let restless = pin!(async {
            loop {
                consume_budget().await;
            }
        });
        let outcome: Option<()> = before(restless, sleep(Duration::from_millis(20))).await;
        assert_eq!(outcome, None);
    }
}

//! Readings in sequence, and the wait for the next one: a reading begins after the request, so that an answer that it
//! does not find did not exist at the time of the request.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// The readings of one place.
#[derive(Debug, Default)]
pub(super) struct Readings {
    next: Mutex<NextReading>,
    /// The number of the last ended reading.
    ended: watch::Sender<u64>,
    asked: Notify,
}

#[derive(Debug, Default)]
struct NextReading {
    /// Readings that have begun.
    begun: u64,
    /// The identities that are requested.
    asked: HashSet<Arc<str>>,
}

impl Readings {
    /// Begins a reading. Returns the identities that were requested since the previous reading began.
    pub(super) fn begin(&self) -> HashSet<Arc<str>> {
        let mut next = self.next.lock();
        next.begun += 1;
        std::mem::take(&mut next.asked)
    }

    /// Ends the reading that began last.
    pub(super) fn end(&self) {
        let begun = self.next.lock().begun;
        self.ended.send_replace(begun);
    }

    /// Makes the next reading begin soon.
    pub(super) fn hasten(&self) {
        self.asked.notify_one();
    }

    /// Resolves when a caller waits for a reading.
    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Requests a reading that begins after this call, and that also looks for these identities. The future waits for
    /// the end of the reading.
    pub(super) fn next(
        &self,
        identities: impl IntoIterator<Item = Arc<str>>,
    ) -> impl Future<Output = ()> {
        let number = {
            let mut next = self.next.lock();
            next.asked.extend(identities);
            next.begun + 1
        };
        let mut ended = self.ended.subscribe();
        self.hasten();
        async move {
            // The sender lives as long as `self`.
            let _ = ended.wait_for(|ended| *ended >= number).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_reading_that_has_begun_before_is_not_enough() {
        let readings = Readings::default();
        let mut context = Context::from_waker(Waker::noop());
        assert!(readings.begin().is_empty());
        let mut waits = pin!(readings.next(["shop".into()]));
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Pending);
        readings.end();
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(readings.begin(), HashSet::from(["shop".into()]));
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Pending);
        readings.end();
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Ready(()));
        assert!(readings.begin().is_empty());
    }
}

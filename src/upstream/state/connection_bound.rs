//! The bound on the connections to one server, over all workers.
//!
//! An idle connection in a worker's pool counts. If another worker waits for one, it is closed: the pool that owns it
//! is woken for that.

use super::server_queue::{Joined, ServerQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::Notify;

/// The connections to one server.
#[derive(Debug, Default)]
pub struct ConnectionBound {
    open: AtomicU32,
    /// The most that may be open; 0 means any number.
    most: AtomicU32,
    line: Arc<ServerQueue<ConnectionPermit>>,
    /// Idle connections that are to be closed.
    owed: AtomicU32,
    wanted: Notify,
}

/// The permit for one connection, while kept.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<ConnectionBound>);

/// The most waiters for a connection to one server: the queue in front of the servers is the effective bound.
const MOST_WAITING: usize = 100_000;

impl ConnectionBound {
    /// Sets the bound; `None` means any number.
    pub fn set(self: &Arc<Self>, most: Option<u32>) {
        self.most.store(most.unwrap_or(0), Ordering::SeqCst);
        self.line.serve(|| self.take());
    }

    /// Is there a bound?
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.most.load(Ordering::Relaxed) != 0
    }

    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Waits for the permit for a connection. The caller sets the deadline.
    pub async fn permit(self: &Arc<Self>) -> ConnectionPermit {
        loop {
            let free = self.line.is_empty().then(|| self.take()).flatten();
            if let Some(permit) = free {
                return permit;
            }
            match self.line.join(MOST_WAITING, None, || self.take()) {
                Joined::Free(permit) => return permit,
                Joined::Waits(place) => {
                    self.owed.fetch_add(1, Ordering::SeqCst);
                    let _debt = Debt(self);
                    // The place is dropped before the debt.
                    let mut place = place;
                    self.wanted.notify_waiters();
                    if let Some(permit) = place.turn().await {
                        return permit;
                    }
                }
                Joined::Full | Joined::FullOfClient => tokio::task::yield_now().await,
            }
        }
    }

    /// Must a connection be closed that would become idle?
    #[inline]
    pub fn gives_way(&self) -> bool {
        self.owed.load(Ordering::SeqCst) != 0 && self.is_owed()
    }

    /// A waiter that has left owes nothing.
    fn is_owed(&self) -> bool {
        let less = |owed: u32| owed.checked_sub(1);
        let paid = self
            .owed
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        paid.is_ok()
    }

    /// Notified each time that idle connections are to be closed.
    pub fn wanted(&self) -> &Notify {
        &self.wanted
    }

    fn take(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let most = self.most.load(Ordering::SeqCst);
        let more = |open: u32| (most == 0 || open < most).then(|| open.saturating_add(1));
        let taken = self
            .open
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.is_ok().then(|| ConnectionPermit(Arc::clone(self)))
    }
}

/// The connection that a waiter is owed, until it no longer waits.
struct Debt<'a>(&'a ConnectionBound);

impl Drop for Debt<'_> {
    fn drop(&mut self) {
        // The debt may have been paid already.
        let waiting = u32::try_from(self.0.line.len()).unwrap_or(u32::MAX);
        let most = |owed: u32| (owed > waiting).then_some(waiting);
        let _ = self
            .0
            .owed
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, most);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.line.serve(|| self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn one_that_rests_gives_way_to_one_that_waits() {
        let bound = Arc::new(ConnectionBound::default());
        bound.set(Some(1));
        let resting = bound.permit().await;
        assert!(!bound.gives_way());
        let waiting = tokio::spawn({
            let bound = Arc::clone(&bound);
            async move { bound.permit().await }
        });
        let woken = bound.wanted().notified();
        timeout(Duration::from_secs(5), woken).await.unwrap();
        assert!(bound.gives_way() && !bound.gives_way(), "one, not two");
        drop(resting);
        drop(waiting.await.unwrap());
        assert_eq!(bound.open(), 0);
    }

    #[tokio::test]
    async fn nothing_is_owed_to_one_that_has_left() {
        let bound = Arc::new(ConnectionBound::default());
        bound.set(Some(1));
        let _taken = bound.permit().await;
        assert!(timeout(SOON, bound.permit()).await.is_err());
        assert!(!bound.gives_way());
        bound.set(Some(2));
        assert!(timeout(SOON, bound.permit()).await.is_ok());
        bound.set(None);
        let many = [
            bound.permit().await,
            bound.permit().await,
            bound.permit().await,
        ];
        assert_eq!((bound.open(), bound.is_set()), (4, false));
        drop(many);
    }
}

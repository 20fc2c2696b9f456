//! Stopping: the drain token, and the signals that begin draining or start a successor.

use crate::clock;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

/// The switch of the drain, used once; every holder of a [`Drain`] is notified. The gateway may be leaving for a while
/// before: clients are asked to reconnect elsewhere, and none is refused.
#[derive(Debug)]
pub struct DrainSwitch(watch::Sender<DrainState>);

/// The token of draining: current requests are finished until a deadline.
#[derive(Debug, Clone)]
pub struct Drain(watch::Receiver<DrainState>);

#[derive(Debug, Default, Clone, Copy)]
struct DrainState {
    /// Clients are asked to reconnect elsewhere.
    is_leaving: bool,
    /// Set when draining begins.
    deadline: Option<Instant>,
    /// The unfinished requests are being cut.
    is_over: bool,
}

/// A switch and its token.
#[must_use]
pub fn drain() -> (DrainSwitch, Drain) {
    let (switch, drain) = watch::channel(DrainState::default());
    (DrainSwitch(switch), Drain(drain))
}

impl DrainSwitch {
    /// Asks clients to reconnect elsewhere from now on. Resources that one process alone may have, such as the lock of
    /// a folder, are released.
    pub fn leave(&self) {
        self.0.send_modify(|state| state.is_leaving = true);
    }

    /// Begins draining; requests that are not finished after `grace` are cut.
    pub fn pull(&self, grace: Duration) {
        self.0.send_modify(|state| {
            state.is_leaving = true;
            state.deadline.get_or_insert(clock::now() + grace);
        });
    }

    /// Marks that unfinished requests are now cut.
    pub fn cut(&self) {
        self.0.send_modify(|state| state.is_over = true);
    }
}

impl Drain {
    /// The time at which draining must be over; `None` before draining begins.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.0.borrow().deadline
    }

    /// Has draining ended, so that unfinished requests are being cut?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.borrow().is_over
    }

    /// Has the gateway begun to leave?
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.0.borrow().is_leaving
    }

    /// Resolves when the gateway begins to leave: with draining, or before it. The future may be dropped and created
    /// again.
    pub async fn leaving(&self) {
        self.until(|state| state.is_leaving).await;
    }

    /// Resolves when draining begins. The future may be dropped and created again.
    pub async fn begun(&self) {
        self.until(|state| state.deadline.is_some()).await;
    }

    async fn until(&self, reached: impl FnMut(&DrainState) -> bool) {
        let mut drain = self.0.clone();
        // A switch that was dropped without being pulled never drains.
        if drain.wait_for(reached).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The signals that the gateway handles.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reload: Signal,
    hand_over: Signal,
}

/// The request of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalRequest {
    /// SIGTERM or SIGINT: finish current requests and leave; the second one ends the process at once.
    Stop,
    /// SIGHUP: read the file again.
    Reload,
    /// SIGUSR2: start a successor, and leave when it serves.
    HandOver,
}

impl Signals {
    /// Installs the handlers, inside a runtime.
    ///
    /// # Errors
    /// If the system refuses a handler.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            reload: signal(SignalKind::hangup())?,
            hand_over: signal(SignalKind::user_defined2())?,
        })
    }

    /// The request of the next signal.
    pub async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.reload.recv() => SignalRequest::Reload,
            _ = self.hand_over.recv() => SignalRequest::HandOver,
        }
    }
}

//! The gateway's life from its first connection to its end: signals, the handover to a successor, leaving, draining.

use super::LAST_LINES;
use super::certificates::CertificateOrders;
use super::handover::bequest::Bequest;
use super::handover::program::Program;
use super::handover::{Successor, SuccessorFailure};
use super::service_manager::{self, ServiceState};
use super::sockets::KeptSockets;
use super::worker::WorkerThread;
use crate::admin::{Phase, Readiness};
use crate::listen::dispatch::Dispatcher;
use crate::shutdown::{DrainSwitch, SignalRequest, Signals};
use crate::store::Fleet;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::Metrics;
use crate::{clock, reload};
use rustix::process::Signal;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The least time that a successor has to start, however short `drain` is.
const LEAST_START: Duration = Duration::from_secs(5);
/// Longest time after a handover in which a client may send another request on a kept connection, and learns from the
/// answer that it is the last. No client has to wait for this.
const LINGER: Duration = Duration::from_secs(5);
/// The same at a signal to stop, if the file has no `drain_delay`: a client with continuous requests gets the notice,
/// and the end is hardly delayed.
const SHORT_LINGER: Duration = Duration::from_millis(200);
/// Logged when a leaving gateway must end at once.
const STOPPED_AT_ONCE: &str = "stopped at once: a second signal came";
/// The time for orders of certificates at a signal to stop.
const LAST_ORDERS: Duration = Duration::from_secs(2);
/// The time before the end of draining at which orders are abandoned, so that they do not count as failures.
const ORDERS_GIVEN_UP: Duration = Duration::from_secs(1);
/// The time after the end of draining by which the process has exited.
const LAST_ACTS: Duration = Duration::from_secs(5);

/// The gateway, serving.
pub(super) struct Gateway {
    /// The longest time for current requests.
    pub(super) drain: Duration,
    /// The time in which new connections are still accepted after a signal to stop.
    pub(super) drain_delay: Duration,
    pub(super) program: Program,
    pub(super) switch: DrainSwitch,
    pub(super) readiness: Readiness,
    pub(super) metrics: Arc<Metrics>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) orders: Arc<CertificateOrders>,
    /// The tasks that accept connections, and other work that ends before the gateway does.
    pub(super) acceptors: JoinSet<()>,
    pub(super) workers: Vec<WorkerThread>,
    pub(super) log: AccessLog,
    pub(super) signals: SignalDesk,
    /// The process that serves in place of this one, until its end is known.
    pub(super) successor: Option<Successor>,
    /// Dropped last, since dropping removes the socket files.
    pub(super) kept: KeptSockets,
}

/// Causes for which a gateway leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GatewayDeparture {
    /// A signal to stop.
    Stop,
    /// A successor serves.
    HandedOver,
}

impl Gateway {
    /// Serves until a signal stops the gateway or a successor serves, and then finishes current requests.
    pub(super) async fn until_stopped(mut self) {
        let departure = self.until_departure().await;
        if self.leave(departure).await {
            self.drain(departure).await;
        }
        self.switch.cut();
        for worker in self.workers {
            worker.end();
        }
        self.log.shutdown(LAST_LINES);
    }

    async fn until_departure(&mut self) -> GatewayDeparture {
        loop {
            match self.signals.next().await {
                LifeRequest::Stop => return GatewayDeparture::Stop,
                LifeRequest::HandOver => {
                    if let Some(departure) = self.hand_over().await {
                        return departure;
                    }
                }
            }
        }
    }

    /// Starts a successor and lets it serve. `None` if that has failed: the gateway continues as before.
    async fn hand_over(&mut self) -> Option<GatewayDeparture> {
        if std::process::id() == 1 {
            tracing::error!(
                "SIGUSR2: this process is the first of its container, and a successor would end with it; start another container instead"
            );
            return None;
        }
        tracing::info!("SIGUSR2: a successor starts; this gateway serves until the successor does");
        service_manager::tell(ServiceState::HandsOver);
        let reloads = self.signals.reloads;
        let mut successor = match Successor::start(&self.program, &self.kept) {
            Ok(successor) => successor,
            Err(failure) => return self.go_on(&failure),
        };
        let (outcome, is_stopped) = self.until_served(&mut successor).await;
        let stop = is_stopped.then_some(GatewayDeparture::Stop);
        match outcome {
            Some(Ok(unused)) => {
                self.give_way(&successor, &unused);
                if self.signals.reloads > reloads {
                    // The successor may have read the file before that signal.
                    successor.signal(Signal::HUP);
                }
                if is_stopped {
                    successor.signal(Signal::TERM);
                } else {
                    self.signals.is_stop_awaited = true;
                }
                self.successor = Some(successor);
                Some(GatewayDeparture::HandedOver)
            }
            Some(Err(silent)) => {
                let failure = successor.fail(silent).await;
                stop.or(self.go_on(&failure))
            }
            None => {
                successor.kill().await;
                stop
            }
        }
    }

    /// Waits until the successor serves, and handles signals meanwhile. A signal to stop ends the wait unless the
    /// successor may already have connections. Returns the outcome, and whether there was such a signal.
    async fn until_served(
        &mut self,
        successor: &mut Successor,
    ) -> (Option<Result<Vec<usize>, Option<Duration>>>, bool) {
        let is_released = successor.is_released();
        let bequest = Bequest {
            gateways: self.fleet.known(),
            certificates: self.orders.held(),
        };
        let mut serves = pin!(successor.serves(self.drain.max(LEAST_START), &bequest));
        let mut is_stopped = false;
        loop {
            tokio::select! {
                outcome = &mut serves => return (Some(outcome), is_stopped),
                () = self.signals.stop() => {
                    is_stopped = true;
                    if !is_released.get() {
                        return (None, true);
                    }
                }
            }
        }
    }

    /// Notes that a handover has failed.
    fn go_on(&self, failure: &SuccessorFailure) -> Option<GatewayDeparture> {
        tracing::error!("the hand-over has failed: {failure}; this gateway goes on serving");
        self.metrics.hand_over_failed();
        service_manager::tell(ServiceState::Ready);
        None
    }

    /// Leaves the sockets to a successor that serves, except those at the positions that it does not use.
    fn give_way(&mut self, successor: &Successor, unused: &[usize]) {
        let (process, grace) = (successor.id(), self.drain_delay + self.drain);
        service_manager::tell(ServiceState::HandedOver(process));
        self.kept.leave_to_successor(unused);
        tracing::info!(
            "handed over: process {process} serves; requests under way here have {grace:?}; counts in memory, and counts of limits with `scope = \"gateway\"`, start afresh there"
        );
    }

    /// Asks clients to reconnect elsewhere before connections are closed. Returns false if a further signal ends the
    /// gateway at once.
    async fn leave(&mut self, departure: GatewayDeparture) -> bool {
        self.readiness.set(Phase::Draining);
        self.switch.leave();
        // Another process may then order certificates.
        let (orders, within) = (Arc::clone(&self.orders), self.last_orders(departure));
        self.acceptors
            .spawn(async move { orders.stop(within).await });
        let (dispatcher, acceptors) = (&self.dispatcher, &mut self.acceptors);
        match departure {
            GatewayDeparture::Stop => {
                let delay = self.drain_delay;
                service_manager::tell(ServiceState::Stops(delay + self.drain + LAST_ACTS));
                if delay.is_zero() {
                    tokio::select! {
                        () = sleep(SHORT_LINGER.min(self.drain / 2)) => return true,
                        () = closed(dispatcher) => return true,
                        () = self.signals.stop() => {}
                    }
                } else {
                    tracing::info!("stopping: connections are still accepted for {delay:?}");
                    tokio::select! {
                        () = sleep(delay) => return true,
                        () = self.signals.stop() => {}
                    }
                }
            }
            GatewayDeparture::HandedOver => tokio::select! {
                () = sleep(linger(self.drain_delay, self.drain)) => return true,
                () = finished(acceptors, dispatcher) => return true,
                () = abandoned(&mut self.successor) => return false,
                () = self.signals.stop() => {
                    if self.signals.is_awaited_stop() {
                        sleep(SHORT_LINGER.min(self.drain / 2)).await;
                        return true;
                    }
                }
            },
        }
        tracing::warn!("{STOPPED_AT_ONCE}");
        false
    }

    /// The time in which unfinished orders for certificates may end. A successor answers the authority meanwhile;
    /// without one no process answers for long.
    fn last_orders(&self, departure: GatewayDeparture) -> Duration {
        let left = (self.drain_delay + self.drain).saturating_sub(ORDERS_GIVEN_UP);
        match departure {
            GatewayDeparture::Stop => left.min(LAST_ORDERS),
            GatewayDeparture::HandedOver => left,
        }
    }

    /// Finishes current requests, and accepts no new connections.
    async fn drain(&mut self, departure: GatewayDeparture) {
        let grace = match departure {
            GatewayDeparture::Stop => {
                let grace = self.drain;
                tracing::info!("stopping: no new connections, {grace:?} for requests under way");
                grace
            }
            GatewayDeparture::HandedOver => {
                self.drain_delay + self.drain - linger(self.drain_delay, self.drain)
            }
        };
        // Closed before the accepting tasks end: the last descriptor of a socket closes the socket.
        self.kept.close();
        self.switch.pull(grace);
        let deadline = clock::now() + grace;
        tokio::select! {
            () = finished(&mut self.acceptors, &self.dispatcher) => tracing::info!("stopped: all connections have ended"),
            () = tokio::time::sleep_until(deadline) => {
                match self.dispatcher.open() {
                    1 => tracing::warn!("stopped: 1 connection was cut"),
                    cut => tracing::warn!("stopped: {cut} connections were cut"),
                }
            }
            () = abandoned(&mut self.successor) => {}
            () = self.signals.stop_at_once() => tracing::warn!("{STOPPED_AT_ONCE}"),
        }
    }
}

/// Resolves when this process must end at once, since the process that serves in its place has failed. systemd learns
/// of the failure only when this process, the parent of the other, has ended too. Without systemd this process finishes
/// its current requests.
async fn abandoned(successor: &mut Option<Successor>) {
    if let Some(serving) = successor {
        let (process, how) = (serving.id(), serving.failed().await);
        // One line of the log is enough.
        *successor = None;
        if service_manager::is_there() {
            tracing::error!(
                "process {process}, which took over, has failed ({how}): this one ends at once, for systemd to start the gateway anew"
            );
            return;
        }
        tracing::error!(
            "process {process}, which took over, has failed ({how}): no process accepts connections"
        );
    }
    std::future::pending().await
}

/// The time after a handover in which kept connections stay open for a last request: `drain_delay`, or a few seconds
/// that leave at least half of the time for current requests.
fn linger(drain_delay: Duration, drain: Duration) -> Duration {
    drain_delay.max(LINGER.min(drain / 2))
}

/// Resolves when no connection waits to be accepted and the last one has ended.
async fn finished(acceptors: &mut JoinSet<()>, dispatcher: &Dispatcher) {
    while acceptors.join_next().await.is_some() {}
    closed(dispatcher).await;
}

/// Resolves when no connection is open.
async fn closed(dispatcher: &Dispatcher) {
    while dispatcher.open() > 0 {
        sleep(Duration::from_millis(10)).await;
    }
}

/// A signal's request to a serving gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LifeRequest {
    /// Finish current requests and leave.
    Stop,
    /// Start a successor.
    HandOver,
}

/// Handles signals: a reload is triggered at once, and other requests are kept until the gateway takes them.
#[derive(Debug)]
pub(super) struct SignalDesk {
    signals: Signals,
    reload: reload::Trigger,
    /// Signals to reload so far.
    reloads: u64,
    is_stopped: bool,
    wants_successor: bool,
    /// The gateway leaves without such a signal, since a successor serves: the first signal is no reason to cut
    /// requests.
    is_stop_awaited: bool,
}

impl SignalDesk {
    pub(super) fn new(signals: Signals, reload: reload::Trigger) -> Self {
        Self {
            signals,
            reload,
            reloads: 0,
            is_stopped: false,
            wants_successor: false,
            is_stop_awaited: false,
        }
    }

    /// Did a signal to stop arrive before the gateway served?
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Waits for `event`, or for a signal to stop, which [`Self::next`] then returns.
    pub(super) async fn during(&mut self, event: impl Future<Output = ()>) {
        tokio::select! {
            () = event => {}
            () = self.stop() => self.is_stopped = true,
        }
    }

    /// The next request.
    async fn next(&mut self) -> LifeRequest {
        loop {
            if self.is_stopped {
                return LifeRequest::Stop;
            }
            if std::mem::take(&mut self.wants_successor) {
                return LifeRequest::HandOver;
            }
            self.take_one().await;
        }
    }

    /// Resolves at the next signal to stop. The future may be dropped and created again.
    async fn stop(&mut self) {
        while self.take_one().await != SignalRequest::Stop {}
        self.is_stopped = false;
    }

    /// Is a signal to stop the first one to a gateway that already leaves? Such a signal changes nothing.
    fn is_awaited_stop(&mut self) -> bool {
        let is_awaited = std::mem::take(&mut self.is_stop_awaited);
        if is_awaited {
            tracing::info!(
                "a signal to stop: requests under way here are finished; a second signal ends them"
            );
        }
        is_awaited
    }

    /// Resolves at the signal that ends a stopping gateway at once. The future may be dropped and created again.
    async fn stop_at_once(&mut self) {
        self.stop().await;
        while self.is_awaited_stop() {
            self.stop().await;
        }
    }

    async fn take_one(&mut self) -> SignalRequest {
        let request = self.signals.next().await;
        match request {
            SignalRequest::Stop => self.is_stopped = true,
            SignalRequest::Reload => {
                self.reloads += 1;
                self.reload.pull();
            }
            SignalRequest::HandOver => self.wants_successor = true,
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_time_is_left_for_requests_under_way() {
        let seconds = Duration::from_secs;
        assert_eq!(linger(Duration::ZERO, seconds(30)), seconds(5));
        assert_eq!(linger(Duration::ZERO, seconds(2)), seconds(1));
        assert_eq!(linger(Duration::ZERO, Duration::ZERO), Duration::ZERO);
        assert_eq!(linger(seconds(10), seconds(2)), seconds(10));
    }
}

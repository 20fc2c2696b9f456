//! The servers of an upstream, as used by one worker: one is chosen for each request, and the request is counted.
//!
//! In: a request and the members of its upstream. Out: a server, and a connection to it.
//!
//! ```text
//! choice             which server gets a request
//! rotation           smooth weighted round robin
//! least_requests     fewest requests in flight
//! rendezvous         by a key
//! endpoint           one server as one worker uses it
//! pool               connections that are kept
//! shared_connection  an answer that comes while the request still goes up
//! ```

mod choice;
pub mod endpoint;
mod least_requests;
pub mod pool;
pub mod rendezvous;
mod rotation;
pub mod shared_connection;

use super::rules::ejection::ServerFailure;
use super::rules::recent_clients::WorkerClients;
use super::state::retry_budget::RequestCount;
use super::state::server_queue::{self, Joined, Place};
use super::state::upstream_state::RequestSlot;
use super::transport::connection::Connection;
use super::{ConnectError, OutgoingBody, Purpose, Upstream};
use crate::client::Client;
use crate::clock;
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::{UpstreamMetrics, WorkerMetrics};
use choice::Choices;
use endpoint::{Endpoint, Occupied};
use pool::Pools;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Throttles the log lines about clients that have their half of a queue.
static ONE_CLIENT: Throttle = Throttle::every(Duration::from_secs(10));

/// The servers of an upstream, as one worker uses them.
#[derive(Debug)]
pub struct Balancer<B: OutgoingBody> {
    /// The upstream, with its rules and its state.
    pub upstream: Arc<Upstream>,
    choices: RefCell<Choices<B>>,
    /// The generation of the upstream's state for which the choices were made.
    generation: Cell<u64>,
    pools: Pools<B>,
    worker: WorkerMetrics,
    /// Counts requests for the retry budget.
    requests: Arc<RequestCount>,
    /// Notes the clients of requests, if servers may be ejected.
    clients: Arc<WorkerClients>,
    may_eject: Cell<bool>,
    /// Counts the upstream's connections, answers and failures.
    pub metrics: UpstreamMetrics,
}

/// The choice of a server.
#[derive(Debug)]
pub enum Choice<B: OutgoingBody> {
    /// The server, at which the request counts from now on.
    Server(Occupied<B>),
    /// All usable servers have the most requests that they may have.
    Full,
    /// No server is available, and the file does not let all be tried.
    NoneLeft,
    /// The upstream has no server at the moment.
    NoServer,
}

/// A request that waits for a free server.
#[derive(Debug)]
pub enum Waiting {
    /// A server is free.
    Free(RequestSlot),
    /// A place in the queue.
    Waits(Place<RequestSlot>),
    /// The queue is full.
    Full,
}

/// Servers that have been tried for a request.
pub type TriedServers<B> = SmallVec<[Rc<Endpoint<B>>; 2]>;

impl<B: OutgoingBody> Balancer<B> {
    /// The servers of `upstream`, with their pools among `pools`.
    #[must_use]
    pub fn new(upstream: &Arc<Upstream>, pools: &Pools<B>, metrics: &WorkerMetrics) -> Self {
        let none = Choices::new(upstream.rules.balance, Vec::new(), Vec::new(), false);
        let balancer = Self {
            upstream: Arc::clone(upstream),
            choices: RefCell::new(none),
            generation: Cell::new(0),
            pools: pools.clone(),
            worker: metrics.clone(),
            requests: upstream.state.retries.worker(),
            clients: upstream.state.clients.worker(clock::uptime()),
            may_eject: Cell::new(false),
            metrics: metrics.upstream(&upstream.name),
        };
        balancer.refresh();
        balancer
    }

    /// Counts a request of `client`, and chooses its server by `key`, if the upstream's rule uses keys.
    #[inline]
    pub fn choose(&self, key: Option<u64>, client: impl FnOnce() -> Client) -> Choice<B> {
        self.requests.add();
        if self.upstream.state.generation() != self.generation.get() {
            self.refresh();
        }
        if self.may_eject.get() {
            let seen = self.upstream.state.seen.load(Ordering::Relaxed);
            self.clients.asked(client(), seen);
        }
        let mut choices = self.choices.borrow_mut();
        if choices.are_in_turn()
            && let Some(endpoint) = choices.in_turn()
        {
            return Choice::Server(Occupied::new(Rc::clone(endpoint), None));
        }
        self.choose_of(&mut choices, key)
    }

    #[inline(never)]
    fn choose_of(&self, choices: &mut Choices<B>, key: Option<u64>) -> Choice<B> {
        if choices.len() == 0 {
            return if self.upstream.state.members().is_empty() {
                Choice::NoServer
            } else {
                Choice::NoneLeft
            };
        }
        // Requests that wait come first.
        if choices.is_bounded && !self.upstream.state.queue.is_empty() {
            return Choice::Full;
        }
        self.choose_except(choices, key, &[])
            .map_or(Choice::Full, Choice::Server)
    }

    /// A server other than those that have been `tried`; `None` if there is none, or none is free.
    #[cold]
    #[inline(never)]
    pub fn another(&self, key: Option<u64>, tried: &TriedServers<B>) -> Option<Occupied<B>> {
        if self.upstream.state.generation() != self.generation.get() {
            self.refresh();
        }
        self.choose_except(&mut self.choices.borrow_mut(), key, tried)
    }

    fn choose_except(
        &self,
        choices: &mut Choices<B>,
        key: Option<u64>,
        tried: &[Rc<Endpoint<B>>],
    ) -> Option<Occupied<B>> {
        let mut full: SmallVec<[usize; 8]> = SmallVec::new();
        loop {
            let chosen = choices.choose(key, !tried.is_empty(), |position, endpoint| {
                let is_it = |one: &Rc<Endpoint<B>>| one.is_same(endpoint);
                !full.contains(&position) && !tried.iter().any(is_it)
            })?;
            let endpoint = Rc::clone(&choices.endpoints()[chosen]);
            if !choices.counts() {
                return Some(Occupied::new(endpoint, None));
            }
            match RequestSlot::take(&self.upstream.state, &endpoint.member) {
                Some(slot) => return Some(Occupied::new(endpoint, Some(slot))),
                None => full.push(chosen),
            }
        }
    }

    /// Joins the queue for a request of `client`.
    #[cold]
    #[inline(never)]
    pub fn wait(&self, client: Client) -> Waiting {
        let (name, state) = (&self.upstream.name, &self.upstream.state);
        let most = self.upstream.rules.queue.max as usize;
        match state
            .queue
            .join(most, Some(client), || RequestSlot::any(state))
        {
            Joined::Free(slot) => Waiting::Free(slot),
            Joined::Waits(place) => Waiting::Waits(place),
            Joined::Full => Waiting::Full,
            Joined::FullOfClient => {
                if let Some(more) = ONE_CLIENT.pass() {
                    tracing::warn!(
                        "upstream {name}: client {client} has its half of the queue, {} of {most} places: its further requests get 503{more}",
                        server_queue::share(most)
                    );
                }
                Waiting::Full
            }
        }
    }

    /// The server of a slot that became free; `None` if the upstream no longer has the server.
    #[must_use]
    pub fn occupy(&self, slot: RequestSlot) -> Option<Occupied<B>> {
        if self.upstream.state.generation() != self.generation.get() {
            self.refresh();
        }
        let choices = self.choices.borrow();
        let mut all = choices.endpoints().iter();
        let endpoint = all.find(|one| Arc::ptr_eq(&one.member.state, slot.server()))?;
        Some(Occupied::new(Rc::clone(endpoint), Some(slot)))
    }

    /// Is no server available, so that all are tried?
    #[must_use]
    #[inline]
    pub fn tries_all(&self) -> bool {
        self.choices.borrow().tries_all
    }

    /// Computes the choices for the present members. Members that stay keep their pools.
    #[cold]
    #[inline(never)]
    fn refresh(&self) {
        let (upstream, state) = (&self.upstream, &self.upstream.state);
        // The number is read first, so that a change in between is detected the next time.
        self.generation.set(state.generation());
        let members = state.members();
        let now = clock::uptime();
        self.may_eject
            .set(upstream.rules.eject.is_some() && members.len() > 1);
        let tries_all = !members
            .iter()
            .any(super::state::upstream_state::Member::is_available);
        let mut endpoints = Vec::new();
        let mut shares = Vec::new();
        for member in state.usable(&members) {
            let ramp = upstream.rules.ramp.filter(|_| !tries_all);
            let part = ramp.and_then(|ramp| member.state.health.ramped(ramp, now));
            let share = u64::from(member.share) * part.unwrap_or(1_000) / 1_000;
            shares.push(u32::try_from(share).unwrap_or(u32::MAX).max(1));
            let metrics = self.worker.server(&upstream.name, &member.state.shown);
            endpoints.push(Rc::new(Endpoint::new(
                upstream,
                member,
                &self.pools,
                metrics,
            )));
        }
        let rule = upstream.rules.balance;
        self.choices
            .replace(Choices::new(rule, endpoints, shares, tries_all));
    }

    /// A new connection to `endpoint`. No byte has been sent yet.
    ///
    /// # Errors
    /// If the server accepts none.
    pub async fn connect(
        &self,
        endpoint: &Endpoint<B>,
        purpose: Purpose,
    ) -> Result<Connection<B>, ConnectError> {
        let within = self.upstream.connect_timeout;
        let connection = endpoint.connect(purpose, within).await?;
        if !connection.reused {
            self.metrics.opened();
        }
        Ok(connection)
    }

    /// Notes that a request to `endpoint` that began at `began` has failed because of the server, for the reason `why`.
    /// Its client may have caused the failure.
    #[cold]
    #[inline(never)]
    pub fn failed(&self, endpoint: &Endpoint<B>, why: &str, began: Instant, by: Option<Client>) {
        let failure = ServerFailure {
            why,
            began: uptime_at(began),
            by,
        };
        self.upstream.failed(&endpoint.member, &failure);
    }

    /// Notes that a request to `endpoint` that began at `began` has been answered with `status`; in gRPC perhaps that
    /// the service `is_unavailable`. The request's client was `client`.
    #[inline]
    pub fn answered(
        &self,
        endpoint: &Endpoint<B>,
        status: u16,
        is_unavailable: bool,
        began: Instant,
        client: impl FnOnce() -> Client,
    ) {
        endpoint.metrics.answered(status);
        if matches!(status, 502..=504) {
            return self.failed(endpoint, &status.to_string(), began, Some(client()));
        }
        if is_unavailable {
            return self.failed(endpoint, "grpc-status 14", began, Some(client()));
        }
        let ejection = &endpoint.member.state.health.ejection;
        ejection.succeeded(|| uptime_at(began));
    }

    /// Notes that a request of `client` to `endpoint` that began at `began` has got an invalid answer with `status`,
    /// for the reason `why`.
    #[cold]
    #[inline(never)]
    pub fn invalid(
        &self,
        endpoint: &Endpoint<B>,
        status: u16,
        why: &str,
        began: Instant,
        client: Client,
    ) {
        endpoint.metrics.answered(status);
        self.failed(endpoint, why, began, Some(client));
    }

    /// Is a request retried after an answer with this status, if allowed?
    #[inline]
    #[must_use]
    pub fn repeats_after(&self, status: u16) -> bool {
        let rule = self.upstream.rules.retry.as_ref();
        rule.is_some_and(|rule| rule.on.has_status(status))
    }

    /// The failure of an upstream none of whose servers has an address.
    #[must_use]
    pub fn no_server(&self) -> ConnectError {
        ConnectError::NoServer {
            upstream: Arc::clone(&self.upstream.name),
        }
    }

    /// May a request be retried within the budget? If so, the retry is counted.
    #[must_use]
    pub fn may_repeat(&self, percent: u32) -> bool {
        self.upstream.state.retries.take(percent, clock::uptime())
    }
}

/// An instant in microseconds of this process.
fn uptime_at(at: Instant) -> u64 {
    let since = clock::now().saturating_duration_since(at);
    let since = clock::micros(since);
    clock::uptime().saturating_sub(since)
}

//! Notes about a request's call to a server during the call: its client may leave at any time.

use crate::client::Client;
use crate::proxy::bodies::request_body::RequestBody;
use crate::telemetry::access_log::CallRecord;
use crate::upstream::balance::{Balancer, TriedServers};
use crate::upstream::endpoint::{Endpoint, Occupied};
use crate::upstream::fault::UpstreamFault;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// The notes of one request.
#[derive(Debug, Default)]
pub struct CallNotes {
    /// The address of the request's client.
    address: Option<IpAddr>,
    /// The server of the last attempt.
    server: RefCell<Option<Occupied<RequestBody>>>,
    /// The time of the last attempt.
    asked: Cell<Option<Instant>>,
    attempts: Cell<u32>,
    /// No server was available, and all were tried.
    none_left: Cell<bool>,
    /// Notes that most requests do not have.
    rare: RefCell<Option<Box<RareNotes>>>,
}

#[derive(Debug, Default)]
struct RareNotes {
    retry: Option<&'static str>,
    connect: Option<Duration>,
    queued: Option<Duration>,
    /// The reason why there was no valid answer, in words.
    fault: Option<Rc<str>>,
    /// Servers that were tried before the last one.
    tried: TriedServers<RequestBody>,
}

impl CallNotes {
    /// The notes of a request whose client has this address.
    #[inline]
    pub(in crate::proxy) fn of(address: Option<IpAddr>) -> Self {
        Self {
            address,
            ..Self::default()
        }
    }

    /// The request's client.
    #[inline]
    pub(in crate::proxy) fn client(&self) -> Client {
        Client::of(self.address)
    }

    /// Notes an attempt at `server`, at the time `now`.
    pub(in crate::proxy) fn asks(&self, server: Occupied<RequestBody>, now: Instant) {
        if let Some(before) = self.server.replace(Some(server)) {
            let endpoint = Rc::clone(&before.endpoint);
            self.rare(|rare| rare.tried.push(endpoint));
        }
        self.asked.set(Some(now));
        self.attempts.set(self.attempts.get() + 1);
    }

    /// Notes another attempt at the same server.
    pub(in crate::proxy) fn note_next_call(&self, now: Instant) {
        self.asked.set(Some(now));
        self.attempts.set(self.attempts.get() + 1);
    }

    /// The server of the last attempt.
    pub(in crate::proxy) fn endpoint(&self) -> Option<Rc<Endpoint<RequestBody>>> {
        let server = self.server.borrow();
        server.as_ref().map(|server| Rc::clone(&server.endpoint))
    }

    /// All servers that were tried.
    pub(in crate::proxy) fn tried(&self) -> TriedServers<RequestBody> {
        let rare = self.rare.borrow();
        let before = rare
            .iter()
            .flat_map(|rare| rare.tried.iter().map(Rc::clone));
        before.chain(self.endpoint()).collect()
    }

    /// The time of the last attempt.
    pub(in crate::proxy) fn asked(&self) -> Option<Instant> {
        self.asked.get()
    }

    /// The number of attempts.
    pub(in crate::proxy) fn attempts(&self) -> u32 {
        self.attempts.get()
    }

    /// Notes that the last server has answered with `status`; in gRPC perhaps that its service is unavailable.
    #[inline]
    pub(in crate::proxy) fn answered(
        &self,
        balancer: &Balancer<RequestBody>,
        status: u16,
        is_unavailable: bool,
    ) {
        if let (Some(server), Some(asked)) = (&*self.server.borrow(), self.asked.get()) {
            let client = || self.client();
            balancer.answered(&server.endpoint, status, is_unavailable, asked, client);
        }
    }

    /// Notes that the last server has answered with `status`, which has no significance for the server.
    #[cold]
    pub(in crate::proxy) fn excused(&self, status: u16) {
        if let Some(server) = &*self.server.borrow() {
            server.endpoint.excused(status);
        }
    }

    /// Notes that the answer is over: the server is free for another request.
    #[inline]
    pub(in crate::proxy) fn leave(&self) {
        if let Some(server) = &mut *self.server.borrow_mut() {
            server.leave();
        }
    }

    /// Notes that all servers are tried, since none was available.
    pub(in crate::proxy) fn note_none_left(&self) {
        self.none_left.set(true);
    }

    /// Were all servers tried, since none was available?
    pub(in crate::proxy) fn is_none_left(&self) -> bool {
        self.none_left.get()
    }

    /// Notes that the request is sent once more after `cause`, or would be within the budget.
    pub(in crate::proxy) fn note_retry(&self, cause: &'static str) {
        self.rare(|rare| rare.retry = Some(cause));
    }

    /// Notes that a connection was opened within `time`.
    pub(in crate::proxy) fn note_connect(&self, time: Duration) {
        self.rare(|rare| rare.connect = Some(time));
    }

    /// Notes that the request has waited for a server.
    pub(in crate::proxy) fn note_queued(&self, time: Duration) {
        self.rare(|rare| rare.queued = Some(time));
    }

    /// Notes that the last server has given no valid answer: for the log, and for the request's line.
    #[cold]
    pub(in crate::proxy) fn note_fault(&self, fault: &UpstreamFault<'_>) {
        if let Some(endpoint) = self.endpoint() {
            endpoint.pool.note_fault(fault);
        }
        self.rare(|rare| rare.fault = Some(fault.words.as_str().into()));
    }

    /// The reason why there was no valid answer, in words.
    pub(in crate::proxy) fn fault(&self) -> Option<Rc<str>> {
        self.rare.borrow().as_ref()?.fault.clone()
    }

    #[cold]
    fn rare(&self, note: impl FnOnce(&mut RareNotes)) {
        note(self.rare.borrow_mut().get_or_insert_default());
    }

    /// The notes for the log.
    pub(in crate::proxy) fn record(&self) -> CallRecord {
        let rare = self.rare.borrow();
        let rare = rare.as_ref();
        CallRecord {
            attempts: self.attempts.get(),
            retry: rare.and_then(|rare| rare.retry),
            connect: rare.and_then(|rare| rare.connect),
            queued: rare.and_then(|rare| rare.queued),
        }
    }
}

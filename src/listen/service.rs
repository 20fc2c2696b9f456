//! The life of each socket at its worker: from the dispatcher's command through the arrival, if there is one, to the
//! protocol.

use super::accept::dispatch::{NewConnection, WorkerTask};
use super::arrival::{Arrivals, PeerKind};
use super::connection::handler::Handler;
use super::socket::Stream;
use super::{ListenSettings, Peer, connection};
use crate::descriptors::DescriptorShare;
use crate::telemetry::metrics::WorkerMetrics;
use std::rc::Rc;
use tokio::time::Instant;

/// The parts of one worker that serve its connections.
#[derive(Debug)]
pub struct ConnectionService<A> {
    /// Answers the requests.
    pub handler: Rc<A>,
    /// The parts that the arrival of connections needs.
    pub arrivals: Arrivals,
    /// The bounds on connections and on their slowness.
    pub settings: ListenSettings,
    /// The worker's share of the descriptors that are not used for clients.
    pub descriptors: DescriptorShare,
    /// The worker's cells of the metrics.
    pub metrics: WorkerMetrics,
    /// The worker's number.
    pub index: usize,
}

impl<A: Handler> ConnectionService<A> {
    /// Executes the dispatcher's command.
    pub fn obey(self: &Rc<Self>, task: WorkerTask) {
        let Arrivals {
            dispatcher,
            register,
            ..
        } = &self.arrivals;
        match task {
            WorkerTask::Serve(new) => {
                if let Some(new) = dispatcher.evict_for(new, self.index, register) {
                    self.take(new);
                }
            }
            WorkerTask::Evict(request) => request.obey(register),
        }
    }

    /// Starts a task that serves the connection: at once in clear text, else after its arrival.
    fn take(self: &Rc<Self>, new: NewConnection) {
        let (bound, share) = (self.settings.rate_bound(), self.descriptors.clone());
        let Ok(stream) = Stream::new(new.tcp, new.from.is_some(), bound, share) else {
            return;
        };
        let is_encrypted = new.facts.offer.is_some();
        let registration = self.arrivals.enter(new.from);
        let connected = self.metrics.connected();
        let peer = Peer::new(
            new.from,
            &stream,
            registration,
            new.open,
            connected,
            new.facts,
        );
        let (service, peer) = (Rc::clone(self), Rc::new(peer));
        if new.is_proxied || is_encrypted {
            let proxied = new.is_proxied;
            let kind = PeerKind::of(new.is_trusted);
            tokio::task::spawn_local(service.arrive(stream, peer, proxied, kind, new.since));
        } else {
            // The future is spawned separately: the many connections that arrive at once need no room for it.
            tokio::task::spawn_local(service.serve(stream, peer));
        }
    }

    /// Reads the client's name from a `proxied` connection, makes the TLS handshake if the listener has TLS, and serves
    /// the connection. The futures of both steps are boxed, so that the connection needs no room for them afterwards.
    async fn arrive(
        self: Rc<Self>,
        mut stream: Stream,
        mut peer: Rc<Peer>,
        proxied: bool,
        mut kind: PeerKind,
        since: Instant,
    ) {
        if proxied {
            // So far only this task has the peer. A peer that could not be named would count as the proxy.
            let Some(unnamed) = Rc::get_mut(&mut peer) else {
                return;
            };
            let naming = self.arrivals.named(&mut stream, unnamed, kind, since);
            let Some(named) = Box::pin(naming).await else {
                return;
            };
            kind = named;
        }
        let encrypting = self.arrivals.encrypted(&mut stream, &peer, kind, since);
        if Box::pin(encrypting).await {
            self.serve(stream, peer).await;
        }
    }

    /// Serves a connection that has arrived.
    async fn serve(self: Rc<Self>, stream: Stream, peer: Rc<Peer>) {
        let handler = Rc::clone(&self.handler);
        connection::serve(stream, peer, handler, &self.settings).await;
    }
}

//! Accepting of connections, on the listeners of the file and on the admin listener.

use super::banner::OpenAddress;
use super::sockets::OpenedSocket;
use super::tls_listeners::TlsListeners;
use crate::admin::{self, AdminState};
use crate::config::Boot;
use crate::listen::accept::{KnownPeer, ListenerFacts, ListeningSocket, PeerTrust};
use crate::listen::bind::AcceptSocket;
use crate::listen::dispatch::Dispatcher;
use crate::listen::listener::ListenAddress;
use crate::shutdown::Drain;
use crate::snapshot::Snapshot;
use arc_swap::ArcSwap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The parts that accepting needs, on any listener.
pub(super) struct Accepting<'a> {
    pub(super) tls: &'a TlsListeners,
    pub(super) dispatcher: &'a Arc<Dispatcher>,
    pub(super) peers: Arc<dyn PeerTrust>,
    pub(super) drain: &'a Drain,
}

impl Accepting<'_> {
    /// Accepts connections on the sockets of each listener. Returns the tasks, and the listeners' addresses.
    pub(super) fn start(
        &self,
        boot: &Boot,
        sockets: Vec<Vec<OpenedSocket>>,
    ) -> io::Result<(JoinSet<()>, Vec<OpenAddress>)> {
        let mut acceptors = JoinSet::new();
        let mut addresses = Vec::new();
        for (listener, sockets) in boot.listen.listeners.iter().zip(sockets) {
            for opened in sockets {
                addresses.push(OpenAddress {
                    address: shown(&opened.socket, &listener.address)?,
                    families: opened.socket.families()?,
                    has_tls: listener.tls.is_some(),
                    redirects: listener.redirects,
                });
                let listening = ListeningSocket {
                    socket: opened.socket.register()?,
                    facts: ListenerFacts {
                        offer: self.tls.offer(&listener.address),
                        listener: listener.clone(),
                    },
                    taken_over: opened.taken_over,
                    given_up: opened.given_up,
                };
                let (dispatcher, peers) = (Arc::clone(self.dispatcher), Arc::clone(&self.peers));
                acceptors.spawn(listening.accept(dispatcher, peers, self.drain.clone()));
            }
        }
        Ok((acceptors, addresses))
    }
}

/// Serves the admin listener once `may_serve` becomes true. Returns its addresses.
pub(super) fn start_admin(
    boot: &Boot,
    sockets: Vec<Vec<OpenedSocket>>,
    state: &AdminState,
    may_serve: &watch::Receiver<bool>,
) -> io::Result<Vec<ListenAddress>> {
    let Some(settings) = &boot.admin else {
        return Ok(Vec::new());
    };
    let start = |(written, opened): (&ListenAddress, OpenedSocket)| {
        let address = shown(&opened.socket, written)?;
        let socket = opened.socket.register()?;
        let (state, mut may_serve) = (state.clone(), may_serve.clone());
        tokio::spawn(async move {
            // A gateway that fails before it serves drops the sender.
            if may_serve.wait_for(|may| *may).await.is_ok() {
                // The admin listener answers to the end, so that draining can be watched, or until a successor answers.
                admin::serve(socket, state, opened.taken_over.notified()).await;
            }
        });
        Ok(address)
    };
    let of_address = settings.listen.iter().zip(sockets);
    let all = of_address
        .flat_map(|(written, sockets)| sockets.into_iter().map(move |one| (written, one)));
    all.map(start).collect()
}

/// The trust of peers by `trust` of the current snapshot.
impl PeerTrust for ArcSwap<Snapshot> {
    fn known(&self, from: Option<SocketAddr>) -> KnownPeer {
        let trust = &self.load().trust;
        let counted = |from: SocketAddr| SocketAddr::new(trust.counted(from.ip()), from.port());
        let from = from.map(counted);
        KnownPeer {
            from,
            is_trusted: trust.trusts(from.map(|from| from.ip())),
        }
    }
}

/// The address of a socket, with the port that the system has chosen if the file left it open.
fn shown(socket: &AcceptSocket, written: &ListenAddress) -> io::Result<ListenAddress> {
    Ok(match (socket.address()?, written) {
        (Some(bound), ListenAddress::EveryAddress(_)) => ListenAddress::EveryAddress(bound.port()),
        (Some(bound), _) => ListenAddress::Tcp(bound),
        (None, written) => written.clone(),
    })
}

//! Connections to one server, kept by one worker: taken and put back without a lock, last in first out.

use super::connection::Connection;
use super::http1::ReadBuffers;
use super::reachability::Reachability;
use super::connection_bound::{ConnectionBound, ConnectionPermit};
use super::open_socket::OpenSocket;
use super::{ConnectError, Destination, OfferedProtocols, OutgoingBody, dial};
use crate::clock;
use crate::descriptors::DescriptorShare;
use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Idle connections kept for one server by one worker.
const MOST_IDLE: usize = 512;

/// All pools of one worker. They outlive reloads: a pool belongs to a destination, not to a name in the file. Clones
/// share one value.
#[derive(Debug)]
pub struct Pools<B: OutgoingBody>(Rc<AllPools<B>>);

#[derive(Debug)]
struct AllPools<B: OutgoingBody> {
    pools: RefCell<HashMap<PoolKey, Rc<Pool<B>>>>,
    share: DescriptorShare,
    buffers: Rc<ReadBuffers>,
}

/// What tells pools apart: the destination, and where its connections have a bound, the bound.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PoolKey {
    destination: Destination,
    bound: Option<usize>,
}

/// Connections of one worker to one server.
#[derive(Debug)]
pub struct Pool<B: OutgoingBody> {
    destination: Destination,
    reachability: Arc<Reachability>,
    /// The bound on the server's connections, where there is one.
    bound: Option<Arc<ConnectionBound>>,
    idle: RefCell<Vec<Connection<B>>>,
    share: DescriptorShare,
    buffers: Rc<ReadBuffers>,
}

impl<B: OutgoingBody> Clone for Pools<B> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<B: OutgoingBody> Pools<B> {
    /// No pool yet; the descriptors of their connections are counted in `share`.
    #[must_use]
    pub fn new(share: DescriptorShare) -> Self {
        Self(Rc::new(AllPools {
            pools: RefCell::default(),
            share,
            buffers: Rc::default(),
        }))
    }

    /// Closes one idle connection, for its descriptor. False when there is none.
    #[must_use]
    pub fn close_idle(&self) -> bool {
        let pools = self.0.pools.borrow();
        let mut idle = pools.values().map(|pool| pool.idle.borrow_mut());
        let closed = idle.find_map(|mut idle| (!idle.is_empty()).then(|| idle.remove(0)));
        closed.is_some()
    }

    /// The pool of `destination`, made if need be; one of its own where `bound` bounds the connections.
    pub fn of(&self, destination: &Destination, bound: &Arc<ConnectionBound>) -> Rc<Pool<B>> {
        let bound = bound.is_set().then(|| Arc::clone(bound));
        let key = PoolKey {
            destination: destination.clone(),
            bound: bound.as_ref().map(|bound| Arc::as_ptr(bound).addr()),
        };
        let mut pools = self.0.pools.borrow_mut();
        let pool = pools.entry(key).or_insert_with(|| {
            let pool = Rc::new(Pool {
                destination: destination.clone(),
                reachability: Reachability::of(destination),
                bound: bound.clone(),
                idle: RefCell::new(Vec::new()),
                share: self.0.share.clone(),
                buffers: Rc::clone(&self.0.buffers),
            });
            if let Some(bound) = bound {
                tokio::task::spawn_local(give_way(Rc::downgrade(&pool), bound));
            }
            pool
        });
        Rc::clone(pool)
    }

    /// Closes idle connections that are old, and drops pools that are no longer used. The call comes once a second.
    pub fn sweep(&self) {
        self.0.pools.borrow_mut().retain(|_, pool| {
            pool.sweep();
            Rc::strong_count(pool) > 1 || !pool.idle.borrow().is_empty()
        });
    }
}

impl<B: OutgoingBody> Pool<B> {
    /// The destination of the pool's connections.
    #[must_use]
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The idle connection that was put back last, among those that the server has promised to keep until after `now`.
    #[must_use]
    pub fn take(&self, now: Instant) -> Option<Connection<B>> {
        // A connection that its server has closed in the meantime shows this when a request is sent: no byte goes out
        // on it, and the request comes back whole.
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            if connection.is_kept(now) {
                connection.reused = true;
                return Some(connection);
            }
        }
    }

    /// An idle connection that its server has not closed, as far as the system knows.
    #[must_use]
    pub fn take_open(&self) -> Option<Connection<B>> {
        loop {
            let mut connection = self.take(clock::now())?;
            if connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// A new connection, within `deadline`. The log has a line for the first failure of a server, and one for the
    /// server's return.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn connect(&self, deadline: Duration) -> Result<Connection<B>, ConnectError> {
        let made = self.try_connect(deadline).await;
        match &made {
            Ok(_) => self.reachability.connected(),
            Err(error) => self.reachability.connect_failed(error),
        }
        made
    }

    async fn try_connect(&self, deadline: Duration) -> Result<Connection<B>, ConnectError> {
        let permit = match &self.bound {
            Some(bound) => Some(self.permit(bound, deadline).await?),
            None => None,
        };
        let socket = OpenSocket::new(self.share.take(), permit);
        let opened = dial::open(&self.destination, OfferedProtocols::Http1, deadline).await?;
        let buffers = Rc::clone(&self.buffers);
        Ok(Connection::new(opened.stream, socket, buffers))
    }

    /// The right to one more connection.
    async fn permit(
        &self,
        bound: &Arc<ConnectionBound>,
        deadline: Duration,
    ) -> Result<ConnectionPermit, ConnectError> {
        let permit = timeout(deadline, bound.permit()).await;
        permit.map_err(|_| ConnectError::Busy {
            server: self.destination.to_string().into(),
        })
    }

    /// Puts a connection back whose exchange is over, if it can carry another and no other worker waits for its place.
    pub fn put(&self, mut connection: Connection<B>) {
        if !connection.rest() || self.bound.as_ref().is_some_and(|bound| bound.gives_way()) {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }

    fn sweep(&self) {
        self.reachability.log_return(&self.destination);
        let now = clock::now();
        self.idle
            .borrow_mut()
            .retain_mut(|connection| connection.is_kept(now) && connection.is_usable());
    }
}

/// Closes resting connections of a pool while other workers wait for their places, as long as the pool is there.
async fn give_way<B: OutgoingBody>(pool: Weak<Pool<B>>, bound: Arc<ConnectionBound>) {
    /// The time after which it is looked whether the pool is still there.
    const LOOK: Duration = Duration::from_secs(10);
    loop {
        let mut wanted = pin!(bound.wanted().notified());
        // Who waits from here on is heard of.
        wanted.as_mut().enable();
        let Some(pool) = pool.upgrade() else { return };
        while !pool.idle.borrow().is_empty() && bound.gives_way() {
            drop(pool.idle.borrow_mut().remove(0));
        }
        drop(pool);
        let _ = timeout(LOOK, wanted).await;
    }
}

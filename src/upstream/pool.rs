//! Connections to one server, kept by one worker: taken and put back without a lock, last in first out.

use super::connection::Connection;
use super::http1::ReadBuffers;
use super::reachability::Reachability;
use super::stream::{self, ConnectError};
use super::{OutgoingBody, Server};
use crate::clock;
use crate::descriptors::DescriptorShare;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Idle connections kept for one server by one worker.
const MOST_IDLE: usize = 512;

/// All pools of one worker. They outlive reloads: a pool belongs to a server's address, not to a name in the file.
#[derive(Debug)]
pub struct Pools<B: OutgoingBody> {
    pools: RefCell<HashMap<Server, Rc<Pool<B>>>>,
    share: DescriptorShare,
    buffers: Rc<ReadBuffers>,
}

/// Connections of one worker to one server.
#[derive(Debug)]
pub struct Pool<B: OutgoingBody> {
    server: Server,
    reachability: Arc<Reachability>,
    idle: RefCell<Vec<Connection<B>>>,
    share: DescriptorShare,
    buffers: Rc<ReadBuffers>,
}

impl<B: OutgoingBody> Pools<B> {
    /// No pool yet; the descriptors of their connections are counted in `share`.
    #[must_use]
    pub fn new(share: DescriptorShare) -> Self {
        Self {
            pools: RefCell::default(),
            share,
            buffers: Rc::default(),
        }
    }

    /// Closes one idle connection, for its descriptor. False when there is none.
    #[must_use]
    pub fn close_idle(&self) -> bool {
        let pools = self.pools.borrow();
        let mut idle = pools.values().map(|pool| pool.idle.borrow_mut());
        let closed = idle.find_map(|mut idle| (!idle.is_empty()).then(|| idle.remove(0)));
        closed.is_some()
    }

    /// The pool of `server`, made if need be.
    pub fn of(&self, server: &Server) -> Rc<Pool<B>> {
        let mut pools = self.pools.borrow_mut();
        let pool = pools.entry(server.clone()).or_insert_with(|| {
            Rc::new(Pool {
                server: server.clone(),
                reachability: Reachability::of(server),
                idle: RefCell::new(Vec::new()),
                share: self.share.clone(),
                buffers: Rc::clone(&self.buffers),
            })
        });
        Rc::clone(pool)
    }

    /// Closes idle connections that are old, and drops pools that are no longer used. The call comes once a second.
    pub fn sweep(&self) {
        self.pools.borrow_mut().retain(|_, pool| {
            pool.sweep();
            Rc::strong_count(pool) > 1 || !pool.idle.borrow().is_empty()
        });
    }
}

impl<B: OutgoingBody> Pool<B> {
    /// The server of the pool's connections.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
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
        let descriptor = self.share.take();
        let stream = timeout(deadline, stream::open(&self.server))
            .await
            .map_err(|_| ConnectError::Timeout {
                server: self.server.clone(),
                after: deadline,
            })?
            .map_err(|source| ConnectError::Io {
                server: self.server.clone(),
                source,
            })?;
        let buffers = Rc::clone(&self.buffers);
        Ok(Connection::new(stream, descriptor, buffers))
    }

    /// Puts a connection back whose exchange is over, if it can carry another.
    pub fn put(&self, mut connection: Connection<B>) {
        if !connection.rest() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }

    fn sweep(&self) {
        self.reachability.log_return(&self.server);
        let now = clock::now();
        self.idle
            .borrow_mut()
            .retain_mut(|connection| connection.is_kept(now) && connection.is_usable());
    }
}

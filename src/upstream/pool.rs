//! Connections to one server, kept by one worker: taken and put back without a lock, last in first out.

use super::connection::Connection;
use super::driver::Driver;
use super::reachability::Reachability;
use super::recorder::{Recorder, WriteProgress};
use super::stream::{self, ConnectError};
use super::{OutgoingBody, Server};
use crate::clock;
use crate::descriptors::DescriptorShare;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
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
}

/// Connections of one worker to one server.
#[derive(Debug)]
pub struct Pool<B: OutgoingBody> {
    server: Server,
    reachability: Arc<Reachability>,
    idle: RefCell<Vec<Connection<B>>>,
    share: DescriptorShare,
}

impl<B: OutgoingBody> Pools<B> {
    /// No pool yet; the descriptors of their connections are counted in `share`.
    #[must_use]
    pub fn new(share: DescriptorShare) -> Self {
        Self {
            pools: RefCell::default(),
            share,
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
        let progress = Arc::<WriteProgress>::default();
        let stream = Recorder::new(stream, Arc::clone(&progress), descriptor);
        let (sender, connection) = http1::Builder::new()
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| ConnectError::Handshake {
                server: self.server.clone(),
                source,
            })?;
        Ok(Connection::new(sender, Driver::new(connection, progress)))
    }

    /// Puts a connection back whose exchange is over, if it can carry another.
    pub fn put(&self, connection: Connection<B>) {
        if !connection.rest() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }

    /// Finishes a request's body after its answer, in a task of its own. The body must not wait until the answer is
    /// read, nor be cut off by the answer's end. The connection is put back when both are complete.
    ///
    /// The connection is given up when its server has taken none of the bytes that wait to be written for `idle`, or
    /// when `abandoned` resolves.
    pub fn finish_upload(
        self: Rc<Self>,
        mut connection: Connection<B>,
        idle: Duration,
        abandoned: impl Future<Output = ()> + 'static,
    ) {
        let Some(stall) = connection.write_stall(idle) else {
            return;
        };
        tokio::task::spawn_local(async move {
            tokio::select! {
                free = poll_fn(|cx| connection.poll_free(cx)) => {
                    if free {
                        self.put(connection);
                    }
                }
                () = stall => {}
                () = abandoned => {}
            }
        });
    }

    fn sweep(&self) {
        self.reachability.log_return(&self.server);
        let now = clock::now();
        self.idle
            .borrow_mut()
            .retain_mut(|connection| connection.is_kept(now) && connection.is_usable());
    }
}

//! Connections to one server, kept by one worker: taken and put back without a lock, last in first out.

use super::connection::Connection;
use super::driver::Driver;
use super::reachability::Reachability;
use super::recorder::{Recorder, WriteProgress};
use super::{Server, demo};
use crate::descriptors::DescriptorShare;
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error as StdError;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Idle connections kept for one server by one worker.
const MOST_IDLE: usize = 512;

/// All pools of one worker. They outlive reloads: a pool belongs to a server's address, not to a name in the file.
#[derive(Debug)]
pub struct Pools<B: Body + 'static> {
    pools: RefCell<HashMap<Server, Rc<Pool<B>>>>,
    share: DescriptorShare,
}

/// Connections of one worker to one server.
#[derive(Debug)]
pub struct Pool<B: Body + 'static> {
    server: Server,
    reachability: Arc<Reachability>,
    idle: RefCell<Vec<Connection<B>>>,
    share: DescriptorShare,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address could not be found or reached.
    #[error("cannot connect to {server}")]
    Io {
        /// Where to.
        server: Server,
        /// What the system said.
        source: std::io::Error,
    },
    /// Nobody answered in time.
    #[error("no connection to {server} within {after:?}")]
    Timeout {
        /// Where to.
        server: Server,
        /// How long it was tried.
        after: Duration,
    },
    /// The connection was made and lost at once.
    #[error("connection to {server} lost at once")]
    Handshake {
        /// Where to.
        server: Server,
        /// What hyper said.
        source: hyper::Error,
    },
}

impl ConnectError {
    /// The whole of it in one sentence, with what the system said.
    #[must_use]
    pub fn in_full(&self) -> String {
        match self.source() {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

impl<B> Pools<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    /// No pool yet; what their connections take is counted in `share`.
    #[must_use]
    pub fn new(share: DescriptorShare) -> Self {
        Self {
            pools: RefCell::default(),
            share,
        }
    }

    /// Lets go of one idle connection, for its descriptor. False when there is none.
    #[must_use]
    pub fn close_idle(&self) -> bool {
        let pools = self.pools.borrow();
        let mut idle = pools.values().map(|pool| pool.idle.borrow_mut());
        let one = idle.find_map(|mut idle| (!idle.is_empty()).then(|| idle.remove(0)));
        one.is_some()
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

    /// Lets go of idle connections that are old, and of pools that nobody uses any more. To be called once a second.
    pub fn sweep(&self) {
        self.pools.borrow_mut().retain(|_, pool| {
            pool.sweep();
            Rc::strong_count(pool) > 1 || !pool.idle.borrow().is_empty()
        });
    }
}

impl<B> Pool<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    /// Where its connections lead.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// An idle connection, the freshest one that its server has promised to keep until after `now`.
    #[must_use]
    pub fn take(&self, now: Instant) -> Option<Connection<B>> {
        // One that its server has closed meanwhile is found out by sending: nothing goes out on it, and the request comes
        // back whole.
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            if connection.is_kept(now) {
                connection.reused = true;
                return Some(connection);
            }
        }
    }

    /// An idle connection that its server has not closed, as far as can be known.
    #[must_use]
    pub fn take_open(&self) -> Option<Connection<B>> {
        loop {
            let mut connection = self.take(Instant::now())?;
            if connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// A new connection, within `deadline`. The log hears of the first that fails, and of the first after it that does not.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn connect(&self, deadline: Duration) -> Result<Connection<B>, ConnectError> {
        let made = self.try_connect(deadline).await;
        match &made {
            Ok(_) => self.reachability.takes(),
            Err(error) => self.reachability.fails(error),
        }
        made
    }

    async fn try_connect(&self, deadline: Duration) -> Result<Connection<B>, ConnectError> {
        let descriptor = self.share.take();
        let stream = timeout(deadline, self.open())
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
        let (sender, connection) = http1::Builder::new()
            .handshake(TokioIo::new(Recorder::new(
                stream,
                Arc::clone(&progress),
                descriptor,
            )))
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

    fn sweep(&self) {
        self.reachability.look(&self.server);
        let now = Instant::now();
        self.idle
            .borrow_mut()
            .retain_mut(|connection| connection.is_kept(now) && connection.is_usable());
    }

    async fn open(&self) -> std::io::Result<TcpStream> {
        let stream = match &self.server {
            Server::Http { host, port } => TcpStream::connect((&**host, *port)).await?,
            Server::Demo => TcpStream::connect(demo::address()?).await?,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

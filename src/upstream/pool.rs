//! Connections to one server, kept by one worker: taken and put back without a lock, last in first out.

use super::{Server, demo};
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error as StdError;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Idle connections are kept this long: below the shortest common keep-alive of servers (5 s), so that the server is
/// not the one to close.
const IDLE: Duration = Duration::from_secs(4);
/// Idle connections kept for one server by one worker.
const MOST_IDLE: usize = 512;
/// How long a used connection may take to become ready again before it is let go.
const SETTLE: Duration = Duration::from_secs(1);

/// All pools of one worker. They outlive reloads: a pool belongs to a server's address, not to a name in the file.
#[derive(Debug)]
pub struct Pools<B> {
    pools: RefCell<HashMap<Server, Rc<Pool<B>>>>,
}

/// Connections of one worker to one server.
#[derive(Debug)]
pub struct Pool<B> {
    server: Server,
    idle: RefCell<Vec<Idle<B>>>,
    opened: Cell<u64>,
}

#[derive(Debug)]
struct Idle<B> {
    sender: SendRequest<B>,
    since: Instant,
}

/// A connection to send one request on.
#[derive(Debug)]
pub struct Connection<B> {
    sender: SendRequest<B>,
    /// Has carried an exchange before: its server may be closing it at this very moment.
    pub reused: bool,
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

impl<B> Default for Pools<B> {
    fn default() -> Self {
        Self {
            pools: RefCell::new(HashMap::new()),
        }
    }
}

impl<B> Pools<B> {
    /// The pool of `server`, made if need be.
    pub fn of(&self, server: &Server) -> Rc<Pool<B>> {
        let mut pools = self.pools.borrow_mut();
        let pool = pools.entry(server.clone()).or_insert_with(|| {
            Rc::new(Pool {
                server: server.clone(),
                idle: RefCell::new(Vec::new()),
                opened: Cell::new(0),
            })
        });
        Rc::clone(pool)
    }

    /// Lets go of idle connections that are old, and of pools that nobody uses any more.
    pub fn sweep(&self) {
        self.pools.borrow_mut().retain(|_, pool| {
            pool.sweep();
            Rc::strong_count(pool) > 1 || !pool.idle.borrow().is_empty()
        });
    }
}

impl<B> Pool<B> {
    /// Where its connections lead.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// How many connections have been opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened.get()
    }

    fn sweep(&self) {
        let now = Instant::now();
        self.idle
            .borrow_mut()
            .retain(|idle| !idle.sender.is_closed() && now.duration_since(idle.since) < IDLE);
    }
}

impl<B> Pool<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    /// An idle connection, the freshest one.
    #[must_use]
    pub fn take(&self) -> Option<Connection<B>> {
        let mut idle = self.idle.borrow_mut();
        let now = Instant::now();
        while let Some(last) = idle.pop() {
            if now.duration_since(last.since) >= IDLE {
                // The others below it are older still.
                idle.clear();
                return None;
            }
            if last.sender.is_ready() {
                return Some(Connection {
                    sender: last.sender,
                    reused: true,
                });
            }
        }
        None
    }

    /// A new connection, within `deadline`.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn connect(&self, deadline: Duration) -> Result<Connection<B>, ConnectError> {
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
        let (sender, connection) = http1::Builder::new()
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| ConnectError::Handshake {
                server: self.server.clone(),
                source,
            })?;
        // Its errors reach whoever waits for an answer on it; an idle one may fail unseen.
        tokio::task::spawn_local(async move {
            let _ = connection.with_upgrades().await;
        });
        self.opened.set(self.opened.get() + 1);
        Ok(Connection {
            sender,
            reused: false,
        })
    }

    /// Puts a connection back whose exchange is over.
    pub fn put(self: &Rc<Self>, connection: Connection<B>) {
        let mut sender = connection.sender;
        if sender.is_ready() {
            self.keep(sender);
            return;
        }
        if sender.is_closed() {
            return;
        }
        // The last byte has been read but hyper has not yet turned round: wait aside.
        let pool = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Ok(Ok(())) = timeout(SETTLE, sender.ready()).await {
                pool.keep(sender);
            }
        });
    }

    fn keep(&self, sender: SendRequest<B>) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MOST_IDLE {
            idle.push(Idle {
                sender,
                since: Instant::now(),
            });
        }
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

/// What became of a request that was not answered.
#[derive(Debug)]
pub struct Unanswered<B> {
    /// What hyper said.
    pub error: hyper::Error,
    /// The request, if none of it was sent.
    pub unsent: Option<Request<B>>,
}

impl<B: Body + 'static> Connection<B> {
    /// Sends one request and waits for the head of the answer.
    ///
    /// # Errors
    /// When the connection ends before an answer.
    pub fn send(
        &mut self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Incoming>, Unanswered<B>>> + use<B> {
        // Not an async function: that would keep the request in its state although hyper has taken it.
        let answering = self.sender.try_send_request(request);
        async move {
            answering.await.map_err(|mut failed| Unanswered {
                unsent: failed.take_message(),
                error: failed.into_error(),
            })
        }
    }
}

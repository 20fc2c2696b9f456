//! Connections to one server, kept by one worker: taken and returned without a lock, last in first out.

use crate::clock;
use crate::descriptors::DescriptorShare;
use crate::upstream::dial::open_socket::OpenSocket;
use crate::upstream::dial::stream::ServerStream;
use crate::upstream::dial::{self, OpenedStream};
use crate::upstream::failure::fault::UpstreamFault;
use crate::upstream::failure::reachability::Reachability;
use crate::upstream::state::connection_bound::{ConnectionBound, ConnectionPermit};
use crate::upstream::transport::connection::{Connection, is_repeatable, room_of};
use crate::upstream::transport::http1::ReadBuffers;
use crate::upstream::transport::http2::connection::{H2Origin, Http2Connection, OpenStream};
use crate::upstream::transport::http2::send_window::ENOUGH;
use crate::upstream::transport::http2::stream_pool::StreamPool;
use crate::upstream::{
    ConnectError, Destination, OfferedProtocols, OutgoingBody, Purpose, ServerProtocol,
};
use http::{HeaderValue, Request};
use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

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

/// The identity of a pool: the destination, and the bound if its connections have one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PoolKey {
    destination: Destination,
    bound: Option<usize>,
}

/// Connections of one worker to one server.
#[derive(Debug)]
pub struct Pool<B: OutgoingBody> {
    destination: Destination,
    /// The host of requests that name the server itself; `None` if the URL gives no valid field value.
    host: Option<HeaderValue>,
    reachability: Arc<Reachability>,
    /// The bound on the server's connections, if there is one.
    bound: Option<Arc<ConnectionBound>>,
    idle: RefCell<Vec<Connection<B>>>,
    /// The connections of HTTP/2, if the server may use it.
    http2: Option<Box<StreamPool>>,
    share: DescriptorShare,
    buffers: Rc<ReadBuffers>,
}

/// An opened connection, by the protocol that the server has chosen.
enum OpenedConnection<B: OutgoingBody> {
    Http1(Box<Connection<B>>),
    Http2(Rc<Http2Connection>),
}

impl<B: OutgoingBody> Clone for Pools<B> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<B: OutgoingBody> Pools<B> {
    /// An empty set of pools; the descriptors of their connections are counted in `share`.
    #[must_use]
    pub fn new(share: DescriptorShare) -> Self {
        Self(Rc::new(AllPools {
            pools: RefCell::default(),
            share,
            buffers: Rc::default(),
        }))
    }

    /// Closes one idle connection to free its descriptor. Returns false if there is none.
    #[must_use]
    pub fn close_idle(&self) -> bool {
        let pools = self.0.pools.borrow();
        let mut idle = pools.values().map(|pool| pool.idle.borrow_mut());
        let closed = idle.find_map(|mut idle| (!idle.is_empty()).then(|| idle.remove(0)));
        let mut http2 = pools.values().filter_map(|pool| pool.http2.as_ref());
        closed.is_some() || http2.any(|http2| http2.close_idle())
    }

    /// The pool of `destination`, created if needed; a separate one if `bound` bounds the connections.
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
                host: HeaderValue::try_from(destination.url.host()).ok(),
                reachability: Reachability::of(destination),
                bound: bound.clone(),
                idle: RefCell::new(Vec::new()),
                http2: (destination.protocol != ServerProtocol::Http1).then(Box::default),
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

    /// Closes idle connections that are old, and drops pools that are no longer used. Called once a second.
    pub fn sweep(&self) {
        self.0.pools.borrow_mut().retain(|_, pool| {
            pool.sweep();
            // Connections of HTTP/2 of a dropped pool end with their last stream.
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

    /// The host of requests that name the server itself.
    #[must_use]
    pub fn host(&self) -> Option<&HeaderValue> {
        self.host.as_ref()
    }

    /// Does the server owe an answer over HTTP/1.1 on `connection`? A destination that uses only HTTP/2 owes no answer
    /// over HTTP/1.1.
    #[must_use]
    pub fn is_owed_http1(&self, connection: &Connection<B>) -> bool {
        self.http2.is_none() || connection.has_chosen_http1()
    }

    /// The idle connection that was returned last, among those that the server has promised to keep beyond `now` and
    /// that suit the `request`.
    #[must_use]
    pub fn take(&self, now: Instant, request: &Request<B>) -> Option<Connection<B>> {
        let mut taken = self.take_any(now, || room_of(request));
        if taken.as_ref().is_some_and(Connection::is_doubtful) && !is_repeatable(request) {
            taken = self.take_sure(now, taken);
        }
        taken
    }

    #[inline]
    fn take_any(&self, now: Instant, need: impl FnOnce() -> u32) -> Option<Connection<B>> {
        if let Some(http2) = &self.http2
            && let Some(stream) = http2.take(now, need())
        {
            return Some(Connection::on_stream(stream, now));
        }
        // A connection that its server has closed meanwhile reveals this when a request is sent: no byte is sent on it,
        // and the request is returned whole.
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            if connection.is_kept(now) {
                connection.reused = true;
                return Some(connection);
            }
        }
    }

    /// An idle connection that its server is not closing because of its last answer; the `doubtful` one waits for
    /// another request.
    #[cold]
    #[inline(never)]
    fn take_sure(&self, now: Instant, doubtful: Option<Connection<B>>) -> Option<Connection<B>> {
        let mut idle = self.idle.borrow_mut();
        let is_good = |one: &Connection<B>| one.is_kept(now) && !one.is_doubtful();
        let sure = idle.iter().rposition(is_good);
        let mut sure = sure.map(|at| idle.remove(at));
        idle.extend(doubtful);
        sure.iter_mut().for_each(|one| one.reused = true);
        sure
    }

    /// An idle connection that, to the system's knowledge, its server has not closed.
    #[must_use]
    pub fn take_open(&self) -> Option<Connection<B>> {
        loop {
            let mut connection = self.take_any(clock::now(), || 0)?;
            if connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// A new connection, within `deadline`. The log gets a line for the first failure of a server, and one for the
    /// server's return.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn connect(
        &self,
        purpose: Purpose,
        deadline: Duration,
    ) -> Result<Connection<B>, ConnectError> {
        let made = match &self.http2 {
            Some(http2) if purpose == Purpose::Exchange => self.stream(http2, deadline).await,
            _ => {
                let offer = OfferedProtocols::Http1;
                let opened = self.open(offer, deadline).await;
                opened.map(|(opened, socket)| self.http1(opened.stream, socket))
            }
        };
        match &made {
            Ok(_) => self.reachability.connected(),
            Err(error) => self.reachability.connect_failed(error),
        }
        made
    }

    async fn open(
        &self,
        offer: OfferedProtocols,
        deadline: Duration,
    ) -> Result<(OpenedStream, OpenSocket), ConnectError> {
        let permit = self.permit_if_bound(deadline).await?;
        self.open_with(permit, offer, deadline).await
    }

    async fn open_with(
        &self,
        permit: Option<ConnectionPermit>,
        offer: OfferedProtocols,
        deadline: Duration,
    ) -> Result<(OpenedStream, OpenSocket), ConnectError> {
        let socket = OpenSocket::new(self.share.take(), permit);
        let opened = dial::open(&self.destination, offer, deadline).await?;
        Ok((opened, socket))
    }

    /// The permit for one more connection, if there is a bound.
    async fn permit_if_bound(
        &self,
        deadline: Duration,
    ) -> Result<Option<ConnectionPermit>, ConnectError> {
        match &self.bound {
            Some(bound) => self.permit(bound, deadline).await.map(Some),
            None => Ok(None),
        }
    }

    /// The permit for one more connection.
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

    fn http1(&self, stream: ServerStream, socket: OpenSocket) -> Connection<B> {
        let buffers = Rc::clone(&self.buffers);
        Connection::new(stream, socket, buffers, self.destination.max_age)
    }

    /// An HTTP/2 stream: on a connection with room, or on a new one. One connection is opened at a time, but any number
    /// to a server that chooses HTTP/1.1. The time of the waiting requests starts anew with each opened connection:
    /// many requests at once may need several.
    async fn stream(
        &self,
        http2: &StreamPool,
        deadline: Duration,
    ) -> Result<Connection<B>, ConnectError> {
        let (mut until, mut openings) = (clock::now() + deadline, http2.openings());
        loop {
            if openings != http2.openings() {
                (until, openings) = (clock::now() + deadline, http2.openings());
            }
            if http2.is_http1.get() {
                match self.reoffered(http2, deadline).await? {
                    Some(connection) => return Ok(connection),
                    None => continue,
                }
            }
            // The wait is registered before the check, so that no change is missed.
            let mut changed = pin!(http2.changed.notified());
            let failures = http2.failures();
            let now = clock::now();
            // The request may have a body that has found no room. If connections are bounded, requests share them.
            let need = if self.bound.is_some() { 0 } else { ENOUGH };
            if let Some(stream) = http2.take_roomy(now, need) {
                return Ok(self.on_stream(stream, now));
            }
            if let Some(opening) = http2.open() {
                // A stream may end before the server has room for a connection.
                let permit = match &self.bound {
                    None => None,
                    Some(bound) => tokio::select! {
                        biased;
                        permit = self.permit(bound, until.saturating_duration_since(now)) => Some(permit?),
                        () = changed.as_mut() => continue,
                    },
                };
                match self.open_http2(http2, permit, deadline).await {
                    Ok(OpenedConnection::Http1(connection)) => return Ok(*connection),
                    Ok(OpenedConnection::Http2(connection)) => match opening.opened(connection) {
                        Some(stream) => return Ok(self.on_stream(stream, now)),
                        None => continue,
                    },
                    Err(error) => {
                        opening.failed(&error);
                        return Err(error);
                    }
                }
            }
            if timeout_at(until, changed).await.is_err() {
                return Err(self.late(deadline));
            }
            if http2.failures() != failures
                && let Some(error) = http2.failure()
            {
                return Err(error);
            }
        }
    }

    /// A stream for a request that has found no room elsewhere. If connections are bounded, it shares the room of this
    /// one.
    fn on_stream(&self, stream: OpenStream, now: Instant) -> Connection<B> {
        let connection = Connection::on_stream(stream, now);
        if self.bound.is_some() {
            return connection.sharing_window();
        }
        connection
    }

    /// A new connection to a server that has chosen HTTP/1.1 so far. HTTP/2 is offered again each time, since an
    /// upgraded server may support it now. `None` if others have taken all streams of such a connection.
    async fn reoffered(
        &self,
        http2: &StreamPool,
        deadline: Duration,
    ) -> Result<Option<Connection<B>>, ConnectError> {
        let permit = self.permit_if_bound(deadline).await?;
        Ok(match self.open_http2(http2, permit, deadline).await? {
            OpenedConnection::Http1(connection) => Some(*connection),
            OpenedConnection::Http2(connection) => http2
                .add(connection)
                .map(|stream| self.on_stream(stream, clock::now())),
        })
    }

    /// Opens a connection that may use HTTP/2.
    async fn open_http2(
        &self,
        http2: &StreamPool,
        permit: Option<ConnectionPermit>,
        deadline: Duration,
    ) -> Result<OpenedConnection<B>, ConnectError> {
        if let Some(until) = http2.calm_until() {
            sleep_until(until).await;
        }
        let until = clock::now() + deadline;
        let offer = dial::offered(&self.destination);
        let (opened, socket) = self.open_with(permit, offer, deadline).await?;
        http2.is_http1.set(!opened.is_http2);
        if !opened.is_http2 {
            let connection = self.http1(opened.stream, socket);
            return Ok(OpenedConnection::Http1(Box::new(connection)));
        }
        let url = &self.destination.url;
        let origin = H2Origin {
            authority: url.authority().parse().ok(),
            is_encrypted: url.is_encrypted(),
        };
        let beginning = Http2Connection::open(
            opened.stream,
            socket,
            origin,
            self.destination.max_age,
            Rc::clone(&http2.changed),
        );
        match timeout_at(until, beginning).await {
            Ok(Ok(connection)) => Ok(OpenedConnection::Http2(connection)),
            Ok(Err(why)) => Err(why.of(&self.destination)),
            Err(_) => Err(self.late(deadline)),
        }
    }

    fn late(&self, after: Duration) -> ConnectError {
        ConnectError::Timeout {
            server: self.destination.to_string().into(),
            after,
            hint: ": the server has not begun HTTP/2; does it speak HTTP/2 on this port?",
        }
    }

    /// Is there an idle connection?
    fn is_resting(&self) -> bool {
        let http2 = self.http2.as_ref();
        !self.idle.borrow().is_empty() || http2.is_some_and(|http2| http2.has_idle())
    }

    /// Closes an idle connection.
    fn close_idle(&self) {
        let mut idle = self.idle.borrow_mut();
        if !idle.is_empty() {
            drop(idle.remove(0));
        } else if let Some(http2) = &self.http2 {
            http2.close_idle();
        }
    }

    /// Notes that the server has given no valid answer, for the log.
    #[cold]
    pub fn note_fault(&self, fault: &UpstreamFault<'_>) {
        self.reachability.faulted(&self.destination, fault);
    }

    /// Returns a connection whose exchange is over to the pool, if it can carry another and no other worker waits for
    /// its place.
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
        if let Some(http2) = &self.http2 {
            http2.sweep(now);
        }
        self.idle
            .borrow_mut()
            .retain_mut(|connection| connection.is_kept(now) && connection.is_usable());
    }
}

/// Closes idle connections of a pool while other workers wait for their places, as long as the pool exists.
async fn give_way<B: OutgoingBody>(pool: Weak<Pool<B>>, bound: Arc<ConnectionBound>) {
    /// The interval of checks whether the pool still exists.
    const LOOK: Duration = Duration::from_secs(10);
    loop {
        let mut wanted = pin!(bound.wanted().notified());
        // Registered before the check, so that no waiter is missed.
        wanted.as_mut().enable();
        let Some(pool) = pool.upgrade() else { return };
        while pool.is_resting() && bound.gives_way() {
            pool.close_idle();
        }
        drop(pool);
        let _ = timeout(LOOK, wanted).await;
    }
}

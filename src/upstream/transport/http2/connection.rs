//! One HTTP/2 connection to a server: its streams are counted, a task of the worker drives it and sends pings.

use super::first_bytes::{FirstBytes, NotedStream};
use super::kept_bytes::KeptBytes;
use super::ping_pace::{PING, PingPace};
use super::send_window::SendWindow;
use crate::clock;
use crate::upstream::dial::open_socket::OpenSocket;
use crate::upstream::dial::other_protocol::OtherProtocol;
use crate::upstream::dial::stream::ServerStream;
use crate::upstream::transport::head_bound::MOST_ANSWER_HEAD;
use crate::upstream::transport::keep_alive;
use crate::upstream::transport::library_words::HeardWords;
use crate::upstream::transport::owed_time::UploadState;
use crate::upstream::transport::stream_fault::{AnswerPart, GoAway, StreamFault};
use crate::upstream::{ConnectError, Destination};
use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, SendStream};
use http::Request;
use http::uri::Authority;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// Streams that one connection carries concurrently, if its server allows as many.
const MOST_STREAMS: usize = 100;
/// The bytes of an answer that may be buffered here for a slow client. No stream takes another's share.
pub(crate) const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MOST_STREAMS as u32;
/// The bytes of a request's body that wait here for the connection, for any window of its server.
const MOST_UNSENT: usize = 16 * 1024;
/// The longest wait for the answer to a ping.
const PONG: Duration = Duration::from_secs(10);
/// The streams that we may reset on a connection before it gets no further one. Servers that guard against reset floods
/// would close it with all streams on it.
const MOST_RESETS: u32 = 100;
/// The age from which a connection takes no further request, by default.
const MAX_AGE: Duration = Duration::from_secs(600);
/// The time after which a connection without streams is closed.
const MOST_REST: Duration = Duration::from_secs(60);

/// The parts of every request's head that belong to the connection.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct H2Origin {
    /// The host for a request that names none.
    pub(in crate::upstream) authority: Option<Authority>,
    /// The connection is encrypted.
    pub(in crate::upstream) is_encrypted: bool,
}

/// A connection.
#[derive(Debug)]
pub(in crate::upstream) struct Http2Connection {
    sender: RefCell<Option<SendRequest<Bytes>>>,
    origin: H2Origin,
    state: Rc<ConnectionState>,
    /// The window for sending to its server.
    window: Rc<SendWindow>,
    /// The time from which it gets no further request.
    retires: Instant,
}

/// The state that the connection's task and its streams share.
#[derive(Debug, Default)]
struct ConnectionState {
    /// Streams that are open.
    open: Cell<usize>,
    /// Streams that we have reset.
    resets: Cell<u32>,
    /// The time since which no stream is open.
    rests: Cell<Option<Instant>>,
    /// The connection has carried a stream.
    is_used: Cell<bool>,
    /// The connection has ended.
    is_over: Cell<bool>,
    /// The server has sent `ENHANCE_YOUR_CALM`.
    is_calm: Cell<bool>,
    /// A part of an answer has arrived since the last ping.
    has_sent: Cell<bool>,
    /// A part of an answer has arrived.
    is_proven: Cell<bool>,
    /// One stream has already been repeated for free, since the connection had closed without an answer.
    is_forgiven: Cell<bool>,
    /// The server has not answered a ping.
    is_silent: Cell<bool>,
    /// The GOAWAY of the server, once received.
    goaway: RefCell<Option<GoAway>>,
    /// The library's words about malformed frames.
    heard: HeardWords,
    /// The uploads whose bytes wait for the socket.
    kept: Rc<KeptBytes>,
    /// Wakes the task when no sender is left.
    left: Notify,
    /// Wakes the tasks that wait for a stream.
    freed: Rc<Notify>,
}

/// A stream that counts as open.
#[derive(Debug)]
pub(in crate::upstream) struct OpenStream {
    connection: Rc<Http2Connection>,
    /// The connection has carried another stream before.
    pub(in crate::upstream) is_reused: bool,
    /// The connection had brought an answer before.
    is_on_proven: bool,
    /// The stream has failed.
    pub(super) is_broken: bool,
    /// We reset the stream.
    pub(super) is_cut: bool,
}

/// Causes for which a socket does not become an HTTP/2 connection.
#[derive(Debug)]
pub(in crate::upstream) enum NoHttp2 {
    /// The connection ended, or another protocol was received.
    Ended(Option<OtherProtocol>),
    /// The server refuses our certificate, in words.
    RefusedCertificate(String),
    /// The server allows no streams at all.
    NoStreams,
}

/// The settings that every connection announces at its beginning.
pub(in crate::upstream) fn settings() -> Builder {
    let mut settings = Builder::new();
    settings
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MOST_ANSWER_HEAD as u32)
        .max_send_buffer_size(MOST_UNSENT);
    settings
}

impl Http2Connection {
    /// Begins HTTP/2 on a socket, and waits for the server's settings. `freed` is notified when a stream ends.
    pub(in crate::upstream) async fn open(
        stream: ServerStream,
        socket: OpenSocket,
        origin: H2Origin,
        max_age: Option<Duration>,
        freed: Rc<Notify>,
    ) -> Result<Rc<Self>, NoHttp2> {
        let (first, window) = (Rc::<FirstBytes>::default(), Rc::<SendWindow>::default());
        let kept = Rc::<KeptBytes>::default();
        let noted = NotedStream {
            stream,
            first: Rc::clone(&first),
            kept: Rc::clone(&kept),
            window: Rc::clone(&window),
        };
        let made = settings().handshake::<_, Bytes>(noted).await;
        let (sender, connection) = made.map_err(|_| first.ended())?;
        let state = Rc::new(ConnectionState {
            freed,
            kept,
            ..ConnectionState::default()
        });
        let age = max_age.unwrap_or(MAX_AGE);
        // Dropped before it is returned, it ends the task.
        let opened = Rc::new(Self {
            sender: RefCell::new(Some(sender)),
            origin,
            state: Rc::clone(&state),
            window,
            retires: keep_alive::retires(clock::now(), age),
        });
        tokio::task::spawn_local(drive(
            connection,
            Rc::clone(&state),
            Rc::clone(&first),
            Rc::clone(&opened.window),
            socket,
        ));
        while !first.is_settled() && !state.is_over.get() {
            first.settled.notified().await;
        }
        if state.is_over.get() || first.other_protocol().is_some() {
            return Err(first.ended());
        }
        if opened.most_streams() == 0 {
            return Err(NoHttp2::NoStreams);
        }
        Ok(opened)
    }

    /// The most concurrent streams that the server allows.
    fn most_streams(&self) -> usize {
        let sender = self.sender.borrow();
        sender
            .as_ref()
            .map_or(0, SendRequest::current_max_send_streams)
    }

    /// Is the connection open, and may it get another request?
    pub(in crate::upstream) fn is_usable(&self, now: Instant) -> bool {
        let state = &*self.state;
        !state.is_over.get()
            && state.resets.get() < MOST_RESETS
            && now < self.retires
            && self.is_ready()
    }

    fn is_ready(&self) -> bool {
        let mut quiet = Context::from_waker(Waker::noop());
        let mut sender = self.sender.borrow_mut();
        let ready = sender.as_mut().map(|sender| sender.poll_ready(&mut quiet));
        matches!(ready, Some(Poll::Ready(Ok(()))))
    }

    /// Has the server sent `ENHANCE_YOUR_CALM`?
    pub(in crate::upstream) fn is_calm(&self) -> bool {
        self.state.is_calm.get()
    }

    /// Is there room to send `need` bytes of a body?
    pub(super) fn has_room(&self, need: u32) -> bool {
        self.window.has_room(need)
    }

    /// Has the room been insufficient, without change, for long?
    pub(super) fn is_stuck(&self, need: u32, now: Instant) -> bool {
        self.window.is_stuck(need, now)
    }

    /// Has no stream been open for long?
    pub(in crate::upstream) fn has_rested(&self, now: Instant) -> bool {
        let rests = self.state.rests.get();
        self.state.open.get() == 0 && rests.is_some_and(|since| now >= since + MOST_REST)
    }

    /// Is no stream open?
    pub(in crate::upstream) fn is_idle(&self) -> bool {
        self.state.open.get() == 0
    }

    /// A stream, if there is room for one.
    pub(in crate::upstream) fn take(self: &Rc<Self>) -> Option<OpenStream> {
        let open = self.state.open.get();
        if open >= self.most_streams().min(MOST_STREAMS) {
            return None;
        }
        self.state.open.set(open + 1);
        Some(OpenStream {
            is_reused: self.state.is_used.replace(true),
            is_on_proven: self.state.is_proven.get(),
            connection: Rc::clone(self),
            is_broken: false,
            is_cut: false,
        })
    }
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.sender.replace(None);
        // The connection does not detect by itself that no sender is left.
        self.state.left.notify_one();
    }
}

impl OpenStream {
    /// Sends the head of a request.
    ///
    /// # Errors
    /// If the connection accepts no streams any more.
    pub(super) fn send(
        &self,
        head: Request<()>,
        is_all: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut sender = self.connection.sender.borrow_mut();
        match sender.as_mut() {
            Some(sender) => sender.send_request(head, is_all),
            None => Err(Reason::CANCEL.into()),
        }
    }

    /// Notes that bytes of the request's body are handed over, which the socket may not take at once.
    pub(super) fn keeps(&self, upload: &Rc<dyn UploadState>) {
        self.connection.state.kept.add(upload);
    }

    /// Is the connection open?
    pub(super) fn is_usable(&self) -> bool {
        !self.connection.state.is_over.get() && self.connection.is_ready()
    }

    /// The connection's send window.
    pub(super) fn window(&self) -> &Rc<SendWindow> {
        &self.connection.window
    }

    /// Is the connection encrypted?
    pub(super) fn is_encrypted(&self) -> bool {
        self.connection.origin.is_encrypted
    }

    /// The host of the server.
    pub(super) fn authority(&self) -> Option<Authority> {
        self.connection.origin.authority.clone()
    }

    /// Notes that a part of an answer has arrived.
    #[inline]
    pub(super) fn note_sent(&self) {
        self.connection.state.has_sent.set(true);
        self.connection.state.is_proven.set(true);
    }

    /// Was the connection good when the stream began, and is this the first stream that its end has broken? One stream
    /// may be repeated, as on a connection that its server has closed meanwhile. More would mean many attempts if
    /// servers break connections repeatedly.
    pub(super) fn is_first_broken(&self) -> bool {
        self.is_on_proven && !self.connection.state.is_forgiven.replace(true)
    }

    /// The fault of stream `id` in this part of its answer.
    #[cold]
    pub(super) fn fault(&self, error: h2::Error, part: AnswerPart, id: Option<u32>) -> StreamFault {
        let state = &self.connection.state;
        StreamFault::new(error, part)
            .of_silent(state.is_silent.get())
            .behind(state.goaway.borrow().clone())
            .explained_by(&state.heard, id)
    }

    /// Has the server sent `ENHANCE_YOUR_CALM`?
    pub(super) fn is_calm(&self) -> bool {
        self.connection.is_calm()
    }

    /// Notes that the server has sent `ENHANCE_YOUR_CALM`.
    pub(super) fn note_calm(&self) {
        self.connection.state.is_calm.set(true);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let state = &self.connection.state;
        let open = state.open.get().saturating_sub(1);
        state.open.set(open);
        if self.is_cut {
            state.resets.set(state.resets.get() + 1);
        }
        if open == 0 {
            state.rests.set(Some(clock::now()));
        }
        state.freed.notify_waiters();
    }
}

/// Drives a connection until it ends.
async fn drive(
    mut connection: Connection<NotedStream, Bytes>,
    state: Rc<ConnectionState>,
    first: Rc<FirstBytes>,
    window: Rc<SendWindow>,
    socket: OpenSocket,
) {
    let pings = connection.ping_pong();
    let mut watching = pin!(watch(pings, &state));
    let mut leaving = pin!(leave_server(&state));
    let ended = poll_fn(|cx| {
        // Both are polled each time, so that the connection is driven after either wakes.
        if watching.as_mut().poll(cx).is_ready() || leaving.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let ended = state.heard.drive(|| Pin::new(&mut connection).poll(cx));
        state.kept.look();
        if !state.kept.is_full() {
            window.all_is_written();
        }
        ended
    })
    .await;
    if let Err(error) = &ended {
        let is_calm = error.reason() == Some(Reason::ENHANCE_YOUR_CALM);
        state.is_calm.set(state.is_calm.get() || is_calm);
        state.goaway.replace(GoAway::of(error));
    }
    state.is_over.set(true);
    // The remaining streams learn of the end by this drop.
    drop(connection);
    drop(socket);
    first.settled.notify_one();
    state.freed.notify_waiters();
}

/// Resolves some time after no sender is left: by then the connection should have ended by itself.
async fn leave_server(state: &ConnectionState) {
    state.left.notified().await;
    sleep(PONG).await;
}

/// Resolves when a server with open streams does not answer a ping; pings are as frequent as servers tolerate.
async fn watch(pings: Option<PingPong>, state: &ConnectionState) {
    let Some(mut pings) = pings else {
        return std::future::pending().await;
    };
    let mut pace = PingPace::default();
    loop {
        sleep(PING).await;
        if state.open.get() == 0 || !pace.is_due(state.has_sent.take(), clock::now()) {
            continue;
        }
        let answered = timeout(PONG, pings.ping(Ping::opaque())).await;
        if !matches!(answered, Ok(Ok(_))) {
            state.is_silent.set(answered.is_err());
            return;
        }
    }
}

impl FirstBytes {
    /// The reason why a connection with this beginning is not HTTP/2.
    fn ended(&self) -> NoHttp2 {
        match self.refused_certificate() {
            Some(why) => NoHttp2::RefusedCertificate(why),
            None => NoHttp2::Ended(self.other_protocol()),
        }
    }
}

impl NoHttp2 {
    /// The failure of a connection to `server`.
    pub(in crate::upstream) fn of(&self, server: &Destination) -> ConnectError {
        let (server, why) = (server.to_string().into(), self.to_string().into());
        match self {
            Self::RefusedCertificate(_) => ConnectError::Tls { server, why },
            Self::Ended(_) | Self::NoStreams => ConnectError::Protocol { server, why },
        }
    }
}

impl std::fmt::Display for NoHttp2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(Some(other)) => write!(f, "{other}"),
            Self::RefusedCertificate(why) => f.write_str(why),
            Self::Ended(None) => f.write_str(
                "the server closed the connection where HTTP/2 begins: it may speak HTTP/1.1, write `http://`, or TLS, write `https://`",
            ),
            Self::NoStreams => f.write_str("the server takes no streams (SETTINGS_MAX_CONCURRENT_STREAMS is 0)"),
        }
    }
}

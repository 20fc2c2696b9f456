//! Either end of one TCP connection: writes any bytes, reads HTTP/1.1 by hand, and sees how the connection ended.

use super::PATIENCE;
use super::message::{Answer, Fields, Head, fields};
use bytes::{Bytes, BytesMut};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

/// A connection, and the bytes that have arrived and were not read yet.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Carrier,
    buffer: BytesMut,
    patience: Duration,
}

/// The transport of the bytes.
#[derive(Debug)]
enum Carrier {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Carrier {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The other side closed the connection in order.
    Closed,
    /// The other side reset the connection.
    Reset,
    /// The other side closed the connection without the closing alert of TLS, so bytes may be missing.
    Truncated,
    /// The connection is still open.
    Open,
}

impl Wire {
    /// Connects.
    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self::try_to(address)
            .await
            .unwrap_or_else(|error| panic!("connect {address}: {error}"))
    }

    /// Connects, if there is a listener.
    pub(crate) async fn try_to(address: SocketAddr) -> io::Result<Self> {
        let stream = within("connecting", PATIENCE, TcpStream::connect(address)).await?;
        Ok(Self::over(stream))
    }

    /// Connects from an address of this machine.
    pub(crate) async fn from(source: IpAddr, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let bound = socket.bind(SocketAddr::new(source, 0));
        bound.expect("all of 127.0.0.0/8 is this machine");
        let stream = within("connecting", PATIENCE, socket.connect(address)).await;
        Self::over(stream.unwrap_or_else(|error| panic!("connect {address}: {error}")))
    }

    /// Wraps an open connection.
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream
            .set_nodelay(true)
            .expect("a socket takes TCP_NODELAY");
        Self::carried(Carrier::Tcp(stream))
    }

    /// Wraps an open connection with TLS.
    pub(crate) fn over_tls(stream: TlsStream<TcpStream>) -> Self {
        Self::carried(Carrier::Tls(Box::new(stream)))
    }

    fn carried(stream: Carrier) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            patience: PATIENCE,
        }
    }

    /// Wraps an open connection to a Unix socket.
    pub(crate) fn over_unix(stream: tokio::net::UnixStream) -> Self {
        let stream = stream.into_std().expect("the runtime lets go of it");
        let stream = std::net::TcpStream::from(std::os::fd::OwnedFd::from(stream));
        Self {
            stream: Carrier::Tcp(
                TcpStream::from_std(stream).expect("any stream can be registered"),
            ),
            buffer: BytesMut::new(),
            patience: PATIENCE,
        }
    }

    /// Extends the deadlines of this end beyond those of a test. The serving side needs this, since it is idle between
    /// requests.
    pub(crate) fn patient(self) -> Self {
        Self {
            patience: Duration::from_secs(3600),
            ..self
        }
    }

    /// Writes bytes. The other side must be connected.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes)
            .await
            .unwrap_or_else(|error| panic!("send: {error}"));
    }

    /// Writes bytes, if the other side is connected.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let bytes = bytes.as_ref();
        within("sending", self.patience, async {
            match &mut self.stream {
                Carrier::Tcp(tcp) => tcp.write_all(bytes).await,
                Carrier::Tls(tls) => {
                    tls.write_all(bytes).await?;
                    tls.flush().await
                }
            }
        })
        .await
    }

    /// Writes one chunk.
    pub(crate) async fn send_chunk(&mut self, bytes: &str) {
        self.send(format!("{:x}\r\n{bytes}\r\n", bytes.len())).await;
    }

    /// Ends the sending direction.
    pub(crate) async fn finish_sending(&mut self) {
        let ended = match &mut self.stream {
            Carrier::Tcp(tcp) => tcp.shutdown().await,
            Carrier::Tls(tls) => tls.shutdown().await,
        };
        ended.expect("the connection is open");
    }

    /// Writes, and closes the connection in the same segment: the other side learns both at once.
    pub(crate) async fn send_and_leave(mut self, bytes: impl AsRef<[u8]>) {
        socket2::SockRef::from(self.stream.tcp())
            .set_tcp_cork(true)
            .expect("a socket takes TCP_CORK");
        self.send(bytes).await;
    }

    /// Ends the connection in order: the other side reads everything that was sent, and then the end. A plain close
    /// with unread bytes would cause a reset, and then the other side would lose the bytes that it has not read yet.
    pub(crate) async fn leave(&mut self) -> End {
        let _ = match &mut self.stream {
            Carrier::Tcp(tcp) => tcp.shutdown().await,
            Carrier::Tls(tls) => tls.shutdown().await,
        };
        self.ended(self.patience).await
    }

    /// Ends the connection with a reset in place of an orderly close.
    pub(crate) fn reset(self) {
        self.stream
            .tcp()
            .set_zero_linger()
            .expect("a socket takes SO_LINGER");
    }

    /// Keeps the kernel from buffering more than `bytes` unread bytes.
    pub(crate) fn shrink_receive_buffer(&self, bytes: usize) {
        let socket = socket2::SockRef::from(self.stream.tcp());
        socket
            .set_recv_buffer_size(bytes)
            .expect("a socket takes SO_RCVBUF");
    }

    /// The head of a response or request. The connection must not end before it.
    #[track_caller]
    pub(crate) fn head(&mut self) -> impl Future<Output = Head> + Send {
        let place = std::panic::Location::caller();
        async move {
            match self.try_head().await {
                Ok(head) => head,
                Err(end) => panic!("{place}: {end:?} before a whole head: {:?}", self.buffer),
            }
        }
    }

    /// A response's or request's head, or the kind of the connection's end before the head was whole.
    pub(crate) async fn try_head(&mut self) -> Result<Head, End> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                let head = self.buffer.split_to(at + 4);
                return Ok(Head::parse(&head[..at]));
            }
            self.fill().await?;
        }
    }

    /// One line without its line break.
    pub(crate) async fn line(&mut self) -> Result<String, End> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let line = self.buffer.split_to(at + 2);
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            self.fill().await?;
        }
    }

    /// Exactly `count` bytes.
    pub(crate) async fn exactly(&mut self, count: usize) -> Result<Bytes, End> {
        while self.buffer.len() < count {
            self.fill().await?;
        }
        Ok(self.buffer.split_to(count).freeze())
    }

    /// Reads `count` bytes, and drops them as they come.
    pub(crate) async fn exactly_ignored(&mut self, mut count: usize) {
        while count > 0 {
            if self.buffer.is_empty() {
                self.fill()
                    .await
                    .unwrap_or_else(|end| panic!("{end:?} with {count} bytes to come"));
            }
            let taken = count.min(self.buffer.len());
            drop(self.buffer.split_to(taken));
            count -= taken;
        }
    }

    /// One chunk. An empty chunk is the last one. The trailer fields after it are read separately.
    pub(crate) async fn chunk(&mut self) -> Result<Bytes, End> {
        let line = self.line().await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size =
            usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("chunk size {line:?}"));
        if size == 0 {
            return Ok(Bytes::new());
        }
        let data = self.exactly(size).await?;
        assert_eq!(self.line().await?, "", "a chunk ends with a line end");
        Ok(data)
    }

    /// The trailer fields behind the last chunk.
    pub(crate) async fn trailers(&mut self) -> Result<Fields, End> {
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(fields(lines.iter().map(String::as_str)));
            }
            lines.push(line);
        }
    }

    /// A body in chunks, to its end.
    pub(crate) async fn chunks(&mut self) -> Result<(Bytes, Fields), End> {
        let mut body = BytesMut::new();
        loop {
            let chunk = self.chunk().await?;
            if chunk.is_empty() {
                return Ok((body.freeze(), self.trailers().await?));
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// The body of a request with this head.
    pub(crate) async fn request_body(&mut self, head: &Head) -> Result<(Bytes, Fields), End> {
        if head.chunked() {
            self.chunks().await
        } else {
            Ok((
                self.exactly(head.length().unwrap_or(0)).await?,
                Fields::default(),
            ))
        }
    }

    /// The final response to a request that was not a HEAD. The connection must not end within it.
    pub(crate) async fn answer(&mut self) -> Answer {
        match self.try_answer().await {
            Ok(answer) => answer,
            Err(end) => panic!("{end:?} within the answer; unread: {:?}", self.buffer),
        }
    }

    /// The final response to a request that was not a HEAD, or the kind of the connection's end before the response's
    /// end.
    pub(crate) async fn try_answer(&mut self) -> Result<Answer, End> {
        let head = loop {
            let head = self.try_head().await?;
            if head.status() >= 200 {
                break head;
            }
        };
        self.rest_of(head).await
    }

    /// The answer to a HEAD.
    pub(crate) async fn answer_to_head(&mut self) -> Answer {
        let head = self.head().await;
        Answer {
            status: head.status(),
            fields: head.fields,
            body: Bytes::new(),
            trailers: Fields::default(),
        }
    }

    /// Reads the rest of a response, after its head.
    pub(crate) async fn rest_of(&mut self, head: Head) -> Result<Answer, End> {
        let status = head.status();
        let bodiless = status == 204 || status == 304;
        let (body, trailers) = if bodiless {
            (Bytes::new(), Fields::default())
        } else if head.chunked() {
            self.chunks().await?
        } else if let Some(length) = head.length() {
            (self.exactly(length).await?, Fields::default())
        } else {
            (self.until_the_end().await?, Fields::default())
        };
        Ok(Answer {
            status,
            fields: head.fields,
            body,
            trailers,
        })
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request).await;
        self.answer().await
    }

    /// All bytes until an orderly close.
    async fn until_the_end(&mut self) -> Result<Bytes, End> {
        loop {
            match self.fill().await {
                Ok(()) => {}
                Err(End::Closed) => return Ok(self.buffer.split().freeze()),
                Err(end) => return Err(end),
            }
        }
    }

    /// Drops the bytes that have arrived, or else waits for the next ones and drops them. Returns their number, or the
    /// kind of the connection's end.
    pub(crate) async fn read_some(&mut self) -> Result<usize, End> {
        self.buffer.clear();
        self.fill().await?;
        Ok(self.buffer.len())
    }

    /// All bytes that still come, whatever the kind of the connection's end.
    pub(crate) async fn everything(&mut self) -> Bytes {
        while self.fill().await.is_ok() {}
        self.buffer.split().freeze()
    }

    /// Waits for the other side to end the connection, and drops the bytes that still come.
    pub(crate) async fn ended(&mut self, within: Duration) -> End {
        let leaving = async {
            loop {
                self.buffer.clear();
                if let Err(end) = self.read().await {
                    return end;
                }
            }
        };
        timeout(within, leaving).await.unwrap_or(End::Open)
    }

    async fn fill(&mut self) -> Result<(), End> {
        let buffered = self.buffer.len();
        match timeout(self.patience, self.read()).await {
            Ok(read) => read,
            Err(_) => panic!("nothing more in time; {buffered} bytes unread"),
        }
    }

    async fn read(&mut self) -> Result<(), End> {
        self.buffer.reserve(16 * 1024);
        let read = match &mut self.stream {
            Carrier::Tcp(tcp) => tcp.read_buf(&mut self.buffer).await,
            Carrier::Tls(tls) => tls.read_buf(&mut self.buffer).await,
        };
        match read {
            Ok(0) => Err(End::Closed),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(End::Truncated),
            Err(_) => Err(End::Reset),
        }
    }
}

async fn within<T>(what: &str, limit: Duration, act: impl Future<Output = T>) -> T {
    match timeout(limit, act).await {
        Ok(done) => done,
        Err(_) => panic!("{what} took longer than {limit:?}"),
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

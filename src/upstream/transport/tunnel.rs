//! A request for another protocol: its connection is hyper's, which hands out the raw bytes once the server agrees.

use super::connection::Connection;
use super::head_bound::{MOST_ANSWER_FIELDS, MOST_ANSWER_HEAD};
use super::http1::AnswerError;
use crate::descriptors::departure::SecondDescriptor;
use crate::interim::InterimWatch;
use crate::upstream::OutgoingBody;
use crate::upstream::dial::open_socket::OpenSocket;
use crate::upstream::dial::stream::ServerStream;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The stream of a tunnel.
#[derive(Debug)]
struct TunnelStream {
    stream: ServerStream,
    /// Counts the socket while it is open.
    socket: OpenSocket,
    /// The server's bytes, until its answer is known.
    beginning: Option<Arc<TunnelBeginning>>,
    /// The interim answers before the answer.
    interim: InterimWatch,
}

/// The bytes of a server's answer, until its meaning is known. They show why the answer is invalid.
#[derive(Debug)]
struct TunnelBeginning(Mutex<Option<Vec<u8>>>);

impl TunnelBeginning {
    fn new() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }

    /// Notes received bytes, up to the bound on a head.
    fn note(&self, bytes: &[u8]) {
        if let Some(before) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let room = MOST_ANSWER_HEAD
                .saturating_sub(before.len())
                .min(bytes.len());
            before.extend_from_slice(&bytes[..room]);
        }
    }

    /// Takes the received bytes. Nothing is noted afterwards.
    fn take(&self) -> Vec<u8> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.take().unwrap_or_default()
    }
}

/// The failure of a tunnel before its answer.
#[derive(Debug)]
pub struct UnopenedTunnel {
    /// The failure.
    pub error: AnswerError,
    /// A byte of an answer had arrived.
    pub is_heard: bool,
}

/// Sends `request` on a fresh connection, which a separate task drives from then on. The connection is not used again.
///
/// # Errors
/// If the connection ends before an answer, or the answer is malformed.
pub async fn open<B: OutgoingBody>(
    connection: Connection<B>,
    request: Request<B>,
) -> Result<Response<Incoming>, UnopenedTunnel> {
    let beginning = Arc::new(TunnelBeginning::new());
    let opened = send(connection, request, Arc::clone(&beginning)).await;
    let bytes = beginning.take();
    opened.map_err(|failed| UnopenedTunnel {
        error: match failed {
            SendFailure::Known(error) => error,
            SendFailure::Hyper(error) => AnswerError::of_tunnel(error, &bytes),
        },
        is_heard: !bytes.is_empty(),
    })
}

/// The failure of a request for a tunnel, as known without the server's bytes.
enum SendFailure {
    Known(AnswerError),
    Hyper(hyper::Error),
}

impl From<hyper::Error> for SendFailure {
    fn from(error: hyper::Error) -> Self {
        Self::Hyper(error)
    }
}

async fn send<B: OutgoingBody>(
    connection: Connection<B>,
    mut request: Request<B>,
    beginning: Arc<TunnelBeginning>,
) -> Result<Response<Incoming>, SendFailure> {
    let Some((stream, socket)) = connection.into_stream() else {
        return Err(SendFailure::Known(AnswerError::GivenUp));
    };
    let interim = InterimWatch::default();
    interim.over(&mut request);
    let stream = TunnelStream {
        stream,
        socket,
        beginning: Some(beginning),
        interim: interim.clone(),
    };
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(MOST_ANSWER_FIELDS)
        .max_buf_size(MOST_ANSWER_HEAD)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::task::spawn_local(async move {
        // The connection's errors reach the task that waits for the answer.
        let _ = connection.with_upgrades().await;
    });
    let answer = sender.send_request(request).await;
    let checked = interim.check();
    checked.map_err(|fault| SendFailure::Known(fault.into()))?;
    Ok(answer?)
}

/// The server's side of an open tunnel.
#[derive(Debug)]
pub struct ServerSide {
    /// The server's bytes that arrived with the answer.
    read_ahead: Bytes,
    stream: TunnelStream,
}

impl ServerSide {
    /// The server's side after an answer of [`open`], once the server's connection is handed over.
    #[must_use]
    pub fn of(upgraded: Upgraded) -> Option<Self> {
        let parts = upgraded.downcast::<TokioIo<TunnelStream>>().ok()?;
        let mut stream = parts.io.into_inner();
        stream.beginning = None;
        Some(Self {
            read_ahead: parts.read_buf,
            stream,
        })
    }

    /// A second descriptor of its socket, which detects how the server leaves; `None` if no descriptor is left.
    #[must_use]
    pub fn second_descriptor(&self) -> Option<SecondDescriptor> {
        let spare = self.stream.socket.take_spare()?;
        self.stream.stream.duplicate(spare).ok()
    }

    /// Makes the connection end in a reset when it is closed.
    pub fn end_in_reset(&self) {
        self.stream.stream.end_in_reset();
    }
}

impl AsyncRead for ServerSide {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.read_ahead.len().min(buf.remaining());
        buf.put_slice(&self.read_ahead.split_to(count));
        if self.read_ahead.is_empty() {
            self.read_ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ServerSide {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Err(fault) = self.interim.check() {
            return Poll::Ready(Err(io::Error::other(fault)));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Some(beginning) = &self.beginning {
            beginning.note(&buf.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

//! An HTTP/2 client with prior knowledge, whose bodies a test feeds piece by piece.

use super::PATIENCE;
use super::message::{Answer, Fields};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// One HTTP/2 connection.
#[derive(Debug, Clone)]
pub(crate) struct H2 {
    sender: SendRequest<Feed>,
}

impl H2 {
    /// Connects and speaks HTTP/2 at once.
    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self::with(address, &http2::Builder::new(TokioExecutor::new())).await
    }

    /// Connects with a window of `window` bytes: the client takes no more of an answer's body until the body is read.
    pub(crate) async fn with_window(address: SocketAddr, window: u32) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window);
        Self::with(address, &builder).await
    }

    /// Speaks HTTP/2 on a connection.
    pub(crate) async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self::speak(stream, &http2::Builder::new(TokioExecutor::new())).await
    }

    async fn with(address: SocketAddr, builder: &http2::Builder<TokioExecutor>) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::speak(stream, builder).await
    }

    async fn speak(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        builder: &http2::Builder<TokioExecutor>,
    ) -> Self {
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(async move {
            // The requests on the connection learn how it ended.
            let _ = connection.await;
        });
        Self { sender }
    }

    /// Sends a request, and returns the response's head, or the error in its place.
    pub(crate) async fn send(&self, request: Request<Feed>) -> hyper::Result<Response<Incoming>> {
        timeout(PATIENCE, self.sender.clone().send_request(request))
            .await
            .expect("a head in time")
    }

    /// Sends a request, and reads the whole answer, or returns the error that broke it off.
    pub(crate) async fn try_ask(&self, request: Request<Feed>) -> hyper::Result<Answer> {
        let (head, mut body) = self.send(request).await?.into_parts();
        let mut bytes = BytesMut::new();
        let mut trailers = Fields::default();
        while let Some(frame) = timeout(PATIENCE, body.frame())
            .await
            .expect("a frame in time")
        {
            match frame?.into_data() {
                Ok(data) => bytes.extend_from_slice(&data),
                Err(frame) => trailers = to_fields(frame.trailers_ref().expect("data or trailers")),
            }
        }
        Ok(Answer {
            status: head.status.as_u16(),
            fields: to_fields(&head.headers),
            body: bytes.freeze(),
            trailers,
        })
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn ask(&self, request: Request<Feed>) -> Answer {
        self.try_ask(request).await.unwrap()
    }

    /// A GET of `path`.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(get(path)).await
    }

    /// Has the connection ended, or has the gateway asked for its end?
    pub(crate) fn closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// A GET of `path` at `http://gateway.test`.
pub(crate) fn get(path: &str) -> Request<Feed> {
    Request::get(format!("http://gateway.test{path}"))
        .body(Feed::empty())
        .unwrap()
}

fn to_fields(map: &HeaderMap) -> Fields {
    Fields(
        map.iter()
            .map(|(name, value)| {
                (
                    name.as_str().to_owned(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect(),
    )
}

/// A body whose frames come from a channel. It ends when the sender is dropped.
#[derive(Debug)]
pub(crate) struct Feed {
    frames: Option<mpsc::Receiver<Frame<Bytes>>>,
}

impl Feed {
    /// No body.
    pub(crate) fn empty() -> Self {
        Self { frames: None }
    }

    /// An open body, and the sender of its frames.
    pub(crate) fn open() -> (mpsc::Sender<Frame<Bytes>>, Self) {
        let (sender, frames) = mpsc::channel(16);
        (
            sender,
            Self {
                frames: Some(frames),
            },
        )
    }

    /// A whole body.
    pub(crate) fn of(text: &'static str) -> Self {
        let (sender, body) = Self::open();
        sender
            .try_send(Frame::data(Bytes::from_static(text.as_bytes())))
            .expect("room for one");
        body
    }
}

impl Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.frames {
            Some(frames) => frames.poll_recv(context).map(|frame| frame.map(Ok)),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_none()
    }
}

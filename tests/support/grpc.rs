//! A gRPC server without TLS whose answer depends on the name of the method, and calls to it.

use super::h2::Feed;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// The server. When dropped, it stops listening.
///
/// - `Unary` takes the whole request and answers with it; `x-saw-timeout` and `x-saw-te` are fields of the request.
/// - `Echo` answers with each piece of the request as it comes.
/// - `Silent` sends a head, and the end when the request ends.
/// - `Hang` never answers.
/// - `Deadline-N` answers with the status N when the deadline in the call is over.
/// - `End-N` sends a message and the status N in trailers, and `Only-N` sends the status in the head.
/// - `Check` answers that all services serve (`grpc.health.v1`).
#[derive(Debug)]
pub(crate) struct GrpcServer {
    pub(crate) address: SocketAddr,
    calls: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

impl GrpcServer {
    pub(crate) async fn start() -> Self {
        Self::going_away(None).await
    }

    /// A server that ends each connection with GOAWAY after `after`, and finishes its streams.
    pub(crate) async fn going_away(after: Option<Duration>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (calls, connections) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (counted, opened) = (Arc::clone(&calls), Arc::clone(&connections));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                opened.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, after, Arc::clone(&counted)));
            }
        });
        Self {
            address,
            calls,
            connections,
            accepting: accepting.abort_handle(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("h2c://{}", self.address)
    }

    /// The calls that have come so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A call of a method with these further fields and this body.
pub(crate) fn call(method: &str, fields: &[(&str, &str)], body: Feed) -> Request<Feed> {
    let mut request = Request::post(format!("http://gateway.test/shop.Orders/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

async fn serve(stream: TcpStream, after: Option<Duration>, calls: Arc<AtomicUsize>) {
    stream.set_nodelay(true).unwrap();
    let service = service_fn(move |request| {
        calls.fetch_add(1, Ordering::SeqCst);
        answer(request)
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(1000);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    if let Some(after) = after {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = sleep(after) => connection.as_mut().graceful_shutdown(),
        }
    }
    let _ = connection.await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<Feed>, Infallible> {
    let (head, mut body) = request.into_parts();
    let method = head.uri.path().rsplit('/').next().unwrap_or_default();
    let seen = |name: &str| head.headers.get(name).cloned();
    if let Some(status) = method.strip_prefix("Only-") {
        let mut response = response(Feed::empty());
        let status = HeaderValue::from_str(status).unwrap();
        response.headers_mut().insert("grpc-status", status);
        return Ok(response);
    }
    if let Some(status) = method.strip_prefix("Deadline-") {
        let told = head.headers["grpc-timeout"].to_str().unwrap();
        sleep(told_time(told)).await;
        let mut response = response(Feed::empty());
        let status = HeaderValue::from_str(status).unwrap();
        response.headers_mut().insert("grpc-status", status);
        return Ok(response);
    }
    let (frames, answer) = Feed::open();
    let mut response = response(answer);
    for (name, value) in [
        ("x-saw-timeout", seen("grpc-timeout")),
        ("x-saw-te", seen("te")),
    ] {
        if let Some(value) = value {
            response.headers_mut().insert(name, value);
        }
    }
    match method {
        "Unary" => {
            let whole = body.collect().await.map(|body| body.to_bytes());
            frames
                .try_send(Frame::data(whole.unwrap_or_default()))
                .unwrap();
            frames.try_send(trailers("0")).unwrap();
        }
        // A message with one field, the status SERVING.
        "Check" => {
            let serving = Bytes::from_static(b"\0\0\0\0\x02\x08\x01");
            frames.try_send(Frame::data(serving)).unwrap();
            frames.try_send(trailers("0")).unwrap();
        }
        "Echo" | "Silent" => {
            let echoes = method == "Echo";
            tokio::spawn(async move {
                while let Some(frame) = body.frame().await {
                    let Ok(frame) = frame else {
                        eprintln!("the call broke: {frame:?}");
                        let _ = frames.send(trailers("13")).await;
                        return;
                    };
                    if echoes
                        && let Ok(data) = frame.into_data()
                        && frames.send(Frame::data(data)).await.is_err()
                    {
                        return;
                    }
                }
                let _ = frames.send(trailers("0")).await;
            });
        }
        "Hang" => std::future::pending().await,
        other => {
            let status = other.strip_prefix("End-").unwrap_or("12").to_owned();
            let message = Bytes::from_static(b"\0\0\0\0\x01x");
            frames.try_send(Frame::data(message)).unwrap();
            frames.try_send(trailers(&status)).unwrap();
        }
    }
    Ok(response)
}

/// The time of a `grpc-timeout` in seconds, milliseconds or microseconds.
fn told_time(value: &str) -> Duration {
    let (number, unit) = value.split_at(value.len() - 1);
    let number = number.parse().unwrap();
    match unit {
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        _ => Duration::from_micros(number),
    }
}

fn response(body: Feed) -> Response<Feed> {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    response
}

fn trailers(status: &str) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_str(status).unwrap());
    Frame::trailers(trailers)
}

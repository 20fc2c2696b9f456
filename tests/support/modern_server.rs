//! A server of HTTP/1.1 and HTTP/2, with or without TLS, which answers with the request that it got.

use super::PATIENCE;
use super::tls::Pair;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::json;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How a server takes its connections.
#[derive(Default, Clone)]
pub(crate) struct Manner {
    /// The pair for TLS.
    pub(crate) pair: Option<Pair>,
    /// The protocols that it accepts in a handshake.
    pub(crate) alpn: Vec<&'static str>,
    /// The protocols from the second connection on, if they differ.
    pub(crate) later: Option<Vec<&'static str>>,
    /// The PEM of the authority that must have signed clients' certificates.
    pub(crate) clients: Option<String>,
    /// The number of streams that one connection may have at once.
    pub(crate) streams: Option<u32>,
}

/// The server. When dropped, it stops listening.
#[derive(Debug)]
pub(crate) struct ModernServer {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<SeenHere>,
    accepting: AbortHandle,
}

/// The observations of a server.
#[derive(Debug)]
pub(crate) struct SeenHere {
    pub(crate) connections: AtomicUsize,
    pub(crate) requests: AtomicUsize,
    /// The number of requests that wait at `/wait`.
    pub(crate) waiting: AtomicUsize,
    /// The number of requests at `/wait` that were broken off.
    pub(crate) broken: AtomicUsize,
    /// Releases the waiting requests.
    pub(crate) gate: Semaphore,
    /// The hosts that handshakes named.
    pub(crate) names: Mutex<Vec<String>>,
    /// The schemes that requests over HTTP/2 named.
    pub(crate) schemes: Mutex<Vec<String>>,
}

impl ModernServer {
    pub(crate) async fn start(manner: Manner) -> Self {
        Self::on("127.0.0.1:0", manner).await
    }

    pub(crate) async fn on(address: &str, mut manner: Manner) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(SeenHere {
            connections: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            broken: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            names: Mutex::default(),
            schemes: Mutex::default(),
        });
        let here = Arc::clone(&seen);
        let mut acceptor = manner.acceptor();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                here.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(take(
                    stream,
                    acceptor.clone(),
                    manner.streams,
                    Arc::clone(&here),
                ));
                if let Some(later) = manner.later.take() {
                    manner.alpn = later;
                    acceptor = manner.acceptor();
                }
            }
        });
        Self {
            address,
            seen,
            accepting: accepting.abort_handle(),
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for ModernServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Manner {
    fn acceptor(&self) -> Option<TlsAcceptor> {
        let pair = self.pair.as_ref()?;
        let cert = CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                roots
                    .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
                    .unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let mut config = builder.with_single_cert(vec![cert], key).unwrap();
        config.alpn_protocols = self
            .alpn
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        Some(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Accepts handshakes with this pair.
pub(crate) fn modern_acceptor(pair: &Pair) -> TlsAcceptor {
    let manner = Manner {
        pair: Some(pair.clone()),
        ..Manner::default()
    };
    manner.acceptor().unwrap()
}

async fn take(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    streams: Option<u32>,
    seen: Arc<SeenHere>,
) {
    stream.set_nodelay(true).unwrap();
    let Some(acceptor) = acceptor else {
        // Connections without TLS are HTTP/2, which the gateway knows by `h2c:`.
        return serve(stream, true, streams, seen).await;
    };
    let stream = match acceptor.accept(stream).into_fallible().await {
        Ok(stream) => stream,
        // Unread bytes turn the end of a connection into a reset, which may overtake the alert.
        Err((_, mut left)) => {
            let _ = left.shutdown().await;
            let _ = timeout(PATIENCE, copy(&mut left, &mut sink())).await;
            return;
        }
    };
    let named = stream.get_ref().1.server_name().unwrap_or_default();
    seen.names.lock().unwrap().push(named.to_owned());
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    serve(stream, is_http2, streams, seen).await;
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http2: bool,
    streams: Option<u32>,
    seen: Arc<SeenHere>,
) {
    let service = service_fn(move |request| answer(request, Arc::clone(&seen)));
    let io = TokioIo::new(stream);
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams(streams);
        let _ = builder.serve_connection(io, service).await;
    } else {
        let connection = http1::Builder::new().serve_connection(io, service);
        let _ = connection.with_upgrades().await;
    }
}

/// Counts a request that is broken off while it waits.
struct Waiting(Arc<SeenHere>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.broken.fetch_add(1, Ordering::SeqCst);
    }
}

async fn answer(
    mut request: Request<Incoming>,
    seen: Arc<SeenHere>,
) -> Result<Response<Body>, Infallible> {
    seen.requests.fetch_add(1, Ordering::SeqCst);
    if let Some(scheme) = request.uri().scheme_str() {
        seen.schemes.lock().unwrap().push(scheme.to_owned());
    }
    if request.headers().contains_key("upgrade") {
        let switching = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let Ok(upgraded) = switching.await else {
                return;
            };
            let mut stream = TokioIo::new(upgraded);
            let mut bytes = [0; 64];
            while let Ok(count) = stream.read(&mut bytes).await
                && count > 0
                && stream.write_all(&bytes[..count]).await.is_ok()
                && stream.flush().await.is_ok()
            {}
        });
        let mut response = Response::new(Body::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        for (name, value) in [("connection", "upgrade"), ("upgrade", "websocket")] {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        return Ok(response);
    }
    if request.uri().path() == "/wait" {
        seen.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Waiting(Arc::clone(&seen));
        seen.gate.acquire().await.unwrap().forget();
        std::mem::forget(waiting);
        seen.waiting.fetch_sub(1, Ordering::SeqCst);
    }
    if let Some(asked) = request.uri().path().strip_prefix("/fields/") {
        return Ok(with_fields(asked));
    }
    let (head, body) = request.into_parts();
    let collected = body.collect().await;
    let (length, trailers) = match collected {
        Ok(whole) => {
            let trailers = whole.trailers().map(fields).unwrap_or_default();
            (whole.to_bytes().len(), trailers)
        }
        Err(_) => (usize::MAX, Vec::new()),
    };
    let told = json!({
        "version": if head.version == Version::HTTP_2 { "2" } else { "1.1" },
        "method": head.method.as_str(),
        "authority": head.uri.authority().map(ToString::to_string),
        "scheme": head.uri.scheme_str(),
        "path": head.uri.path_and_query().map(ToString::to_string),
        "fields": fields(&head.headers),
        "length": length,
        "trailers": trailers,
    });
    let text = Bytes::from(told.to_string());
    let mut after = HeaderMap::new();
    after.insert("x-check", HeaderValue::from_static("done"));
    let frames = [Frame::data(text), Frame::trailers(after)];
    if head.method == "HEAD" {
        return Ok(Response::new(Body::default()));
    }
    Ok(Response::new(Body::of(frames)))
}

/// An answer with as many fields of such a length as `COUNT/LENGTH` says.
fn with_fields(asked: &str) -> Response<Body> {
    let (count, length) = asked.split_once('/').expect("COUNT/LENGTH");
    let value = "v".repeat(length.parse().unwrap());
    let mut response = Response::new(Body::default());
    for number in 0..count.parse::<usize>().unwrap() {
        let name: http::HeaderName = format!("x-{number}").parse().unwrap();
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

fn fields(map: &HeaderMap) -> Vec<(String, String)> {
    let each = map.iter();
    each.map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.to_string(), value)
    })
    .collect()
}

/// A body whose frames are all available at once.
#[derive(Debug, Default)]
struct Body(std::collections::VecDeque<Frame<Bytes>>);

impl Body {
    fn of(frames: impl IntoIterator<Item = Frame<Bytes>>) -> Self {
        Self(frames.into_iter().collect())
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.0.pop_front().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

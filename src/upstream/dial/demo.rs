//! The built-in demo upstream: a real HTTP server on a loopback socket, started if the file contains `demo:`.

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::net::TcpListener;

/// The address of this process's demo upstream, once it listens.
static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();

/// The address of the demo upstream.
///
/// # Errors
/// If it has not been started.
pub fn address() -> io::Result<SocketAddr> {
    ADDRESS.get().copied().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotConnected,
            "the demo upstream is not running",
        )
    })
}

/// Starts the demo upstream on the current runtime unless it runs already.
///
/// # Errors
/// If no loopback socket can be opened.
pub async fn start() -> io::Result<()> {
    if ADDRESS.get().is_some() {
        return Ok(());
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    ADDRESS.get_or_init(|| address);
    tokio::task::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            tokio::task::spawn(
                http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(Duration::from_secs(60))
                    .serve_connection(TokioIo::new(stream), service_fn(answer)),
            );
        }
    });
    Ok(())
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!(
        "Hello from the demo upstream: {} {}\n",
        request.method(),
        request.uri()
    );
    let response = Response::builder().header(header::CONTENT_TYPE, "text/plain; charset=utf-8");
    Ok(response
        .body(Full::new(Bytes::from(text)))
        .unwrap_or_default())
}

//! The client of a gateway's admin listener: one request, one answer, both JSON.

use super::runtime;
use crate::listen::bind::reachable;
use crate::listen::listener::ListenAddress;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use std::net::AddrParseError;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// The longest wait for the connection, and for the answer on it.
const WITHIN: Duration = Duration::from_secs(3);
/// The most bytes of an answer.
const MOST: usize = 1024 * 1024;

/// The answer to `POST path` at the admin listener on `listen`.
///
/// # Errors
/// If there is no answer, with the reason.
pub(super) fn post(listen: &ListenAddress, path: &str, body: &Value) -> io::Result<Value> {
    let request = Request::post(path)
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string())
        .map_err(io::Error::other)?;
    runtime()?.block_on(ask(listen, request))
}

/// The answer to `GET path` at the admin listener on `listen`.
///
/// # Errors
/// If there is no answer, with the reason.
pub(super) async fn get(listen: &ListenAddress, path: &str) -> io::Result<Value> {
    let request = Request::get(path).body(String::new());
    ask(listen, request.map_err(io::Error::other)?).await
}

async fn ask(listen: &ListenAddress, mut request: Request<String>) -> io::Result<Value> {
    let host = match listen.socket_address() {
        Some(address) => reachable(address).to_string(),
        None => "localhost".to_owned(),
    };
    let host = HeaderValue::try_from(host).map_err(io::Error::other)?;
    request.headers_mut().insert(HOST, host);
    match listen {
        ListenAddress::Tcp(_) | ListenAddress::EveryAddress(_) => {
            let address = listen.socket_address().map(reachable);
            let address = address.ok_or(io::ErrorKind::AddrNotAvailable)?;
            let connecting = TcpStream::connect(address);
            let stream = timeout(WITHIN, connecting).await??;
            timeout(WITHIN, exchange(stream, request)).await?
        }
        ListenAddress::Unix(path) => {
            let stream = timeout(WITHIN, UnixStream::connect(path)).await??;
            timeout(WITHIN, exchange(stream, request)).await?
        }
        ListenAddress::Systemd(_) => Err(io::Error::other(
            "systemd opens the admin listener: name the address in its unit, as `--live=127.0.0.1:9090` or `--live=unix:/run/tollgate/admin.sock`",
        )),
    }
}

/// Reads the address of an admin listener.
pub(super) fn address(text: &str) -> Result<ListenAddress, String> {
    match text.strip_prefix("unix:") {
        Some(path) => Ok(ListenAddress::Unix(Path::new(path).into())),
        None => text
            .parse()
            .map(ListenAddress::Tcp)
            .map_err(|wrong: AddrParseError| wrong.to_string()),
    }
}

/// Sends the request, the only one on its connection, and reads the answer.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<String>,
) -> io::Result<Value> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // Errors of the connection also appear in the result of the request.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(failure)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MOST).collect().await;
    let body = body.map_err(io::Error::other)?.to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status == StatusCode::OK {
        return Ok(body);
    }
    let detail = body["detail"].as_str();
    let detail = detail.unwrap_or("is it the admin listener of a gateway?");
    let status = status.as_str();
    Err(io::Error::other(format!("it answered {status}: {detail}")))
}

fn failure(error: hyper::Error) -> io::Error {
    if error.is_parse() {
        io::Error::other("its answer is not HTTP")
    } else {
        io::Error::other(error)
    }
}

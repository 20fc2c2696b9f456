//! The client of a gateway's admin listener: one request, one answer, both JSON.

use super::runtime;
use crate::listen::bind::reachable;
use crate::listen::listener::ListenAddress;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::fmt;
use std::io;
use std::net::AddrParseError;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

/// The longest wait for the connection, and for most answers on it.
pub(super) const WITHIN: Duration = Duration::from_secs(3);
/// The most bytes of an answer.
const MOST: usize = 1024 * 1024;
/// The longest time that a gateway may ask to wait; a command waits once.
const LONGEST_PAUSE: u64 = 5;
/// The variable with a token.
pub(super) const TOKEN_VARIABLE: &str = "TOLLGATE_TOKEN";

/// A gateway that a command asks.
#[derive(Clone)]
pub(super) struct AdminClient {
    place: AdminAddress,
    token: Option<HeaderValue>,
}

/// Where an admin listener is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AdminAddress {
    /// A host and its port, which is resolved when it is asked.
    Tcp(String),
    /// The file of a Unix socket.
    Unix(PathBuf),
    /// A socket of systemd, whose address only its unit knows.
    Systemd,
}

/// An answer of any status.
#[derive(Debug)]
pub(super) struct AdminAnswer {
    pub(super) status: StatusCode,
    pub(super) body: Value,
    /// The seconds after which to ask again, if it says so.
    retry_after: Option<u64>,
}

impl AdminAddress {
    /// Reads `--admin`: a URL, `HOST:PORT` or `unix:PATH`.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if text.starts_with("https://") {
            return Err("the admin listener has no TLS in this version: ask a proxy in front of it, or over ssh".to_owned());
        }
        let host = text.strip_prefix("http://").unwrap_or(text);
        let host = host.strip_suffix('/').unwrap_or(host);
        let is_whole = host
            .parse::<http::uri::Authority>()
            .is_ok_and(|host| host.port_u16().is_some() && !host.as_str().contains('@'));
        if is_whole {
            Ok(Self::Tcp(host.to_owned()))
        } else {
            Err("write HOST:PORT, http://HOST:PORT or unix:PATH".to_owned())
        }
    }
}

impl From<&ListenAddress> for AdminAddress {
    fn from(listen: &ListenAddress) -> Self {
        match (listen, listen.socket_address()) {
            (ListenAddress::Unix(path), _) => Self::Unix(path.to_path_buf()),
            (_, Some(address)) => Self::Tcp(reachable(address).to_string()),
            (_, None) => Self::Systemd,
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => f.write_str(host),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Systemd => f.write_str("a socket of systemd"),
        }
    }
}

/// A request to a gateway.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdminQuestion<'q> {
    method: &'q Method,
    path: &'q str,
    body: Option<&'q Value>,
    /// The longest time for the answer.
    within: Duration,
}

impl<'q> AdminQuestion<'q> {
    pub(super) fn get(path: &'q str, within: Duration) -> Self {
        Self {
            method: &Method::GET,
            path,
            body: None,
            within,
        }
    }

    pub(super) fn post(path: &'q str, body: &'q Value, within: Duration) -> Self {
        Self {
            method: &Method::POST,
            path,
            body: Some(body),
            within,
        }
    }
}

impl AdminClient {
    /// A client of the gateway there, with this token.
    ///
    /// # Errors
    /// If the token can be in no field.
    pub(super) fn new(place: AdminAddress, token: Option<&str>) -> Result<Self, String> {
        let field = token.map(|token| {
            let mut field = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| "the token has characters that no token has".to_owned())?;
            field.set_sensitive(true);
            Ok::<_, String>(field)
        });
        Ok(Self {
            place,
            token: field.transpose()?,
        })
    }

    /// The answer to one request. A gateway that asks to wait is asked once more.
    ///
    /// # Errors
    /// If there is no answer, with the reason.
    pub(super) async fn ask(&self, question: AdminQuestion<'_>) -> io::Result<AdminAnswer> {
        let answer = self.ask_once(question).await?;
        let pause = answer.retry_after.filter(|pause| *pause <= LONGEST_PAUSE);
        match pause.filter(|_| answer.status == StatusCode::TOO_MANY_REQUESTS) {
            Some(pause) => {
                sleep(Duration::from_secs(pause)).await;
                self.ask_once(question).await
            }
            None => Ok(answer),
        }
    }

    async fn ask_once(&self, question: AdminQuestion<'_>) -> io::Result<AdminAnswer> {
        let host = match &self.place {
            AdminAddress::Tcp(host) => host.as_str(),
            AdminAddress::Unix(_) | AdminAddress::Systemd => "localhost",
        };
        let mut request = Request::builder()
            .method(question.method)
            .uri(question.path)
            .header(HOST, host);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        if question.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = question.body.map_or_else(String::new, Value::to_string);
        let request = request.body(body).map_err(io::Error::other)?;
        match &self.place {
            AdminAddress::Tcp(host) => {
                let stream = timeout(WITHIN, TcpStream::connect(host)).await??;
                timeout(question.within, exchange(stream, request)).await?
            }
            AdminAddress::Unix(path) => {
                let stream = timeout(WITHIN, UnixStream::connect(path)).await??;
                timeout(question.within, exchange(stream, request)).await?
            }
            AdminAddress::Systemd => Err(io::Error::other(
                "systemd opens the admin listener: name the address in its unit, as `127.0.0.1:9090` or `unix:/run/tollgate/admin.sock`",
            )),
        }
    }
}

/// The answer to `POST path` at the admin listener on `listen`.
///
/// # Errors
/// If there is no good answer, with the reason.
pub(super) fn post(listen: &ListenAddress, path: &str, body: &Value) -> io::Result<Value> {
    runtime()?.block_on(good(listen, AdminQuestion::post(path, body, WITHIN)))
}

/// The answer to `GET path` at the admin listener on `listen`.
///
/// # Errors
/// If there is no good answer, with the reason.
pub(super) async fn get(listen: &ListenAddress, path: &str) -> io::Result<Value> {
    good(listen, AdminQuestion::get(path, WITHIN)).await
}

async fn good(listen: &ListenAddress, question: AdminQuestion<'_>) -> io::Result<Value> {
    let token = std::env::var(TOKEN_VARIABLE).ok();
    let token = token
        .as_deref()
        .map(str::trim)
        .filter(|token| !token.is_empty());
    let client = AdminClient::new(listen.into(), token).map_err(io::Error::other)?;
    let AdminAnswer { status, body, .. } = client.ask(question).await?;
    if status == StatusCode::OK {
        return Ok(body);
    }
    let detail = body["detail"].as_str();
    let detail = detail.unwrap_or("is it the admin listener of a gateway?");
    let status = status.as_str();
    Err(io::Error::other(format!("it answered {status}: {detail}")))
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
) -> io::Result<AdminAnswer> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // Errors of the connection also appear in the result of the request.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(failure)?;
    let status = answer.status();
    let retry_after = answer.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|field| field.to_str().ok()?.parse().ok());
    let body = Limited::new(answer.into_body(), MOST).collect().await;
    let body = body.map_err(io::Error::other)?.to_bytes();
    Ok(AdminAnswer {
        status,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        retry_after,
    })
}

fn failure(error: hyper::Error) -> io::Error {
    if error.is_parse() {
        io::Error::other("its answer is not HTTP")
    } else {
        io::Error::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_a_host_or_a_file() {
        let tcp = |text: &str| Ok(AdminAddress::Tcp(text.to_owned()));
        assert_eq!(
            AdminAddress::read("http://a.test:9090/"),
            tcp("a.test:9090")
        );
        assert_eq!(AdminAddress::read("[::1]:9090"), tcp("[::1]:9090"));
        let unix = AdminAddress::Unix(PathBuf::from("/run/a"));
        assert_eq!(AdminAddress::read("unix:/run/a"), Ok(unix));
        for odd in [
            "",
            "a",
            "9090",
            "https://a:1",
            "http://a:1/v1",
            "u@a:1",
            "a:b",
        ] {
            assert!(AdminAddress::read(odd).is_err(), "{odd}");
        }
    }
}

//! One request of the gateway's own to a server of others, independent of clients' requests: a separate connection, TLS
//! 1.2 or later, a bound on the answer. The caller sets the deadline.

use crate::interim::{BoundedStream, InterimWatch};
use crate::tls::ClientTls;
use bytes::Bytes;
use http::header::HOST;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The cause for which there is no answer.
pub type FetchError = Box<dyn std::error::Error + Send + Sync>;

/// Sends a request to the server of its URL over HTTP/1.1, and reads an answer of at most `longest` bytes. No redirect
/// is followed. `http://` is used without TLS, to a server on this machine alone.
///
/// # Errors
/// If there is no connection, no answer, or an answer beyond the bound.
pub async fn exchange(
    tls: &ClientTls,
    request: Request<Full<Bytes>>,
    longest: usize,
) -> Result<Response<Bytes>, FetchError> {
    let uri = request.uri().clone();
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if uri.scheme() != Some(&Scheme::HTTPS) {
        let tcp = TcpStream::connect((host, uri.port_u16().unwrap_or(80))).await?;
        if !tcp.peer_addr()?.ip().is_loopback() {
            return Err(
                "`http://` is only for this machine, and the URL names another host".into(),
            );
        }
        return over(tcp, request, longest).await;
    }
    let name = tls.name_of(host).ok_or("its host is no name")?;
    let config = tls.config().map_err(|why| {
        format!("no authority is trusted here: {why}; name a file of them with `ca`")
    })?;
    let tcp = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
    let stream = TlsConnector::from(config).connect(name, tcp).await?;
    over(stream, request, longest).await
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut request: Request<Full<Bytes>>,
    longest: usize,
) -> Result<Response<Bytes>, FetchError> {
    let uri = request.uri().clone();
    let interim = InterimWatch::default();
    interim.over(&mut request);
    let stream = BoundedStream::new(stream, interim.clone());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = AbortOnDrop(tokio::spawn(connection));
    if let Some(authority) = uri.authority() {
        let host = HeaderValue::from_str(authority.as_str())?;
        request.headers_mut().insert(HOST, host);
    }
    *request.uri_mut() = uri
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .parse()?;
    let answer = sender.send_request(request).await;
    interim.check()?;
    let (parts, body) = answer?.into_parts();
    let body = Limited::new(body, longest).collect().await?.to_bytes();
    drop(connection);
    Ok(Response::from_parts(parts, body))
}

/// A task that is aborted when its handle is dropped.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// The answer of a server that sends this number of interim answers first.
    async fn behind(interim: usize) -> Result<Response<Bytes>, FetchError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let read = stream.read(&mut [0; 1024]).await.unwrap();
            assert!(read > 0, "a request");
            let sent = "HTTP/1.1 103 E\r\n\r\n".repeat(interim);
            let sent = sent + "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            let _ = stream.write_all(sent.as_bytes()).await;
        });
        let request = Request::get(url).body(Full::default())?;
        exchange(&ClientTls::of_system(), request, 1024).await
    }

    #[tokio::test]
    async fn a_hundred_interim_answers_are_heard_and_no_more() {
        assert_eq!(behind(100).await.unwrap().into_body(), "{}");
        for interim in [101, 50_000] {
            let error = behind(interim).await.unwrap_err().to_string();
            assert!(error.contains("interim answers"), "{error}");
        }
    }
}

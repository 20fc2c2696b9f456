//! Opens a stream to a server: the socket, and the TLS handshake if the server uses TLS.
//!
//! In: a destination. Out: a stream to it, or the failure before any request is sent.
//!
//! ```text
//! destination     what a connection depends on
//! stream          the bytes between gateway and server
//! open_socket     what an open connection takes
//! connect_error   failures before any request is sent
//! other_protocol  a server that speaks something else, by its first bytes
//! demo            the built-in demo server
//! ```

pub(super) mod connect_error;
pub mod demo;
pub(super) mod destination;
pub(super) mod open_socket;
pub(super) mod other_protocol;
pub(super) mod stream;

use super::server::server_tls::OfferedProtocols;
use super::{ConnectError, Destination, ServerProtocol, ServerTls, ServerUrl};
use crate::tls::{self, Advice};
use socket2::SockRef;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stream::{EncryptedStream, HandshakeAbandoned, ServerStream};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Advice for an operator if a handshake fails.
const ADVICE: Advice = Advice {
    table: "`tls` of the upstream",
    name_key: "name",
    plaintext: "write `http://` in place of `https://`",
};

/// The addition if a handshake is not answered.
const SILENT_HANDSHAKE: &str =
    ": the server has not answered the TLS handshake; does it speak TLS on this port?";

/// The bytes of a request that may wait in our system for the server's. By default it buffers megabytes, and reports a
/// slowly reading server seconds too late, or never. Writing continues when half of them are gone.
const MOST_UNSENT: u32 = 16 * 1024;
/// The same for a Unix socket, where bytes in transfer count too.
const MOST_UNSENT_LOCALLY: usize = 64 * 1024;

/// A stream that has been opened.
#[derive(Debug)]
pub(super) struct OpenedStream {
    /// The stream.
    pub(super) stream: ServerStream,
    /// The stream uses HTTP/2.
    pub(super) is_http2: bool,
}

/// The protocols that a connection to `destination` may use.
pub(super) fn offered(destination: &Destination) -> OfferedProtocols {
    match destination.protocol {
        ServerProtocol::Auto => OfferedProtocols::Both,
        ServerProtocol::Http1 => OfferedProtocols::Http1,
        ServerProtocol::Http2 => OfferedProtocols::Http2,
    }
}

/// Opens a stream within `deadline`, the handshake included.
///
/// # Errors
/// If the server cannot be reached, or the handshake fails.
pub(super) async fn open(
    destination: &Destination,
    offer: OfferedProtocols,
    deadline: Duration,
) -> Result<OpenedStream, ConnectError> {
    let is_reached = AtomicBool::new(false);
    let opening = async {
        let bare = reach(destination)
            .await
            .map_err(|error| unreached(destination, error))?;
        is_reached.store(true, Ordering::Relaxed);
        match (&destination.tls, bare) {
            (Some(tls), ServerStream::Tcp(socket)) => {
                encrypt(destination, tls, socket, offer).await
            }
            (_, stream) => Ok(OpenedStream {
                stream,
                is_http2: offer == OfferedProtocols::Http2,
            }),
        }
    };
    match timeout(deadline, opening).await {
        Ok(opened) => opened,
        Err(_) => Err(ConnectError::Timeout {
            server: destination.to_string().into(),
            after: deadline,
            hint: if is_reached.load(Ordering::Relaxed) {
                SILENT_HANDSHAKE
            } else {
                ""
            },
        }),
    }
}

/// The socket of a destination.
async fn reach(destination: &Destination) -> io::Result<ServerStream> {
    let address = match (&destination.url, destination.address) {
        (ServerUrl::Unix(path), _) => {
            let stream = match &destination.socket_fence {
                Some(fence) => fence.connect(Path::new(&**path)).await?,
                None => UnixStream::connect(&**path).await?,
            };
            note_unbounded(SockRef::from(&stream).set_send_buffer_size(MOST_UNSENT_LOCALLY));
            return Ok(ServerStream::Unix(stream));
        }
        (ServerUrl::Demo, _) => demo::address()?,
        (_, Some(address)) => address,
        (_, None) => return Err(io::Error::other("it has no address")),
    };
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    note_unbounded(bound_unsent(&stream));
    Ok(ServerStream::Tcp(stream))
}

/// A system that cannot set such a bound works nevertheless: a slow server's time is then measured less accurately.
fn note_unbounded(set: io::Result<()>) {
    if let Err(error) = set {
        tracing::debug!("the system sets no bound on unsent bytes: {error}");
    }
}

/// At most [`MOST_UNSENT`] bytes wait unsent in the system. Bytes in transfer do not count, so that a long path costs
/// no throughput.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn bound_unsent(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_tcp_notsent_lowat(MOST_UNSENT)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[expect(clippy::unnecessary_wraps, reason = "other systems can fail")]
fn bound_unsent(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

fn unreached(destination: &Destination, error: io::Error) -> ConnectError {
    ConnectError::Io {
        server: destination.to_string().into(),
        source: error.into(),
    }
}

async fn encrypt(
    destination: &Destination,
    tls: &ServerTls,
    socket: TcpStream,
    offer: OfferedProtocols,
) -> Result<OpenedStream, ConnectError> {
    let failed = |why: String| ConnectError::Tls {
        server: destination.to_string().into(),
        why: why.into(),
    };
    let config = tls
        .config(offer)
        .map_err(|why| failed(format!("this system has no authorities to trust ({why})")))?;
    let host = destination.url.host_and_port().map_or("", |(host, _)| host);
    let name = tls.client().name_of(host);
    let name = name.ok_or_else(|| failed("no certificate can have such a name".to_owned()))?;
    let shaken = TlsConnector::from(config).connect(name, socket).await;
    let stream = shaken.map_err(|error| {
        if tls::is_without_protocol(&error) {
            return without_protocol(destination, offer);
        }
        let why = tls::explain(&error, ADVICE).unwrap_or_else(|| broken_off(&error));
        failed(format!("TLS: {why}"))
    })?;
    let stream = EncryptedStream::new(stream);
    let is_http2 = stream.connection().alpn_protocol() == Some(b"h2");
    if offer == OfferedProtocols::Http2 && !is_http2 {
        return Err(without_protocol(destination, offer));
    }
    Ok(OpenedStream {
        stream: ServerStream::Tls(stream),
        is_http2,
    })
}

/// The server accepts no protocol of `offer`. For an HTTP/2 server that receives a tunnel request this is not a
/// failure.
fn without_protocol(destination: &Destination, offer: OfferedProtocols) -> ConnectError {
    let server = destination.to_string().into();
    let why = match offer {
        OfferedProtocols::Http1 if destination.protocol != ServerProtocol::Http1 => {
            let why = "the server does not accept HTTP/1.1 in the handshake, and WebSockets need HTTP/1.1: give their route an upstream whose servers speak it";
            return ConnectError::Protocol {
                server,
                why: why.into(),
            };
        }
        OfferedProtocols::Http1 => {
            "the server does not accept HTTP/1.1 in the handshake: write `http = \"2\"`, or leave `http` out"
        }
        OfferedProtocols::Http2 => {
            "the server does not offer HTTP/2 in the handshake: write `http = \"1.1\"`, or leave `http` out"
        }
        OfferedProtocols::Both => "the server takes neither HTTP/2 nor HTTP/1.1 in the handshake",
    };
    ConnectError::Tls {
        server,
        why: why.into(),
    }
}

/// The refusal of our certificate, or of the lack of one, that a server has sent after the handshake, in words; or the
/// fact that the server ended the connection there without one.
#[cold]
pub(super) fn refused_certificate(error: &io::Error) -> Option<String> {
    let inner = error.get_ref();
    let abandoned = inner.and_then(|inner| inner.downcast_ref::<HandshakeAbandoned>());
    let why = match abandoned {
        Some(abandoned) => format!(
            "{abandoned}: does it demand a client's certificate? Name it as `cert` and `key` in {}",
            ADVICE.table
        ),
        None => tls::refused_certificate(error, ADVICE)?,
    };
    Some(format!("TLS: {why}"))
}

/// A handshake that the server ended without an alert.
fn broken_off(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            "the server closed the connection in the handshake; does it speak TLS on this port?"
                .to_owned()
        }
        _ => format!("the handshake failed: {error}"),
    }
}

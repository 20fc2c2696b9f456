//! One look at a server, for an operator: its addresses, whether it takes a connection, and what it speaks.

use super::dial::{self, OpenedStream};
use super::other_protocol::OtherProtocol;
use super::stream::ServerStream;
use super::upstream_state::Member;
use super::{ConnectError, Destination, OfferedProtocols, Protocol, Server, ServerUrl, Upstream};
use crate::clock;
use crate::tls::CertificateFacts;
use crate::upstream::resolution::Lookup;
use crate::upstream::server_state::ServerState;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// The longest wait for the first bytes of an answer. A server that is silent for longer may be a slow one.
const FIRST_BYTES: Duration = Duration::from_secs(1);
/// What a connection of HTTP/2 begins with (RFC 9113, section 3.4), with settings that change nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// What was found at one address of a server.
#[derive(Debug)]
pub struct Finding {
    /// The server as it is shown.
    pub server: String,
    /// What it speaks, or why there is no connection.
    pub outcome: Result<Reached, String>,
}

/// A server that takes connections.
#[derive(Debug)]
pub struct Reached {
    /// The time of the connection, the handshake included.
    pub took: Duration,
    /// What is spoken: `TLS 1.3, HTTP/2`.
    pub speaks: String,
    /// The end of its certificate's life, in seconds since 1970.
    pub not_after: Option<i64>,
}

/// Looks at all addresses of a server.
pub async fn look(upstream: &Upstream, server: &Server, lookup: &Lookup) -> Vec<Finding> {
    let within = upstream.connect_timeout;
    let addresses = match addresses(server, lookup, within).await {
        Ok(addresses) => addresses,
        Err(why) => {
            return vec![Finding {
                server: server.url.to_string(),
                outcome: Err(why),
            }];
        }
    };
    let mut findings = Vec::new();
    for address in addresses {
        let member = Member {
            server: server.clone(),
            address,
            share: 0,
            state: Arc::new(ServerState::new(&server.url, address)),
        };
        let destination = Destination::of(upstream, &member);
        let outcome = reach(&destination, within).await;
        findings.push(Finding {
            server: destination.to_string(),
            outcome: outcome.map_err(|error| error.in_full()),
        });
    }
    findings
}

async fn addresses(
    server: &Server,
    lookup: &Lookup,
    within: Duration,
) -> Result<Vec<Option<SocketAddr>>, String> {
    let Some(name) = server.url.name() else {
        return Ok(vec![server.url.address()]);
    };
    let port = server.url.host_and_port().map_or(0, |(_, port)| port);
    match timeout(within, lookup(Arc::clone(name))).await {
        Err(_) => Err(format!("{name} is not resolved within {within:?}")),
        Ok(Err(error)) => Err(format!("{name} cannot be resolved: {error}")),
        Ok(Ok(found)) if found.is_empty() => Err(format!("{name} has no address")),
        Ok(Ok(found)) => Ok(found
            .into_iter()
            .map(|ip| Some(SocketAddr::new(ip, port)))
            .collect()),
    }
}

async fn reach(destination: &Destination, within: Duration) -> Result<Reached, ConnectError> {
    let begun = clock::now();
    let offer = dial::offered(destination);
    let mut opened = dial::open(destination, offer, within).await?;
    let took = begun.elapsed();
    let (encryption, not_after) = encryption(&opened);
    let speaks = match &destination.tls {
        Some(_) if opened.is_http2 => "HTTP/2",
        Some(_) => "HTTP/1.1",
        None => {
            let other = first_answer(&mut opened.stream, destination).await;
            let is_http2 = offer == OfferedProtocols::Http2;
            match other {
                Some(OtherProtocol::Http2) if is_http2 => "HTTP/2",
                Some(OtherProtocol::Http1) if !is_http2 => "HTTP/1.1",
                None => "does not tell what it speaks",
                Some(other) => {
                    return Err(ConnectError::Protocol {
                        server: destination.to_string().into(),
                        why: other.to_string().into(),
                    });
                }
            }
        }
    };
    Ok(Reached {
        took,
        speaks: format!("{encryption}{speaks}"),
        not_after,
    })
}

/// The version of TLS, and the end of the certificate.
fn encryption(opened: &OpenedStream) -> (String, Option<i64>) {
    let ServerStream::Tls(stream) = &opened.stream else {
        return (String::new(), None);
    };
    let connection = stream.connection();
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLS 1.2, ",
        _ => "TLS 1.3, ",
    };
    let own = connection.peer_certificates().and_then(|all| all.first());
    let facts = own.and_then(CertificateFacts::read);
    (version.to_owned(), facts.map(|facts| facts.not_after))
}

/// The protocol of the first bytes that come back.
async fn first_answer(
    stream: &mut ServerStream,
    destination: &Destination,
) -> Option<OtherProtocol> {
    let question = match destination.protocol {
        Protocol::Http2 => PREFACE.to_vec(),
        Protocol::Auto | Protocol::Http1 => {
            let host = match &destination.url {
                ServerUrl::Unix(_) | ServerUrl::Demo => "localhost".to_owned(),
                url => url.authority(),
            };
            format!("OPTIONS * HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").into_bytes()
        }
    };
    let asking = async {
        stream.write_all(&question).await.ok()?;
        let mut bytes = [0; 9];
        let mut count = 0;
        while count < bytes.len() {
            match stream.read(&mut bytes[count..]).await {
                Ok(more) if more > 0 => count += more,
                _ => break,
            }
        }
        OtherProtocol::of(&bytes[..count])
    };
    timeout(FIRST_BYTES, asking).await.ok().flatten()
}

//! One survey of a server, for an operator: its addresses, whether it accepts a connection, its protocol, and its
//! answer to a probe.

use crate::clock;
use crate::tls::CertificateFacts;
use crate::upstream::dial::other_protocol::OtherProtocol;
use crate::upstream::dial::stream::ServerStream;
use crate::upstream::dial::{self, OpenedStream};
use crate::upstream::state::resolution::AddressLookup;
use crate::upstream::state::server_state::ServerState;
use crate::upstream::state::upstream_state::Member;
use crate::upstream::{
    ConnectError, Destination, OfferedProtocols, Server, ServerUrl, Upstream, probe,
};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// The longest wait for the first bytes of an answer. A server that is silent for longer may be merely slow.
const FIRST_BYTES: Duration = Duration::from_secs(1);
/// The beginning of an HTTP/2 connection (RFC 9113, section 3.4), with settings that change nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// A TLS 1.2 hello with 32 fixed bytes in place of random ones, four cipher suites, two curves and four signature schemes. A TLS server
/// answers with a handshake or an alert.
const HELLO: &[u8] = b"\x16\x03\x01\0\x53\x01\0\0\x4f\x03\x03tollgate looks what is spoken...\0\
    \0\x08\xc0\x2b\xc0\x2f\xc0\x2c\xc0\x30\x01\0\
    \0\x1e\0\x0a\0\x06\0\x04\0\x1d\0\x17\0\x0b\0\x02\x01\0\0\x0d\0\x0a\0\x08\x04\x03\x08\x04\x04\x01\x05\x03";

/// The finding at one address of a server.
#[derive(Debug)]
pub struct Finding {
    /// The server's name.
    pub server: String,
    /// The server's protocol, or the reason why there is no connection.
    pub outcome: Result<ReachedServer, String>,
}

/// A server that accepts connections.
#[derive(Debug)]
pub struct ReachedServer {
    /// The time of the connection, the handshake included.
    pub took: Duration,
    /// The protocols in use: `TLS 1.3, HTTP/2`.
    pub speaks: String,
    /// The expiry of its certificate, in seconds since 1970.
    pub not_after: Option<i64>,
    /// The result of the file's probe, if configured: an error has the reason in words.
    pub probe: Option<Result<(), String>>,
}

/// The beginning of an answer.
enum FirstAnswer {
    /// The answer is in this protocol.
    In(OtherProtocol),
    /// The server ended the connection without a byte.
    Ended,
    /// Nothing arrived in time, or unknown bytes.
    Unknown,
}

/// Surveys all addresses of a server.
pub async fn look(upstream: &Upstream, server: &Server, lookup: &AddressLookup) -> Vec<Finding> {
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
        let mut outcome = outcome.map_err(|error| error.in_full());
        if let (Ok(reached), Some(rule)) = (&mut outcome, &upstream.rules.health) {
            reached.probe = Some(probe::ask(upstream, &member, rule).await);
        }
        findings.push(Finding {
            server: destination.to_string(),
            outcome,
        });
    }
    findings
}

async fn addresses(
    server: &Server,
    lookup: &AddressLookup,
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

async fn reach(destination: &Destination, within: Duration) -> Result<ReachedServer, ConnectError> {
    let begun = clock::now();
    let offer = dial::offered(destination);
    let mut opened = dial::open(destination, offer, within).await?;
    let took = begun.elapsed();
    let (encryption, not_after) = encryption(&opened);
    let answer = first_answer(&mut opened, destination).await?;
    let speaks = match (&destination.tls, answer) {
        (Some(_), _) if opened.is_http2 => "HTTP/2",
        (Some(_), _) => "HTTP/1.1",
        (None, FirstAnswer::In(OtherProtocol::Http2)) if opened.is_http2 => "HTTP/2",
        (None, FirstAnswer::In(OtherProtocol::Http1)) if !opened.is_http2 => "HTTP/1.1",
        (None, FirstAnswer::In(other)) => return Err(misfit(destination, other)),
        (None, FirstAnswer::Ended) if speaks_tls(destination, within).await => {
            return Err(misfit(destination, OtherProtocol::Tls));
        }
        (None, FirstAnswer::Ended) if opened.is_http2 => {
            "ends the connection where HTTP/2 begins (it may speak HTTP/1.1, write `http://`)"
        }
        (None, FirstAnswer::Ended) => "ends the connection without an answer",
        (None, FirstAnswer::Unknown) => "does not show its protocol",
    };
    Ok(ReachedServer {
        took,
        speaks: format!("{encryption}{speaks}"),
        not_after,
        probe: None,
    })
}

fn misfit(destination: &Destination, other: OtherProtocol) -> ConnectError {
    ConnectError::Protocol {
        server: destination.to_string().into(),
        why: other.to_string().into(),
    }
}

/// Does a server that sent no byte answer a TLS hello?
async fn speaks_tls(destination: &Destination, within: Duration) -> bool {
    let Ok(mut opened) = dial::open(destination, OfferedProtocols::Http1, within).await else {
        return false;
    };
    let answer = timeout(FIRST_BYTES, ask(&mut opened.stream, HELLO)).await;
    matches!(answer, Ok(Ok(FirstAnswer::In(OtherProtocol::Tls))))
}

/// The TLS version, and the expiry of the certificate.
fn encryption(opened: &OpenedStream) -> (String, Option<i64>) {
    let ServerStream::Tls(stream) = &opened.stream else {
        return (String::new(), None);
    };
    let connection = stream.connection();
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLS 1.2, ",
        _ => "TLS 1.3, ",
    };
    let leaf = connection.peer_certificates().and_then(|all| all.first());
    let facts = leaf.and_then(CertificateFacts::read);
    (version.to_owned(), facts.map(|facts| facts.not_after))
}

/// The beginning of the answer to a request that changes nothing.
///
/// # Errors
/// When the server does not accept our certificate, or wants one: over TLS 1.3 it says so behind the handshake.
async fn first_answer(
    opened: &mut OpenedStream,
    destination: &Destination,
) -> Result<FirstAnswer, ConnectError> {
    let question = if opened.is_http2 {
        PREFACE.to_vec()
    } else {
        let host = match &destination.url {
            ServerUrl::Unix(_) | ServerUrl::Demo => "localhost".to_owned(),
            url => url.authority(),
        };
        format!("OPTIONS * HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").into_bytes()
    };
    match timeout(FIRST_BYTES, ask(&mut opened.stream, &question)).await {
        Err(_) => Ok(FirstAnswer::Unknown),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => match dial::refused_certificate(&error) {
            None => Ok(FirstAnswer::Ended),
            Some(why) => Err(ConnectError::Tls {
                server: destination.to_string().into(),
                why: why.into(),
            }),
        },
    }
}

async fn ask(stream: &mut ServerStream, question: &[u8]) -> io::Result<FirstAnswer> {
    // A server that does not read the request may have sent the reason.
    let asked = stream.write_all(question).await;
    let mut bytes = [0; 9];
    let mut count = 0;
    while count < bytes.len() {
        match stream.read(&mut bytes[count..]).await? {
            0 => break,
            more => count += more,
        }
    }
    if count == 0 {
        asked?;
    }
    Ok(match OtherProtocol::of(&bytes[..count]) {
        Some(protocol) => FirstAnswer::In(protocol),
        None if count == 0 => FirstAnswer::Ended,
        None => FirstAnswer::Unknown,
    })
}

//! One probe: a request to a server on a separate connection, within the time that the file sets.
//!
//! In: a server and its rule. Out: whether the server is healthy. No client's request waits for it.
//!
//! ```text
//! keeper  beside requests: ejections end, shares grow, servers are probed
//! survey  one look at a server, for `check --connect`
//! ```

pub mod keeper;
pub mod survey;

use super::dial::stream::ServerStream;
use super::rules::probe_rule::{ProbeQuestion, ProbeRule};
use super::state::upstream_state::Member;
use super::transport::http1::{AnswerError, answer_head};
use super::transport::http2::connection::settings;
use super::transport::http2::hear_interim;
use super::transport::library_words::HeardWords;
use super::transport::stream_fault::{AnswerPart, StreamFault};
use super::{Destination, OfferedProtocols, Upstream, dial};
use crate::clock;
use crate::interim::InterimCount;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use std::future::{Future, poll_fn};
use std::ops::RangeInclusive;
use std::pin::{Pin, pin};
use std::task::Poll;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout, timeout_at};

/// The most bytes of an answer's body that are read.
const MOST_BODY: usize = 64 * 1024;
/// The largest answer about health in gRPC.
const MOST_BYTES: usize = 4 * 1024;
/// The method that shows the health of a service (gRPC health checking protocol).
const CHECK: &str = "/grpc.health.v1.Health/Check";
/// The user agent of probes.
const USER_AGENT: &str = "tollgate-probe";
/// The status of a healthy service.
const SERVING: u8 = 1;

/// Probes `member`.
///
/// # Errors
/// If it does not serve, with the reason in words.
pub(super) async fn ask(
    upstream: &Upstream,
    member: &Member,
    rule: &ProbeRule,
) -> Result<(), String> {
    let asking = question(upstream, member, rule, clock::now() + rule.timeout);
    match timeout(rule.timeout, asking).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {:?}", rule.timeout)),
    }
}

async fn question(
    upstream: &Upstream,
    member: &Member,
    rule: &ProbeRule,
    until: Instant,
) -> Result<(), String> {
    let destination = Destination::of(upstream, member);
    let offer = match rule.ask {
        ProbeQuestion::Grpc { .. } => OfferedProtocols::Http2,
        _ => dial::offered(&destination),
    };
    let opened = dial::open(&destination, offer, rule.timeout).await;
    let opened = opened.map_err(|error| error.in_full())?;
    let authority = member.server.url.authority();
    match &rule.ask {
        ProbeQuestion::Connect => Ok(()),
        ProbeQuestion::Http { path, host, status } => {
            let host = host.as_deref().unwrap_or(&authority);
            let good = GoodAnswer { status, until };
            if opened.is_http2 {
                get_http2(opened.stream, path, host, &good).await
            } else {
                get_http1(opened.stream, path, host, &good).await
            }
        }
        ProbeQuestion::Grpc { service } => check_grpc(opened.stream, service, &authority).await,
    }
}

/// The conditions for a good answer to a GET.
struct GoodAnswer<'a> {
    /// The good statuses.
    status: &'a [RangeInclusive<u16>],
    /// The time until which the body is read.
    until: Instant,
}

impl GoodAnswer<'_> {
    fn check_status(&self, status: StatusCode) -> Result<(), String> {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err("status 101: the server switched to another protocol, which the probe had not asked for".to_owned());
        }
        if self
            .status
            .iter()
            .any(|range| range.contains(&status.as_u16()))
        {
            return Ok(());
        }
        Err(format!("status {}", status.as_u16()))
    }

    /// The result of `reading` its body. A body that has not ended in time is no fault: the head arrived in time, and a
    /// body may be endless.
    async fn check_body(
        &self,
        reading: impl Future<Output = Result<(), AnswerError>>,
    ) -> Result<(), String> {
        match timeout_at(self.until, reading).await {
            Ok(outcome) => outcome.map_err(|error| error.fault().to_string()),
            Err(_) => Ok(()),
        }
    }
}

/// Sends a GET over HTTP/1.1, like other requests, so that a probe meets the same conditions.
async fn get_http1(
    mut stream: ServerStream,
    path: &str,
    host: &str,
    good: &GoodAnswer<'_>,
) -> Result<(), String> {
    let question = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nuser-agent: {USER_AGENT}\r\n\r\n"
    );
    // A server that does not read the request may have answered with the reason.
    let asked = stream.write_all(question.as_bytes()).await;
    let answer = answer_head(&mut stream).await;
    let answer = answer.map_err(|error| match (asked, error) {
        (Err(failed), AnswerError::Incomplete) => AnswerError::Io(failed),
        (_, error) => error,
    });
    let answer = answer.map_err(|error| error.fault().to_string())?;
    good.check_status(answer.status)?;
    good.check_body(answer.read_body(&mut stream, MOST_BODY))
        .await
}

/// Sends a GET over HTTP/2.
async fn get_http2(
    stream: ServerStream,
    path: &str,
    host: &str,
    good: &GoodAnswer<'_>,
) -> Result<(), String> {
    let request = request(Method::GET, path, host, scheme(&stream))?;
    let heard = HeardWords::default();
    over_http2(stream, request, Bytes::new(), &heard, async |answer| {
        good.check_status(answer.status())?;
        good.check_body(read_body(answer.into_body(), &heard)).await
    })
    .await
}

/// Reads the body of an answer over HTTP/2.
async fn read_body(mut body: h2::RecvStream, heard: &HeardWords) -> Result<(), AnswerError> {
    let in_body = |error| failed(error, AnswerPart::Body, heard);
    let mut read = 0;
    while let Some(piece) = body.data().await {
        let length = piece.map_err(in_body)?.len();
        read += length;
        if read >= MOST_BODY {
            return Ok(());
        }
        let _ = body.flow_control().release_capacity(length);
    }
    body.trailers().await.map_err(in_body)?;
    Ok(())
}

/// Sends `request` over HTTP/2 and reads the answer. Meanwhile the library's words are kept in `heard`.
async fn over_http2<T>(
    stream: ServerStream,
    request: Request<()>,
    body: Bytes,
    heard: &HeardWords,
    read: impl AsyncFnOnce(Response<h2::RecvStream>) -> Result<T, String>,
) -> Result<T, String> {
    let broken = |error| broken(error, heard);
    let begun = settings().handshake::<_, Bytes>(stream).await;
    let (sender, mut connection) = begun.map_err(broken)?;
    let driven = poll_fn(|cx| heard.drive(|| Pin::new(&mut connection).poll(cx)));
    let asking = async {
        let mut sender = sender.ready().await.map_err(broken)?;
        let sent = sender.send_request(request, body.is_empty());
        let (mut answer, mut upload) = sent.map_err(broken)?;
        if !body.is_empty() {
            upload.send_data(body, true).map_err(broken)?;
        }
        let mut interim = InterimCount::default();
        let answer = poll_fn(|cx| {
            if let Err(fault) = hear_interim(&mut answer, cx, &mut interim) {
                return Poll::Ready(Err(fault.to_string()));
            }
            Pin::new(&mut answer).poll(cx).map_err(broken)
        });
        read(answer.await?).await
    };
    alongside(async { driven.await.map_err(broken) }, asking).await
}

/// The scheme of requests over HTTP/2, which contain it.
fn scheme(stream: &ServerStream) -> &'static str {
    match stream {
        ServerStream::Tls(_) => "https",
        ServerStream::Tcp(_) | ServerStream::Unix(_) => "http",
    }
}

/// The result of `asking`, while `connection` is driven.
async fn alongside<T>(
    connection: impl Future<Output = Result<(), String>>,
    asking: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let mut asking = pin!(asking);
    tokio::select! {
        biased;
        answer = asking.as_mut() => return answer,
        ended = connection => ended?,
    }
    asking.await
}

/// A probe's request over HTTP/2.
fn request(method: Method, path: &str, host: &str, scheme: &str) -> Result<Request<()>, String> {
    let target = format!("{scheme}://{host}{path}");
    let target = target.parse::<Uri>().map_err(|error| error.to_string())?;
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = target;
    let fields = request.headers_mut();
    fields.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    Ok(request)
}

/// Queries the gRPC health service about `service`.
async fn check_grpc(stream: ServerStream, service: &str, host: &str) -> Result<(), String> {
    let scheme = scheme(&stream);
    let mut request = request(Method::POST, CHECK, host, scheme)?;
    let fields = request.headers_mut();
    fields.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    fields.insert(header::TE, HeaderValue::from_static("trailers"));
    let heard = HeardWords::default();
    let question = question_of(service);
    let answer = over_http2(stream, request, question, &heard, async |answer| {
        let (head, body) = answer.into_parts();
        let (message, trailers) = whole(body, &heard).await?;
        Ok((head, message, trailers))
    });
    let (head, message, trailers) = answer.await?;
    let status = trailers
        .as_ref()
        .and_then(|trailers| trailers.get("grpc-status"))
        .or_else(|| head.headers.get("grpc-status"));
    if let Some(status) = status.filter(|status| status.as_bytes() != b"0") {
        return Err(format!("grpc-status {}", status.to_str().unwrap_or("?")));
    }
    match serving_status(&message) {
        Some(SERVING) => Ok(()),
        Some(2) => Err("NOT_SERVING".to_owned()),
        Some(3) => Err("SERVICE_UNKNOWN".to_owned()),
        _ => Err("no answer of the health service".to_owned()),
    }
}

/// The body of a health answer, and its trailers.
async fn whole(
    mut body: h2::RecvStream,
    heard: &HeardWords,
) -> Result<(BytesMut, Option<HeaderMap>), String> {
    let broken = |error| failed(error, AnswerPart::Body, heard).fault().to_string();
    let mut whole = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(broken)?;
        if whole.len() + piece.len() > MOST_BYTES {
            return Err("the answer is too long".to_owned());
        }
        // The window allows a longer answer than is read.
        whole.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await.map_err(broken)?;
    Ok((whole, trailers))
}

/// A `HealthCheckRequest` with its prefix: the service is the text of field 1.
fn question_of(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0A);
        let mut length = service.len();
        while length >= 0x80 {
            message.put_u8(u8::try_from(length & 0x7F).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        message.put_u8(u8::try_from(length).unwrap_or(0));
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(0));
    framed.put_slice(&message);
    framed.freeze()
}

/// The status in a `HealthCheckResponse` with its prefix: field 1, a small number; 0 if absent.
fn serving_status(framed: &[u8]) -> Option<u8> {
    let (prefix, message) = framed.split_at_checked(5)?;
    match (prefix[0], message) {
        (0, []) => Some(0),
        (0, [0x08, status, ..]) => Some(*status),
        _ => None,
    }
}

/// The failure of a probe over HTTP/2, in the words that requests have for it.
fn broken(error: h2::Error, heard: &HeardWords) -> String {
    failed(error, AnswerPart::Head, heard).fault().to_string()
}

/// The failure of a probe over HTTP/2, on the only stream of its connection.
fn failed(error: h2::Error, part: AnswerPart, heard: &HeardWords) -> AnswerError {
    let fault = StreamFault::new(error, part).explained_by(heard, Some(1));
    AnswerError::Http2(Box::new(fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_health_service() {
        assert_eq!(&question_of("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&question_of("a.B")[..], b"\0\0\0\0\x05\x0A\x03a.B");
        let long = question_of(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 1, 47, 0x0A, 0xAC, 0x02]);
        assert_eq!(serving_status(&[0, 0, 0, 0, 2, 8, 1]), Some(SERVING));
        assert_eq!(serving_status(&[0, 0, 0, 0, 0]), Some(0));
        assert_eq!(serving_status(&[1, 0, 0, 0, 2, 8, 1]), None, "compressed");
        assert_eq!(serving_status(b""), None);
    }
}

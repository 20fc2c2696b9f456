//! Any bytes as the answer of a server: the gateway's client takes from them what hyper's takes. The target in `fuzz/`
//! includes this file.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::ext::ReasonPhrase;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncWrite as _, DuplexStream, duplex};
use tollgate::upstream::http1::{AnswerError, ChunkFault, HeadFault, Http1, ReadBuffers};

/// Room for all that either side sends.
const ROOM: usize = 1 << 20;

/// The use that a client makes of a server's bytes.
#[derive(Debug, Default)]
struct Outcome {
    head: Option<Head>,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// The answer came to its end.
    complete: bool,
    /// The answer was refused, or broke off, in the client's words.
    refused: Option<String>,
    /// The connection can carry another request.
    reusable: bool,
    /// The trailers were refused.
    refused_trailers: bool,
    /// The transfer coding was refused.
    refused_coding: bool,
}

#[derive(Debug, PartialEq)]
struct Head {
    status: StatusCode,
    version: Version,
    reason: Option<ReasonPhrase>,
    fields: HeaderMap,
}

impl Head {
    fn of<B>(response: Response<B>) -> Self {
        let (mut parts, _) = response.into_parts();
        // Ours leaves it out where it stands last: it goes before the answer is passed on, with hyper too.
        let mut said = parts.headers.get_all(header::CONNECTION).iter();
        if said.next_back().is_some_and(|last| last == "keep-alive") {
            drop_last(&mut parts.headers, &header::CONNECTION);
        }
        Self {
            status: parts.status,
            version: parts.version,
            reason: parts.extensions.remove(),
            fields: parts.headers,
        }
    }
}

/// Drops the last line of a field.
fn drop_last(fields: &mut HeaderMap, name: &HeaderName) {
    let lines: Vec<_> = fields.get_all(name).iter().cloned().collect();
    fields.remove(name);
    for line in &lines[..lines.len() - 1] {
        fields.append(name, line.clone());
    }
}

/// Takes `bytes` for a server's answer, whose first two bytes say how it is asked for and in which pieces it comes.
/// Was there an answer?
///
/// # Panics
/// When the gateway's client and hyper's disagree, and ours is not the stricter one in a way that is meant.
pub(crate) fn compare(bytes: &[u8]) -> bool {
    let [how, cut, answer @ ..] = bytes else {
        return false;
    };
    let method = match how % 4 {
        0 => Method::HEAD,
        _ => Method::GET,
    };
    let pieces: Vec<&[u8]> = match cut {
        0 => vec![answer],
        cut => answer.chunks(usize::from(*cut)).collect(),
    };
    let ours = by_ours(&method, &pieces);
    let hypers = by_hyper(&method, &pieces);
    let both = || format!("ours {ours:#?}\nhyper {hypers:#?}");
    let has_bare_feed = answer
        .windows(2)
        .any(|pair| pair[0] != b'\r' && pair[1] == b'\n');
    if ours.refused_trailers && has_bare_feed {
        // hyper takes lines of trailers that end with a line feed alone, or overlooks them.
        return false;
    }
    if ours.refused_coding {
        // hyper hands on what only a decoder could read.
        return false;
    }
    assert_eq!(ours.head, hypers.head, "{}", both());
    assert_eq!(ours.complete, hypers.complete, "{}", both());
    assert_eq!(
        ours.refused.is_some(),
        hypers.refused.is_some(),
        "{}",
        both()
    );
    assert_eq!(ours.trailers, hypers.trailers, "{}", both());
    assert!(ours.body == hypers.body, "{}", both());
    if ours.reusable != hypers.reusable {
        assert!(hypers.reusable && ours.may_close(), "{}", both());
    }
    ours.complete
}

impl Outcome {
    /// Does the answer have a trait for which ours closes a connection that hyper keeps?
    fn may_close(&self) -> bool {
        let Some(head) = &self.head else {
            return false;
        };
        let says_close = |value: &http::HeaderValue| {
            let text = value.as_bytes().to_ascii_lowercase();
            text.windows(5).any(|word| word == b"close")
        };
        let fields = &head.fields;
        head.version == Version::HTTP_10
            || (fields.contains_key(header::TRANSFER_ENCODING)
                && fields.contains_key(header::CONTENT_LENGTH))
            // hyper leaves out lines with letters beyond ASCII.
            || fields.get_all(header::CONNECTION).iter().any(says_close)
    }
}

/// Runs `turn` until it has no more to say.
fn exhaust(mut turn: impl FnMut(&mut Context<'_>) -> bool) {
    let mut cx = Context::from_waker(Waker::noop());
    while turn(&mut cx) {}
}

fn put(stream: &mut DuplexStream, bytes: &[u8]) {
    let mut cx = Context::from_waker(Waker::noop());
    // A client that has closed takes nothing.
    let _ = Pin::new(stream).poll_write(&mut cx, bytes);
}

fn request(method: &Method) -> Request<Empty<Bytes>> {
    let request = Request::builder().method(method).uri("/");
    request.body(Empty::new()).expect("a request")
}

fn by_ours(method: &Method, pieces: &[&[u8]]) -> Outcome {
    let (near, far) = duplex(ROOM);
    let mut far = Some(far);
    let mut client = Http1::new(near, Rc::<ReadBuffers>::default());
    client.begin(request(method), &[]);
    let mut outcome = Outcome::default();
    our_turns(&mut client, &mut outcome);
    for piece in pieces {
        if let Some(far) = &mut far {
            put(far, piece);
        }
        our_turns(&mut client, &mut outcome);
    }
    outcome.reusable = client.is_free() && client.rest();
    if !outcome.complete && outcome.refused.is_none() {
        far = None;
        our_turns(&mut client, &mut outcome);
    }
    drop(far);
    outcome
}

fn our_turns(client: &mut Http1<Empty<Bytes>, DuplexStream>, outcome: &mut Outcome) {
    exhaust(|cx| {
        if outcome.complete || outcome.refused.is_some() {
            return false;
        }
        if outcome.head.is_none() {
            match client.poll_answer(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(response)) => outcome.head = Some(Head::of(response)),
                Poll::Ready(Err(error)) => {
                    outcome.refused_coding = matches!(
                        &error,
                        AnswerError::Head(HeadFault::UnaskedCoding | HeadFault::CodingTwice, _)
                    );
                    outcome.refused = Some(format!("{error:?}"));
                }
            }
            return true;
        }
        match client.poll_frame(cx) {
            Poll::Pending => return false,
            Poll::Ready(None) => outcome.complete = true,
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => outcome.body.extend_from_slice(&data),
                Err(frame) => outcome.trailers = frame.into_trailers().ok(),
            },
            Poll::Ready(Some(Err(error))) => {
                outcome.refused_trailers =
                    matches!(error, AnswerError::Chunks(ChunkFault::Trailers, _));
                outcome.refused = Some(format!("{error:?}"));
            }
        }
        true
    });
}

fn by_hyper(method: &Method, pieces: &[&[u8]]) -> Outcome {
    let (near, far) = duplex(ROOM);
    let mut far = Some(far);
    let mut cx = Context::from_waker(Waker::noop());
    let shaken = pin!(http1::handshake(TokioIo::new(near))).poll(&mut cx);
    let Poll::Ready(Ok((mut sender, connection))) = shaken else {
        unreachable!("hyper's handshake neither waits nor fails");
    };
    let mut connection = Some(connection);
    let mut sending = Box::pin(sender.send_request(request(method)));
    let mut body: Option<Incoming> = None;
    let mut outcome = Outcome::default();
    let mut turns = |outcome: &mut Outcome| {
        exhaust(|cx| {
            if let Some(moving) = &mut connection
                && Pin::new(moving).poll(cx).is_ready()
            {
                connection = None;
            }
            if outcome.complete || outcome.refused.is_some() {
                return false;
            }
            let Some(body) = &mut body else {
                match sending.as_mut().poll(cx) {
                    Poll::Pending => return false,
                    Poll::Ready(Ok(response)) => {
                        let (parts, incoming) = response.into_parts();
                        body = Some(incoming);
                        outcome.head = Some(Head::of(Response::from_parts(parts, ())));
                    }
                    Poll::Ready(Err(error)) => outcome.refused = Some(format!("{error:?}")),
                }
                return true;
            };
            match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return false,
                Poll::Ready(None) => outcome.complete = true,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => outcome.body.extend_from_slice(&data),
                    Err(frame) => outcome.trailers = frame.into_trailers().ok(),
                },
                Poll::Ready(Some(Err(error))) => outcome.refused = Some(format!("{error:?}")),
            }
            true
        });
    };
    turns(&mut outcome);
    for piece in pieces {
        if let Some(far) = &mut far {
            put(far, piece);
        }
        turns(&mut outcome);
    }
    // The connection learns of what came after an answer when it is moved on once more.
    turns(&mut outcome);
    let is_over = outcome.complete;
    if !is_over && outcome.refused.is_none() {
        far = None;
        turns(&mut outcome);
    }
    drop(sending);
    outcome.reusable = is_over && connection.is_some() && sender.is_ready();
    drop(far);
    outcome
}

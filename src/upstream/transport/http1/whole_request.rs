//! An unanswered request, independent of any protocol: it can be sent once more on a connection of another protocol.

use super::WrittenRequest;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request};

/// A request, with all fields that are sent.
#[derive(Debug)]
pub(in crate::upstream) struct WholeRequest<B> {
    /// Its head; the target is a path.
    pub(in crate::upstream) head: Parts,
    /// Its body, if it has one.
    pub(in crate::upstream) body: Option<B>,
}

impl<B: http_body::Body> WholeRequest<B> {
    /// A request that has not been sent.
    pub(in crate::upstream) fn new(request: Request<B>) -> Self {
        let (head, body) = request.into_parts();
        Self {
            head,
            body: Some(body).filter(|body| !body.is_end_stream()),
        }
    }
}

impl<B> WholeRequest<B> {
    /// May the request not be repeated after it is sent, since it has a body, or a method that is not idempotent?
    pub(in crate::upstream) fn is_once(&self) -> bool {
        self.body.is_some() || !self.head.method.is_idempotent()
    }

    /// Parses a request back from its serialised head. `None` if that is not a head of ours, or if a piece of the body
    /// was taken, which is already framed for HTTP/1.1.
    pub(in crate::upstream) fn of_unsent(unsent: WrittenRequest<B>) -> Option<Self> {
        let (line, body) = unsent.writer.into_head()?;
        let mut lines = line.split(|byte| *byte == b'\n');
        let first = lines.next()?;
        let mut words = first.split(|byte| *byte == b' ');
        let (method, target) = (words.next()?, words.next()?);
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = Method::from_bytes(method).ok()?;
        head.uri = PathAndQuery::try_from(target).ok()?.into();
        for line in lines {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                break;
            }
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = HeaderName::from_bytes(&line[..colon]).ok()?;
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
            head.headers.append(name, value);
        }
        Some(Self { head, body })
    }
}

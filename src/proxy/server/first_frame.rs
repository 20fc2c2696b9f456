//! An HTTP/2 stream whose head does not end it may have no body nevertheless: an empty DATA frame ends it. This is
//! checked before the request is forwarded, since over HTTP/1.1 a body must be announced.

use crate::proxy::bodies::body_failure::{UploadFailure, broken_by};
use crate::proxy::bodies::body_prefix::BodyPrefix;
use crate::proxy::error::ProxyError;
use crate::proxy::exchange::Exchange;
use http::request::Parts;
use http::{Method, Version, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;

/// The wait for the first frame if a body would be unusual: the frame follows directly after its head.
const SOON: Duration = Duration::from_secs(1);

/// Keeps the first frame of the body, or its end, in the exchange, if the request may be one without a body.
///
/// # Errors
/// If the body breaks.
pub(in crate::proxy) async fn look(
    parts: &Parts,
    incoming: &mut Option<Incoming>,
    exchange: &mut Exchange,
) -> Result<(), ProxyError> {
    if let Some(incoming) = incoming
        && may_be_its_end(parts, incoming, exchange)
    {
        // The future is boxed: few requests need room for it.
        let first = Box::pin(read_frame(&parts.method, incoming)).await;
        exchange.call.prefix = first.map_err(|failure| exchange.broken(failure))?;
    }
    Ok(())
}

/// May the request have no body, although its head does not state so? A gRPC call has a body.
#[inline]
fn may_be_its_end(parts: &Parts, incoming: &Incoming, exchange: &Exchange) -> bool {
    parts.version == Version::HTTP_2
        && !incoming.is_end_stream()
        && exchange.call.grpc.is_none()
        && exchange.call.prefix.is_none()
        && !parts.headers.contains_key(header::CONTENT_LENGTH)
}

/// Reads the first frame of a body that has one, or its end. `None` if neither has arrived yet: methods that usually
/// have bodies are not delayed.
///
/// # Errors
/// If the body breaks.
async fn read_frame(
    method: &Method,
    incoming: &mut Incoming,
) -> Result<Option<Box<BodyPrefix>>, UploadFailure> {
    let is_bodiless = [
        Method::GET,
        Method::HEAD,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
    ]
    .contains(method);
    loop {
        let frame = if is_bodiless {
            timeout(SOON, incoming.frame()).await.ok()
        } else {
            let mut frame = pin!(incoming.frame());
            poll_fn(|cx| {
                Poll::Ready(match frame.as_mut().poll(cx) {
                    Poll::Ready(frame) => Some(frame),
                    Poll::Pending => None,
                })
            })
            .await
        };
        let frame = match frame {
            None => return Ok(None),
            Some(None) => None,
            Some(Some(frame)) => Some(frame.map_err(|error| broken_by(&error))?),
        };
        let is_empty = |data: &bytes::Bytes| data.is_empty();
        if frame
            .as_ref()
            .and_then(http_body::Frame::data_ref)
            .is_some_and(is_empty)
        {
            if incoming.is_end_stream() {
                return Ok(Some(BodyPrefix::of_first(None, incoming)));
            }
            continue;
        }
        return Ok(Some(BodyPrefix::of_first(frame, incoming)));
    }
}

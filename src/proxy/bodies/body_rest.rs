//! The rest of a request's body after the gateway's own answer. The rest is drained, so that the next request on its
//! connection can be read; or the answer announces the end of the connection, and the client gets it before the end.

use crate::listen::FramingFault;
use crate::shutdown::Drain;
use http::{HeaderValue, Request, Version, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The longest body, by its head, that is drained over HTTP/1.1 (RFC 9112, section 9.6).
const MOST_SIZED: u64 = 64 * 1024;
/// The most bytes that are drained of a chunked body over HTTP/1.1, whose length is unknown. Its answer does not
/// announce the connection's end, so that only an endless body reaches this bound.
const MOST_CHUNKED: u64 = 1 << 30;
/// The most bytes that are drained of a body over HTTP/2, where a client may stop at the answer. Some send everything
/// first, and treat a reset after the answer as an error (RFC 9113, section 8.1, permits that reset).
const MOST_OF_STREAM: u64 = 16 << 20;
/// The longest times for a body over HTTP/2: for the whole, and between two pieces.
const STREAM_WITHIN: Duration = Duration::from_secs(5);
const PIECE_WITHIN: Duration = Duration::from_secs(1);
/// The remaining time of a body over HTTP/1.1 when the gateway drains.
const DRAINING: Duration = Duration::from_secs(1);

/// The treatment of the rest of a body that is not forwarded, by its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum BodyRest {
    /// The rest is drained, if there is any.
    Heard,
    /// The connection ends: the rest is too long to be drained, or its framing is in doubt, or the client ends the
    /// connection by itself.
    Ends,
    /// The client waits for `100 Continue`, which is not sent (RFC 9110, section 10.1.1).
    Unasked,
}

impl BodyRest {
    /// The rest of the body of `request`, of which nothing has been read.
    #[inline]
    pub(in crate::proxy) fn of<B: http_body::Body>(request: &Request<B>) -> Self {
        let body = request.body();
        if body.is_end_stream() {
            Self::Heard
        } else if request.headers().contains_key(header::EXPECT) {
            Self::Unasked
        } else if body.size_hint().lower() > MOST_SIZED || is_last(request) {
            Self::Ends
        } else {
            Self::Heard
        }
    }
}

/// Does no other request follow on its connection?
fn is_last<B>(request: &Request<B>) -> bool {
    let mut options = request.headers().get_all(header::CONNECTION).iter();
    let closes = |value: &HeaderValue| {
        let mut names = value.as_bytes().split(|byte| *byte == b',');
        names.any(|name| name.trim_ascii().eq_ignore_ascii_case(b"close"))
    };
    request.version() == Version::HTTP_10
        || request.extensions().get::<FramingFault>().is_some()
        || options.any(closes)
}

/// Reads the rest of a body over HTTP/1.1. Its connection ends if the client is silent for the idle time, or slower
/// than the minimum rate, and the body with it.
pub(in crate::proxy) async fn hear_out(mut rest: Incoming, drain: Drain) {
    let reading = async {
        let mut left = MOST_CHUNKED;
        while let Some(Ok(frame)) = rest.frame().await {
            left = left.saturating_sub(length(&frame));
            if left == 0 {
                return;
            }
        }
    };
    let draining = async {
        drain.begun().await;
        sleep(DRAINING).await;
    };
    tokio::select! {
        biased;
        () = reading => {}
        () = draining => {}
    }
}

/// Reads the rest of a body over HTTP/2. A stream on which nothing arrives is not kept for long.
pub(in crate::proxy) async fn hear_stream_out(mut rest: Incoming) {
    let reading = async {
        let mut left = MOST_OF_STREAM;
        while let Ok(Some(Ok(frame))) = timeout(PIECE_WITHIN, rest.frame()).await {
            left = left.saturating_sub(length(&frame));
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(STREAM_WITHIN, reading).await;
}

fn length(frame: &http_body::Frame<bytes::Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

//! A response's body towards the client: it owns the exchange, which ends with it.

use crate::listen::handler::ResponseBody;
use crate::listen::minimum_rate::Lateness;
use crate::proxy::bodies::body_failure::BodyError;
use crate::proxy::bodies::response_body::UpstreamBody;
use crate::proxy::exchange::{Exchange, ExchangeEnd};
use crate::telemetry::metrics::Failure;
use bytes::Bytes;
use http::Version;
use http_body::{Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A response's body towards the client; it owns the exchange, which ends with it.
pub struct Body {
    kind: BodySource,
    exchange: Option<Box<Exchange>>,
    /// The exchange ends when the client has taken the body, rather than when the body has been handed on.
    until_taken: bool,
}

enum BodySource {
    /// The body is written by the gateway.
    Own(Option<Bytes>),
    /// The body is streamed from the upstream.
    Upstream(Box<UpstreamBody>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BodySource::Own(_) => "Body::Own",
            BodySource::Upstream(_) => "Body::Upstream",
        })
    }
}

impl Body {
    /// A body of the gateway's own.
    #[must_use]
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self {
            kind: BodySource::Own(Some(bytes).filter(|bytes| !bytes.is_empty())),
            exchange: None,
            until_taken: false,
        }
    }

    /// A body from the upstream, if there is any.
    #[must_use]
    pub(in crate::proxy) fn upstream(download: Option<UpstreamBody>) -> Self {
        Self {
            kind: match download {
                Some(download) => BodySource::Upstream(Box::new(download)),
                None => BodySource::Own(None),
            },
            exchange: None,
            until_taken: false,
        }
    }

    /// Gives the exchange to this body: it ends when the last byte has been handed on, or when the body is dropped.
    #[must_use]
    pub fn carrying(mut self, mut exchange: Box<Exchange>) -> Self {
        self.until_taken = exchange.version() == Version::HTTP_2;
        if let BodySource::Own(bytes) = &self.kind {
            exchange.sent(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64));
        }
        self.exchange = Some(exchange);
        if let BodySource::Own(_) = &self.kind {
            self.complete();
        }
        self
    }

    /// All of the body has been handed on.
    fn complete(&mut self) {
        match &mut self.exchange {
            Some(exchange) if self.until_taken => exchange.handed_on(),
            _ => self.end(ExchangeEnd::Complete),
        }
    }

    /// The body ends here.
    fn end(&mut self, ending: ExchangeEnd) {
        if let Some(exchange) = self.exchange.take() {
            exchange.end(ending);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let download = match &mut this.kind {
            BodySource::Own(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            BodySource::Upstream(download) => download,
        };
        let frame = ready!(download.poll_frame(cx));
        // A server that knows the length does not poll again after the last byte. The end is therefore detected here,
        // rather than by a further poll.
        match &frame {
            Some(Ok(part)) => {
                if let (Some(exchange), Some(data)) = (&mut this.exchange, part.data_ref()) {
                    exchange.passes(data);
                }
                if let (Some(exchange), Some(trailers)) = (&mut this.exchange, part.trailers_ref())
                {
                    exchange.trailed(trailers);
                }
                // Nothing follows trailers, and hyper does not poll again after writing them.
                if part.is_trailers() || download.is_end_stream() {
                    this.complete();
                }
            }
            Some(Err(error)) => {
                let ending = ending(error);
                if let (Some(exchange), BodyError::Answer(error)) = (&this.exchange, error) {
                    exchange.answer_breaks(error);
                }
                // If a length was announced, nothing but its bytes can follow.
                let trailers_before = match (&mut this.exchange, download.size_hint().exact()) {
                    (Some(exchange), None) => exchange.broken_off_trailers(ending),
                    _ => None,
                };
                this.end(ending);
                if let Some(trailers) = trailers_before {
                    this.kind = BodySource::Own(None);
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
            }
            None => this.complete(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodySource::Own(bytes) => bytes.is_none(),
            BodySource::Upstream(download) => download.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodySource::Own(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            BodySource::Upstream(download) => download.size_hint(),
        }
    }
}

/// The end of an exchange whose answer breaks with `error`.
fn ending(error: &BodyError) -> ExchangeEnd {
    match error {
        BodyError::Idle => ExchangeEnd::Upstream(Failure::Timeout),
        BodyError::ClientGone => ExchangeEnd::ClientGone,
        BodyError::Answer(error) => ExchangeEnd::Upstream(error.failure()),
        // A request's body is lost in this way, but no answer's.
        BodyError::Lost(_) => ExchangeEnd::Upstream(Failure::Reset),
    }
}

impl ResponseBody for Body {
    fn has_minimum_rate(&self) -> bool {
        let exchange = self.exchange.as_ref();
        !exchange.is_some_and(|exchange| exchange.is_silent_by_nature())
    }

    fn route_idle(&self) -> Option<Duration> {
        self.exchange.as_ref()?.route_idle()
    }

    fn taken(&mut self) {
        self.end(ExchangeEnd::Complete);
    }

    fn stalled(&mut self, how: Lateness) {
        self.end(ExchangeEnd::ClientStalled(how));
    }
}

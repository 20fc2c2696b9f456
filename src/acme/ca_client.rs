//! The HTTP client for requests to an authority: one connection for each request, TLS 1.2 or later, and a time limit on
//! the whole.

use crate::telemetry::shown_url;
use crate::tls::ClientTls;
use crate::{clock, fetch};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The longest time for a request and its answer.
const WITHIN: Duration = Duration::from_secs(20);
/// The longest answer. A chain of certificates has some 10 KiB.
const LONGEST: usize = 1 << 20;

type Failing = fetch::FetchError;

/// A client of one authority. Clones share the pause that the authority requested.
#[derive(Debug, Clone)]
pub(super) struct CaClient {
    tls: ClientTls,
    /// The pause in seconds that the authority requested in its last answer that refused.
    pause: Arc<Mutex<Option<i64>>>,
}

impl CaClient {
    pub(super) fn new(tls: &ClientTls) -> Self {
        Self {
            tls: tls.clone(),
            pause: Arc::default(),
        }
    }

    /// Does this client verify the authority's server by these settings?
    pub(super) fn trusts(&self, tls: &ClientTls) -> bool {
        self.tls == *tls
    }

    /// The pause that was requested since the last call, in seconds.
    pub(super) fn take_pause(&self) -> Option<i64> {
        self.pause.lock().take()
    }

    async fn answer(self, request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Failing> {
        let url = shown_url(&request.uri().to_string()).into_owned();
        let exchange = timeout(WITHIN, self.exchange(request)).await;
        let no_answer = || io::Error::from(io::ErrorKind::TimedOut);
        let answer = exchange.map_err(|_| no_answer().into()).flatten();
        answer.map_err(|error: Failing| format!("{url}: {error}").into())
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Full<Bytes>>, Failing> {
        if request.uri().scheme() != Some(&Scheme::HTTPS) {
            return Err("it is no https URL".into());
        }
        let answer = fetch::exchange(&self.tls, request, LONGEST).await?;
        let (parts, body) = answer.into_parts();
        self.refused(&parts)?;
        Ok(Response::from_parts(parts, Full::new(body)))
    }

    /// Notes the pause that a refusing answer asks for. An answer that is not of the protocol is an error.
    fn refused(&self, parts: &http::response::Parts) -> Result<(), Failing> {
        if parts.status.is_success() {
            return Ok(());
        }
        if matches!(
            parts.status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            let asked = parts.headers.get(RETRY_AFTER).and_then(seconds_of);
            *self.pause.lock() = asked;
        }
        let kind = parts.headers.get(CONTENT_TYPE);
        let is_problem = kind.is_some_and(|kind| {
            kind.as_bytes().starts_with(b"application/problem+json")
                || kind.as_bytes().starts_with(b"application/json")
        });
        if is_problem {
            return Ok(());
        }
        Err(format!("it answers {}", parts.status).into())
    }
}

/// The seconds that `Retry-After` asks for, as a number or by a date (RFC 9110, section 10.2.3).
fn seconds_of(field: &HeaderValue) -> Option<i64> {
    let text = field.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(seconds.into());
    }
    let until = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let now = i64::try_from(clock::wall().micros() / 1_000_000).ok()?;
    Some((until.as_second() - now).max(0))
}

impl HttpClient for CaClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            let request = Request::from_parts(parts, Full::new(body));
            let answer = client.answer(request).await.map_err(Error::Other)?;
            Ok(BytesResponse::from(answer))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_number_or_a_date() {
        let of = |text: &'static str| seconds_of(&HeaderValue::from_static(text));
        assert_eq!(of("120"), Some(120));
        assert_eq!(of("Fri, 31 Dec 1999 23:59:59 GMT"), Some(0));
        assert!(of("Fri, 31 Dec 2100 23:59:59 GMT") > Some(1_000_000_000));
        assert_eq!(of("soon"), None);
        assert_eq!(of("-1"), None);
    }
}

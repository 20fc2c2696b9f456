//! The answer to a certification authority that requests a text at a host, to check whether we control the host (RFC
//! 8555, section 8.3).

use crate::client::Client;
use crate::intake::challenge_token;
use crate::proxy::answer::static_reply;
use crate::route::host_key;
use crate::snapshot::StaticReply;
use crate::tls::AuthorityChallenges;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use std::net::IpAddr;
use std::sync::Arc;

/// The text that a request asks for, if a challenge is open for the request's host, here or at another gateway. Every
/// other request continues normally. A lookup elsewhere counts against `asker`.
pub(in crate::proxy) async fn challenge_text(
    challenges: &AuthorityChallenges,
    parts: &Parts,
    host: &str,
    asker: Option<IpAddr>,
) -> Option<Arc<str>> {
    let token = challenge_token(&parts.method, parts.uri.path())?;
    let host = host_key(host);
    challenges
        .text_anywhere(&host, token, Client::of(asker))
        .await
}

/// The answer with this text.
pub(in crate::proxy) fn answer(text: &str, method: &Method) -> Response<Bytes> {
    let reply = StaticReply::Respond {
        status: StatusCode::OK,
        body: Bytes::copy_from_slice(text.as_bytes()),
        content_type: Some(HeaderValue::from_static("application/octet-stream")),
    };
    let mut answer = static_reply::answer(&reply, method, &http::Uri::default());
    let fresh = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(header::CACHE_CONTROL, fresh);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_gets_the_fields_alone() {
        let whole = answer("token.digest", &Method::GET);
        assert_eq!(whole.body(), "token.digest");
        assert_eq!(whole.headers()["content-type"], "application/octet-stream");
        let fields = answer("token.digest", &Method::HEAD);
        assert!(fields.body().is_empty());
        assert_eq!(fields.headers()["content-length"], "12");
    }
}

//! The answer to a certification authority that looks for a text at a host, to see whether the host is ours (RFC 8555,
//! section 8.3).

use super::request::Target;
use super::static_reply;
use crate::client::Client;
use crate::route::host_key;
use crate::snapshot::StaticReply;
use crate::tls::{AuthorityChallenges, CHALLENGE_PATH};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use std::net::IpAddr;
use std::sync::Arc;

/// Looks a request for a challenge? It does by the exact path of one: in clear text, or with TLS where something in front
/// sends port 80 on to https, which authorities follow.
#[cold]
#[inline(never)]
pub(super) fn looks(parts: &Parts) -> bool {
    token(&parts.method, parts.uri.path()).is_some()
}

/// The text that a request looks for, where a challenge is open for the request's host, here or at another gateway. A
/// request for anything else goes on as others do. A look elsewhere is on the account of `asker`.
pub(super) async fn text(
    challenges: &AuthorityChallenges,
    target: &Target,
    parts: &Parts,
    asker: Option<IpAddr>,
) -> Option<Arc<str>> {
    let token = token(&parts.method, parts.uri.path())?;
    let host = host_key(target.host());
    challenges
        .text_anywhere(&host, token, Client::of(asker))
        .await
}

/// The token at the end of a challenge's path, as it was sent: an escape or a dot segment is a part of no token.
fn token<'a>(method: &Method, path: &'a str) -> Option<&'a str> {
    let looks = *method == Method::GET || *method == Method::HEAD;
    path.strip_prefix(CHALLENGE_PATH).filter(|_| looks)
}

/// The answer that has this text.
pub(super) fn answer(text: &str, method: &Method) -> Response<Bytes> {
    let own = StaticReply::Respond {
        status: StatusCode::OK,
        body: Bytes::copy_from_slice(text.as_bytes()),
        content_type: Some(HeaderValue::from_static("application/octet-stream")),
    };
    let mut answer = static_reply::answer(&own, method, &http::Uri::default());
    let fresh = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(header::CACHE_CONTROL, fresh);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_stands_behind_the_path_as_it_was_sent() {
        let asked = |path| token(&Method::GET, path);
        assert_eq!(asked("/.well-known/acme-challenge/abc"), Some("abc"));
        for other in [
            "/.well-known/acme-challenge",
            "/.well-known//acme-challenge/abc",
            "/x/../.well-known/acme-challenge/abc",
            "/.well-known/acme%2dchallenge/abc",
            "/.WELL-KNOWN/acme-challenge/abc",
        ] {
            assert_eq!(asked(other), None, "{other}");
        }
        assert_eq!(
            token(&Method::POST, "/.well-known/acme-challenge/abc"),
            None
        );
    }

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

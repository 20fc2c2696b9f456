//! Answers that come before the route lookup, and the causes for which a request gets no plan.

use super::head::{BadRequest, Target};
use crate::admission::RefusalCause;
use bytes::Bytes;
use http::{HeaderValue, Uri};

/// The gateway's own answer to a request, without a route lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EarlyAnswer {
    /// The request is for the gateway itself: `OPTIONS *` (RFC 9110 section 9.3.7), or one that may not be forwarded
    /// further (section 7.6.2).
    Here,
    /// The listener redirects all requests to `https`, to this address.
    Redirect(HeaderValue),
}

/// Causes for which a request gets no plan.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IntakeError {
    /// The request is malformed, or of a kind that is not forwarded.
    #[error("{0}")]
    BadRequest(#[from] BadRequest),
    /// The request's host belongs on another connection (RFC 9110 section 15.5.20).
    #[error("the host belongs on a connection of its own")]
    Misdirected,
    /// No route matches the request.
    #[error("no route matches")]
    NoRoute,
    /// The route requires a client's certificate, and the handshake showed no trusted one.
    #[error("the route asks for a client certificate")]
    CertificateRequired,
    /// The request lacks something that its route or its limits require.
    #[error(transparent)]
    Refused(#[from] RefusalCause),
}

/// The address to which a listener with `redirect` sends requests: the same host, path and query under `https`. The
/// port is left out, so that clients use the default port.
///
/// # Errors
/// If the request names no host, as only HTTP/1.0 allows.
#[cold]
#[inline(never)]
pub(super) fn https_location(target: &Target, uri: &Uri) -> Result<HeaderValue, BadRequest> {
    let host = without_port(target.host());
    if host.is_empty() {
        return Err(BadRequest::MissingHost);
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let slash = if path.starts_with('/') { "" } else { "/" };
    let there = Bytes::from(format!("https://{host}{slash}{path}"));
    // A parsed host and URI have no byte that is forbidden in a field.
    HeaderValue::from_maybe_shared(there).map_err(|_| BadRequest::BadHost)
}

/// The host of `host`, `host:port` or `[address]:port`.
fn without_port(authority: &str) -> &str {
    let end = match authority.rfind(']') {
        Some(bracket) => Some(bracket + 1),
        None => authority.find(':'),
    };
    &authority[..end.unwrap_or(authority.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Scheme;
    use http::{HeaderMap, Method, Version, header};

    fn location(host: &str, uri: &str) -> String {
        let mut fields = HeaderMap::new();
        fields.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        let uri: Uri = uri.parse().unwrap();
        let (version, scheme) = (Version::HTTP_11, Scheme::Http);
        let target = Target::read(&Method::POST, &uri, version, scheme, &fields).unwrap();
        let there = https_location(&target, &uri).unwrap();
        there.to_str().unwrap().to_owned()
    }

    #[test]
    fn host_path_and_query_stay_and_the_port_goes() {
        for (host, uri, there) in [
            ("a.test", "/", "https://a.test/"),
            (
                "A.test:8080",
                "/x/../y?q=1&r",
                "https://A.test/x/../y?q=1&r",
            ),
            ("[::1]:80", "/%2f%zz", "https://[::1]/%2f%zz"),
            ("[::1]", "/", "https://[::1]/"),
            ("a.test", "http://b.test:81/c?d", "https://b.test/c?d"),
            ("a.test", "http://b.test?d", "https://b.test/?d"),
        ] {
            assert_eq!(location(host, uri), there);
        }
    }

    #[test]
    fn without_a_host_there_is_nowhere_to_go() {
        let uri = Uri::from_static("/");
        let (version, scheme) = (Version::HTTP_10, Scheme::Http);
        let target = Target::read(&Method::GET, &uri, version, scheme, &HeaderMap::new());
        let refused = https_location(&target.unwrap(), &uri);
        assert_eq!(refused, Err(BadRequest::MissingHost));
    }
}

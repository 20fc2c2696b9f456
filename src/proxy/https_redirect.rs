//! The answer of a listener that sends all its requests on to `https`.

use super::error::ProxyError;
use super::request::{BadRequest, Target};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, Uri, header};

/// Leads to the same host, path and query under `https` (RFC 9110 section 15.4.9: with the same method and body). The port
/// is left out, so that clients come to the default one.
///
/// # Errors
/// When the request names no host, as only one of HTTP/1.0 does.
#[cold]
#[inline(never)]
pub fn answer(target: &Target, uri: &Uri) -> Result<Response<Bytes>, ProxyError> {
    let host = without_port(target.host());
    if host.is_empty() {
        return Err(BadRequest::MissingHost.into());
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let slash = if path.starts_with('/') { "" } else { "/" };
    let there = Bytes::from(format!("https://{host}{slash}{path}"));
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    // A host and a URI that were read have no byte that is forbidden in a field.
    if let Ok(there) = HeaderValue::from_maybe_shared(there) {
        response.headers_mut().insert(header::LOCATION, there);
    }
    Ok(response)
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
    use http::{HeaderMap, Method, Version};

    fn location(host: &str, uri: &str) -> String {
        let mut fields = HeaderMap::new();
        fields.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        let uri: Uri = uri.parse().unwrap();
        let (version, scheme) = (Version::HTTP_11, Scheme::Http);
        let target = Target::read(&Method::POST, &uri, version, scheme, &fields).unwrap();
        let answer = answer(&target, &uri).unwrap();
        assert_eq!(answer.status(), 308);
        answer.headers()[header::LOCATION]
            .to_str()
            .unwrap()
            .to_owned()
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
        let refused = answer(&target.unwrap(), &uri).unwrap_err();
        assert_eq!(refused.status(), 400);
    }
}

//! `Location` and `Content-Location` of answers, if servers are asked for another host than the client's: an address at
//! that host is useless to clients, so that it is replaced by one at the host that they know.

use crate::client::Scheme;
use crate::intake::head::Target;
use crate::proxy::answer::upstream_answer::UpstreamAnswer;
use crate::snapshot::HostChange;
use crate::upstream::{ServerHost, ServerUrl};
use http::{HeaderMap, HeaderValue, header};

/// The mapping from addresses in an answer to those that the client knows.
#[derive(Debug)]
pub(in crate::proxy) struct WayBack<'a> {
    change: &'a HostChange,
    /// The host that the client requested; `None` if it named none, as HTTP/1.0 allows.
    host: Option<HeaderValue>,
    /// The scheme that the client has used.
    scheme: Scheme,
}

/// The server that has answered, as named in its own addresses.
#[derive(Debug, Clone, Copy)]
struct AnsweringServer<'a> {
    url: &'a ServerUrl,
    /// The host of requests that name the server itself.
    server_host: Option<&'a HeaderValue>,
}

/// An address in parts: `scheme` without its colon, absent in `//host/path`; the host with its port; the path; and the
/// rest, from `?` or `#` on.
#[derive(Debug, Clone, Copy)]
struct AddressParts<'a> {
    scheme: Option<Scheme>,
    authority: &'a str,
    path: &'a str,
    rest: &'a str,
}

impl<'a> WayBack<'a> {
    /// The mapping for a request for `target` whose servers receive another `Host`.
    #[cold]
    #[inline(never)]
    pub(in crate::proxy) fn of(
        change: &'a HostChange,
        target: &Target,
        scheme: Scheme,
    ) -> Box<Self> {
        Box::new(Self {
            change,
            host: target.authority().cloned(),
            scheme,
        })
    }

    /// Does each server receive its own `Host`?
    pub(in crate::proxy) fn is_to_server_host(&self) -> bool {
        self.change.host == ServerHost::Own
    }

    /// Rewrites the addresses of an answer that lead to the host in the server's request, or to the server itself.
    /// Other addresses stay, and so do relative ones.
    #[cold]
    #[inline(never)]
    pub(in crate::proxy) fn restore(&self, answer: &mut UpstreamAnswer) {
        let server = AnsweringServer {
            url: &answer.pool.destination().url,
            server_host: answer.pool.host(),
        };
        self.restore_fields(answer.response.headers_mut(), server);
    }

    fn restore_fields(&self, fields: &mut HeaderMap, server: AnsweringServer<'_>) {
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            if let header::Entry::Occupied(mut entry) = fields.entry(name) {
                for value in entry.iter_mut() {
                    let text = value.to_str().ok();
                    let back = text.and_then(|text| self.back(text, server));
                    if let Some(Ok(back)) = back.map(HeaderValue::try_from) {
                        *value = back;
                    }
                }
            }
        }
    }

    fn back(&self, text: &str, server: AnsweringServer<'_>) -> Option<String> {
        let host = self.host.as_ref()?.to_str().ok()?;
        let asked = match &self.change.host {
            ServerHost::Own => server.server_host,
            ServerHost::Text(text) => Some(text),
        };
        let asked = asked.and_then(|asked| asked.to_str().ok())?;
        if asked.eq_ignore_ascii_case(host) {
            return None;
        }
        let address = AddressParts::read(text)?;
        let native = if server.url.is_encrypted() {
            Scheme::Https
        } else {
            Scheme::Http
        };
        let of = address.scheme.unwrap_or(native);
        let authority = server.url.authority();
        if !is_same(address.authority, asked, of) && !is_same(address.authority, &authority, of) {
            return None;
        }
        let path = match &self.change.path_back {
            Some(back) => back.apply(address.path),
            None => address.path.into(),
        };
        let rest = address.rest;
        Some(match address.scheme {
            None => format!("//{host}{path}{rest}"),
            // A server without TLS that redirects to `https` wants the client to use it. The client's own scheme would
            // cause a redirect loop.
            Some(Scheme::Https) if native == Scheme::Http && self.scheme == Scheme::Http => {
                format!("https://{}{path}{rest}", without_port(host))
            }
            Some(_) => format!("{}://{host}{path}{rest}", self.scheme.as_str()),
        })
    }
}

impl<'a> AddressParts<'a> {
    /// Reads an address of `http` or `https`, or one without a scheme; `None` if `text` names no host.
    fn read(text: &'a str) -> Option<Self> {
        let (scheme, behind) = match text.strip_prefix("//") {
            Some(behind) => (None, behind),
            None => {
                let (scheme, behind) = text.split_once("://")?;
                (Some(Scheme::read(scheme.as_bytes())?), behind)
            }
        };
        let end = behind.find(['/', '?', '#']).unwrap_or(behind.len());
        let (authority, target) = behind.split_at(end);
        let end = target.find(['?', '#']).unwrap_or(target.len());
        let (path, rest) = target.split_at(end);
        Some(Self {
            scheme,
            authority,
            path,
            rest,
        })
    }
}

/// Do both name the same host and port, in an address of `scheme`?
fn is_same(one: &str, other: &str, scheme: Scheme) -> bool {
    let usual = match scheme {
        Scheme::Http => ":80",
        Scheme::Https => ":443",
    };
    let bare = |text: &'_ str| text.strip_suffix(usual).map(str::len).unwrap_or(text.len());
    one[..bare(one)].eq_ignore_ascii_case(&other[..bare(other)])
}

/// A host without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::PathBack;

    fn back(host: &str, scheme: Scheme, sent: &str, path_back: Option<PathBack>) -> String {
        let url = ServerUrl::Http {
            host: "10.0.0.5".into(),
            port: 3000,
        };
        let server_host = HeaderValue::try_from(url.host()).unwrap();
        let change = HostChange {
            host: match host {
                "upstream" => ServerHost::Own,
                text => ServerHost::Text(HeaderValue::try_from(text).unwrap()),
            },
            path_back,
        };
        let client = WayBack {
            change: &change,
            host: Some(HeaderValue::from_static("api.example.com:8080")),
            scheme,
        };
        let mut fields = HeaderMap::new();
        fields.insert(header::LOCATION, HeaderValue::try_from(sent).unwrap());
        let server = AnsweringServer {
            url: &url,
            server_host: Some(&server_host),
        };
        client.restore_fields(&mut fields, server);
        fields[header::LOCATION].to_str().unwrap().to_owned()
    }

    #[test]
    fn addresses_of_the_server_become_the_clients() {
        for (host, sent, restored) in [
            (
                "upstream",
                "http://10.0.0.5:3000/a?b#c",
                "https://api.example.com:8080/a?b#c",
            ),
            (
                "app.internal",
                "http://10.0.0.5:3000",
                "https://api.example.com:8080",
            ),
            (
                "app.internal",
                "HTTP://App.Internal:80/a",
                "https://api.example.com:8080/a",
            ),
            (
                "app.internal",
                "https://app.internal/a",
                "https://api.example.com:8080/a",
            ),
            (
                "app.internal",
                "//app.internal/a",
                "//api.example.com:8080/a",
            ),
            (
                "app.internal:81",
                "http://app.internal:81/",
                "https://api.example.com:8080/",
            ),
            // Another authority, user information, another port, relative, another scheme.
            (
                "app.internal",
                "http://other.internal/a",
                "http://other.internal/a",
            ),
            (
                "app.internal",
                "http://app.internal@evil/a",
                "http://app.internal@evil/a",
            ),
            (
                "app.internal",
                "http://app.internal.evil/",
                "http://app.internal.evil/",
            ),
            (
                "app.internal",
                "http://app.internal:8/",
                "http://app.internal:8/",
            ),
            ("app.internal", "/a", "/a"),
            ("app.internal", "a://app.internal/", "a://app.internal/"),
            ("app.internal", "", ""),
            // The host was not changed.
            (
                "API.example.com:8080",
                "http://10.0.0.5:3000/",
                "http://10.0.0.5:3000/",
            ),
        ] {
            assert_eq!(
                back(host, Scheme::Https, sent, None),
                restored,
                "{host} {sent}"
            );
        }
    }

    #[test]
    fn a_server_may_lead_to_https() {
        let sent = "https://app.internal/a";
        let restored = back("app.internal", Scheme::Http, sent, None);
        assert_eq!(restored, "https://api.example.com/a");
        let sent = "http://app.internal/a";
        let restored = back("app.internal", Scheme::Http, sent, None);
        assert_eq!(restored, "http://api.example.com:8080/a");
    }

    #[test]
    fn a_stripped_prefix_comes_back() {
        let prefix = PathBack::new("", "/api");
        let sent = "http://app.internal/orders/7?v=1";
        let restored = back("app.internal", Scheme::Https, sent, prefix);
        assert_eq!(restored, "https://api.example.com:8080/api/orders/7?v=1");
    }
}

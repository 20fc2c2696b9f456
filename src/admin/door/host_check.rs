//! The host names to which the admin listener answers. A page of another site can point its own name at this address
//! (DNS rebinding), and would then read the gateway's answers as its own. The name stays visible in `Host`, and the
//! site in `Origin` and in `Sec-Fetch-Site`.

use crate::admin::answers::problem::Problem;
use http::header::{HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use std::net::IpAddr;

/// What a browser says of the page that asks (<https://www.w3.org/TR/fetch-metadata/>).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names of this listener.
#[derive(Debug, Clone)]
pub(in crate::admin) struct ListenerNames {
    /// The local address of the connection.
    pub(in crate::admin) address: IpAddr,
    /// The machine's name.
    machine: Box<str>,
}

impl ListenerNames {
    /// The listener's names on this machine, for a connection to `address`.
    pub(in crate::admin) fn at(address: IpAddr) -> Self {
        let system = rustix::system::uname();
        Self {
            address: address.to_canonical(),
            machine: system.nodename().to_string_lossy().into(),
        }
    }

    /// Refuses a request unless it is for this listener, by these further names among others, and comes from no page of
    /// another site.
    pub(super) fn check(&self, head: &Parts, further: &[String]) -> Result<(), Problem> {
        let all = AllNames {
            listener: self,
            further,
        };
        if !all.is_asked(&head.uri, &head.headers) {
            let detail = "the Host of the request is no name of this listener: ask for its address, for localhost or for the machine's name";
            let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST, "foreign_host", detail);
            return Err(problem.help("`hosts` of [admin] has further names"));
        }
        let mut origins = head.headers.get_all(ORIGIN).iter();
        let is_foreign =
            origins.any(|origin| !origin.to_str().is_ok_and(|site| all.is_same_site(site)));
        let mut sites = head.headers.get_all(SEC_FETCH_SITE).iter();
        let is_ours =
            |site: &HeaderValue| [&b"same-origin"[..], b"none"].contains(&site.as_bytes());
        if is_foreign || !sites.all(is_ours) {
            let detail = "a page of another site has sent the request: such a page gets no answer";
            return Err(Problem::new(StatusCode::FORBIDDEN, "foreign_site", detail));
        }
        Ok(())
    }
}

/// All names by which a listener may be asked.
struct AllNames<'a> {
    listener: &'a ListenerNames,
    further: &'a [String],
}

impl AllNames<'_> {
    /// Is `origin` a page of this listener: a web scheme, and one of the listener's names?
    fn is_same_site(&self, origin: &str) -> bool {
        let Ok(origin) = origin.parse::<Uri>() else {
            return false;
        };
        matches!(origin.scheme_str(), Some("http" | "https"))
            && origin.authority().is_some_and(|site| self.has(site.host()))
    }

    fn is_asked(&self, target: &Uri, fields: &HeaderMap) -> bool {
        let mut hosts = fields.get_all(HOST).iter();
        let host = hosts.next();
        if hosts.next().is_some() {
            return false;
        }
        let host = host.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let asked = target.authority().or(host.as_ref());
        asked.is_some_and(|asked| self.has(asked.host()))
    }

    fn has(&self, host: &str) -> bool {
        let inside = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        if let Ok(address) = inside.unwrap_or(host).parse::<IpAddr>() {
            let address = address.to_canonical();
            return address.is_loopback()
                || address == self.listener.address
                || self.further.iter().any(|one| one.parse() == Ok(address));
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let machine = self.listener.machine.to_ascii_lowercase();
        let first = machine.split('.').next().unwrap_or_default();
        // RFC 6761, section 6.3: names below `localhost` always resolve to loopback.
        let below = host.strip_suffix(".localhost");
        host == "localhost"
            || below.is_some_and(|below| !below.is_empty())
            || !first.is_empty() && (host == machine || host == first)
            || self.further.contains(&host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn answer(target: &str, fields: &[(&str, &str)]) -> Option<StatusCode> {
        let names = ListenerNames {
            address: [192, 0, 2, 7].into(),
            machine: "gate.example.com".into(),
        };
        let mut request = Request::builder().uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let further = ["tollgate.internal".to_owned(), "192.0.2.9".to_owned()];
        names
            .check(&head, &further)
            .err()
            .map(|refused| refused.status)
    }

    #[test]
    fn it_is_asked_by_its_own_names_alone() {
        for host in [
            "localhost",
            "LocalHost:9090",
            "gateway.localhost:9090",
            "127.0.0.1:9090",
            "127.9.9.9",
            "[::1]:9090",
            "192.0.2.7:9090",
            "[::ffff:192.0.2.7]",
            "gate.example.com:9090",
            "gate",
            "gate.example.com.",
            "Tollgate.Internal:9090",
            "192.0.2.9",
        ] {
            assert_eq!(answer("/v1/store", &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example.com",
            "evil.example.com:9090",
            "192.0.2.8",
            "localhost.evil.com",
            "notlocalhost",
            ".localhost.evil",
            "",
            "a b",
            "evil.com@localhost.evil.com",
            "0.0.0.0",
        ] {
            let refused = Some(StatusCode::MISDIRECTED_REQUEST);
            assert_eq!(answer("/v1/store", &[("host", host)]), refused, "{host}");
        }
        let refused = Some(StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(answer("/v1/store", &[]), refused);
        let twice = [("host", "localhost"), ("host", "evil.example.com")];
        assert_eq!(answer("/v1/store", &twice), refused);
        // The target outranks `Host` (RFC 9112, section 3.2.2).
        let absolute = "http://evil.example.com/v1/store";
        assert_eq!(answer(absolute, &[("host", "localhost")]), refused);
    }

    #[test]
    fn no_page_of_another_site_asks() {
        for (origin, refused) in [
            ("http://localhost:9090", None),
            ("http://192.0.2.7:9090", None),
            ("https://evil.example.com", Some(StatusCode::FORBIDDEN)),
            ("null", Some(StatusCode::FORBIDDEN)),
            ("", Some(StatusCode::FORBIDDEN)),
            ("localhost", Some(StatusCode::FORBIDDEN)),
            ("localhost:9090", Some(StatusCode::FORBIDDEN)),
            ("app://localhost", Some(StatusCode::FORBIDDEN)),
        ] {
            let same_site = ("origin", "http://localhost");
            let asked = ("origin", origin);
            for origins in [&[asked][..], &[same_site, asked], &[asked, same_site]] {
                let fields = [&[("host", "localhost:9090")], origins].concat();
                assert_eq!(answer("/v1/peek", &fields), refused, "{origins:?}");
            }
        }
    }

    #[test]
    fn a_browser_says_whose_page_asks() {
        for (site, refused) in [
            ("same-origin", None),
            ("none", None),
            ("same-site", Some(StatusCode::FORBIDDEN)),
            ("cross-site", Some(StatusCode::FORBIDDEN)),
            ("", Some(StatusCode::FORBIDDEN)),
        ] {
            let fields = [("host", "localhost"), ("sec-fetch-site", site)];
            assert_eq!(answer("/v1/status", &fields), refused, "{site}");
        }
    }
}

//! One line of a trace: the access log's JSON, shorter JSON of that kind, or the log of another server.

mod format;
mod limits;
mod members;

pub use format::LogFormat;
pub(super) use format::ProxyFields;
pub(super) use members::MemberName;

use super::fields::Mapping;
use super::json::{self, JsonText, Value};
use super::line_layout::LineLayout;
use super::{apache_format, proxy_formats};
use crate::clock::Timestamp;
use crate::limit::verdict::INLINE_LIMITS;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// A request as its line has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoggedRequest<'a> {
    /// The instant of its head.
    pub(super) ts: Timestamp,
    /// The client's address.
    pub(super) client: Option<IpAddr>,
    /// `GET` where the line has none. UTF-8, as the next two are.
    pub(super) method: Cow<'a, [u8]>,
    /// Empty where the line has none.
    pub(super) host: Cow<'a, [u8]>,
    /// Path, with or without a query; or a whole URI.
    pub(super) target: Cow<'a, [u8]>,
    /// An object of fields, as it stands there; empty where the line has none.
    pub(super) headers: &'a [u8],
    /// Where a log has it outside of the fields.
    pub(super) user_agent: Option<Cow<'a, str>>,
    /// Where a log has it outside of the fields.
    pub(super) referer: Option<Cow<'a, str>>,
    /// Keys by limit, as the access log writes them.
    pub(super) keys: SmallVec<[(JsonText<'a>, Value<'a>); INLINE_LIMITS]>,
    /// An object of costs by limit, as the access log writes it.
    pub(super) costs: &'a [u8],
    /// An object of groups by limit, as the access log writes it.
    pub(super) groups: &'a [u8],
    /// What it takes from limits that read their cost from it.
    pub(super) cost: Option<u32>,
    /// How long it lasted, in microseconds.
    pub(super) duration: u64,
    /// How many requests the line stands for.
    pub(super) times: u64,
    /// The status of the answer; 0 where the line has none.
    pub(super) status: u16,
    /// The access log's word for why; empty where the line has none.
    pub(super) reason: &'a [u8],
    /// The limit that refused or held it; empty where the line names none.
    pub(super) limit: &'a [u8],
    /// It went on to a server.
    pub(super) reached: bool,
    /// Was it held before?
    pub(super) was_held: bool,
    /// The line says what was asked for.
    pub(super) names_path: bool,
    /// How the line is written.
    pub(super) format: LogFormat,
    /// What only other servers' logs have. With it, `client` is the peer of that server, and the client behind the peer is
    /// found as the gateway finds it.
    pub(super) proxy_fields: Option<Box<ProxyFields<'a>>>,
}

/// Why a line cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// In no form that is known.
    Unknown,
    /// Not JSON.
    NotJson,
    /// Not UTF-8.
    NotText,
    /// Longer than any line that could be one.
    TooLong,
    /// Has no `ts`.
    NoTime,
    /// Has neither a client nor a path.
    Nameless,
    /// The time is none, or one that cannot be computed with.
    BadTime,
    /// The client is no address.
    BadClient,
    /// The quotes hold no request.
    NoRequest,
    /// A member is of another type than it should be.
    BadMember(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "neither JSON nor a form of log that is known",
            Self::NotJson => "not JSON",
            Self::NotText => "not UTF-8",
            Self::TooLong => "longer than 1 MiB",
            Self::NoTime => "no ts",
            Self::Nameless => "no client and no path",
            Self::BadTime => {
                "the time is neither since 1970 (before the year 2112) nor RFC 3339 nor a log's"
            }
            Self::BadClient => "the client is not an address",
            Self::NoRequest => "no method and path",
            Self::BadMember(name) => return write!(f, "{name} is not what it should be"),
        })
    }
}

impl<'a> LoggedRequest<'a> {
    /// A request of which only the time is known.
    pub(super) fn at(ts: Timestamp) -> Self {
        Self {
            ts,
            client: None,
            method: Cow::Borrowed(b"GET"),
            host: Cow::Borrowed(b""),
            target: Cow::Borrowed(b"/"),
            headers: b"",
            user_agent: None,
            referer: None,
            keys: SmallVec::new(),
            costs: b"",
            groups: b"",
            cost: None,
            duration: 0,
            times: 1,
            status: 0,
            reason: b"",
            limit: b"",
            reached: false,
            was_held: false,
            names_path: false,
            format: LogFormat::Own,
            proxy_fields: None,
        }
    }

    /// Is its end a server's error, for which limits may give back what they took? An answer that is the gateway's own
    /// word about itself is none.
    pub(super) fn failed(&self) -> bool {
        let own: [&[u8]; 4] = [b"store_down", b"too_many_held", b"busy", b"draining"];
        (500..600).contains(&self.status) && !own.contains(&self.reason)
    }

    /// Did the client leave before anything was forwarded, or would it have, being held for `wait`?
    pub(super) fn left_within(&self, wait: u64) -> bool {
        let left = self.reason == b"client_gone" && !self.reached;
        left && (wait > self.duration || !self.was_held)
    }

    /// Reads a line, whichever of the forms it has, into one of which nothing is known yet: it is too large to be handed
    /// on for every line. JSON is read by `mapping`, where there is one.
    pub(super) fn read(
        &mut self,
        line: &'a [u8],
        line_layout: &mut LineLayout,
        mapping: Option<&Mapping>,
    ) -> Result<(), Fault> {
        let line = line.trim_ascii();
        if line.starts_with(b"{") {
            return match mapping {
                None => members::read(self, line, line_layout),
                Some(mapping) => mapping.read(self, line),
            };
        }
        match str::from_utf8(line).map_err(|_| Fault::NotText) {
            Ok(text) => match apache_format::read(text) {
                Ok(request) => *self = request,
                Err(fault) => return proxy_formats::read(self, text, fault, line_layout, mapping),
            },
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// The path as it came, without query and fragment, and the host where the target names one.
    pub(super) fn path(&self) -> (&[u8], Option<&[u8]>) {
        let target = &*self.target;
        let end = memchr::memchr2(b'?', b'#', target);
        let target = &target[..end.unwrap_or(target.len())];
        if target.first() == Some(&b'/') {
            return (target, None);
        }
        let whole = target
            .strip_prefix(b"http://")
            .or_else(|| target.strip_prefix(b"https://"));
        match whole {
            None => (target, None),
            Some(rest) => match rest.iter().position(|byte| *byte == b'/') {
                Some(slash) => (&rest[slash..], Some(&rest[..slash])),
                None => (b"/", Some(rest)),
            },
        }
    }

    /// The query, if the line tells one.
    pub(super) fn query(&self) -> Option<&str> {
        let (_, behind) = str::from_utf8(&self.target).ok()?.split_once('?')?;
        behind.split('#').next()
    }

    /// Puts its fields into `fields`, which is empty.
    pub(super) fn fields(&self, fields: &mut HeaderMap) -> Result<(), Fault> {
        const WRONG: Fault = Fault::BadMember("headers");
        let mut add = |name: HeaderName, value: &str| {
            let value = HeaderValue::from_str(value.trim_ascii())
                .or_else(|_| HeaderValue::from_bytes(value.trim_ascii().as_bytes()));
            fields.append(name, value.map_err(|_| WRONG)?);
            Ok(())
        };
        if let Some(referer) = &self.referer {
            add(header::REFERER, referer)?;
        }
        if let Some(proxy_fields) = &self.proxy_fields {
            return proxy_formats::fields(self, proxy_fields, fields);
        }
        if !self.headers.is_empty() {
            json::members(self.headers, |name, value| {
                let name = HeaderName::from_bytes(&name.bytes()?).map_err(|_| WRONG)?;
                match value {
                    Value::Null => Ok(()),
                    Value::Text(text) => add(name, &text.read()?),
                    Value::Number(digits) => {
                        add(name, std::str::from_utf8(digits).map_err(|_| WRONG)?)
                    }
                    Value::List(list) => json::entries(list, |value| match value {
                        Value::Text(text) => add(name.clone(), &text.read()?),
                        _ => Err(WRONG),
                    }),
                    Value::Bool(_) | Value::Object(_) => Err(WRONG),
                }
            })?;
        }
        if let Some(user_agent) = &self.user_agent
            && !fields.contains_key(header::USER_AGENT)
            && let Ok(value) = HeaderValue::from_str(user_agent)
        {
            fields.insert(header::USER_AGENT, value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[u8]) -> Result<LoggedRequest<'_>, Fault> {
        let mut request = LoggedRequest::at(Timestamp::default());
        request
            .read(line, &mut LineLayout::default(), None)
            .map(|()| request)
    }

    #[test]
    fn a_line_of_every_member() {
        let line = br#" {"ts": 12.000001, "client": "203.0.113.9", "method": "GET", "host": "a", "path": "/x?q=1",
            "headers": {"x-api-key": "k", "accept": ["a", "b"], "x-n": 3, "x-none": null}, "cost": 4,
            "duration_ms": 1.5, "keys": {"per-ip": "a\"b"}, "costs": {"per-ip": 2}, "repeated": 7} "#;
        let request = read(line).unwrap();
        assert_eq!(request.ts.micros(), 12_000_001);
        assert_eq!(request.path(), (&b"/x"[..], None));
        assert_eq!(
            (request.cost, request.duration, request.times),
            (Some(4), 1_500, 8)
        );
        assert_eq!(request.logged_key("per-ip").as_deref(), Some("a\"b"));
        assert_eq!(request.logged_key("other"), None);
        let mut fields = HeaderMap::new();
        request.fields(&mut fields).unwrap();
        assert_eq!(fields.len(), 4);
        assert_eq!(fields.get_all("accept").iter().count(), 2);
    }

    #[test]
    fn what_stood_in_the_lines_before_changes_nothing() {
        const LINES: [&str; 6] = [
            r#"{"ts": 12.000001, "client": "203.0.113.9", "method": "GET", "host": "a", "path": "/x?q=1"}"#,
            r#"{"ts": 12.000001, "client": "203.0.113.9", "path": "/x", "method": "GET", "status": 500}"#,
            r#"{"ts":"1970-01-01T00:00:12Z","client":"::1","keys":{"a":"1","b":"2","a":"3"},"costs":{"a":2},"upstream":null}"#,
            r#"{"ts":1, "headers": {"a": "b", "c": ["d"]}, "an odd member with a name that is too long": {"ts": 2}, "cost": 4}"#,
            r#" {"\u0074s": 1 , "host" : "\u0041", "repeated":2,"duration_ms":1.5,"reason":"client_gone"} "#,
            r#"{}"#,
        ];
        let mut random = fastrand::Rng::with_seed(6);
        let mut line_layout = LineLayout::default();
        let (mut good, mut bad) = (0, 0);
        for _ in 0..50_000 {
            let mut line = LINES[random.usize(..LINES.len())].as_bytes().to_vec();
            let at = random.usize(..line.len());
            let odd = br#"",:{}[]\ 0x"#[random.usize(..11)];
            match random.u8(..8) {
                0 => line[at] = odd,
                1 => line.insert(at, odd),
                2 => drop(line.remove(at)),
                3 => line.truncate(at),
                _ => {}
            }
            let [mut first, mut next] = [0; 2].map(|_| LoggedRequest::at(Timestamp::default()));
            let told = first.read(&line, &mut LineLayout::default(), None);
            assert_eq!(next.read(&line, &mut line_layout, None), told);
            assert_eq!(next, first, "{}", String::from_utf8_lossy(&line));
            *if told.is_ok() { &mut good } else { &mut bad } += 1;
        }
        assert!(good > 10_000 && bad > 10_000, "{good} {bad}");
    }

    #[test]
    fn a_line_says_when_and_who_or_what() {
        let at = |ts| LoggedRequest::at(Timestamp::from_micros(ts));
        let asked = LoggedRequest {
            target: Cow::Borrowed(b"/x"),
            names_path: true,
            ..at(1_000_000)
        };
        assert_eq!(read(br#"{"ts":1,"path":"/x"}"#), Ok(asked.clone()));
        let nulls = br#"{"client":null,"host":null,"ts":"1970-01-01T00:00:01Z","upstream_ms":null,"x":[{}],"path":"/x"}"#;
        assert_eq!(read(nulls), Ok(asked));
        for line in [
            &br#"{"ts":1}"#[..],
            br#"{"ts":1,"host":"web-1","level":"info","client":null}"#,
            br#"{"ts":1,"duration_ms":2,"headers":{}}"#,
        ] {
            assert_eq!(read(line), Err(Fault::Nameless));
        }
        for line in [
            &br#"{"ts":1,"headers":{"x-api-key":"k"}}"#[..],
            br#"{"ts":1,"keys":{"a":"k"}}"#,
            br#"{"ts":1,"cost":2}"#,
        ] {
            assert!(read(line).is_ok());
        }
    }

    #[test]
    fn a_whole_uri_names_its_host() {
        let path = |target: &'static str| {
            let mut request = LoggedRequest::at(Timestamp::default());
            request.target = Cow::Borrowed(target.as_bytes());
            let (path, host) = request.path();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (text(path), host.map(text))
        };
        assert_eq!(
            path("http://a.b/x?y"),
            ("/x".to_owned(), Some("a.b".to_owned()))
        );
        assert_eq!(
            path("https://a.b?y"),
            ("/".to_owned(), Some("a.b".to_owned()))
        );
        assert_eq!(path("/x#y?z"), ("/x".to_owned(), None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, fault) in [
            (&b"{"[..], Fault::NotJson),
            (b"{}", Fault::NoTime),
            (b"\xff", Fault::NotText),
            (b"hello", Fault::Unknown),
            (br#"{"ts":1e3}"#, Fault::BadTime),
            (br#"{"ts":-1}"#, Fault::BadTime),
            (br#"{"ts":true}"#, Fault::BadTime),
            (br#"{"ts":9795196930}"#, Fault::BadTime),
            (br#"{"ts":1,"client":"nobody"}"#, Fault::BadClient),
            (br#"{"ts":1,"cost":1.5}"#, Fault::BadMember("cost")),
            (br#"{"ts":1,"cost":-1}"#, Fault::BadMember("cost")),
            (br#"{"ts":1,"path":5}"#, Fault::BadMember("path")),
            (br#"{"ts":1,"headers":[]}"#, Fault::BadMember("headers")),
        ] {
            let text = String::from_utf8_lossy(line);
            assert_eq!(read(line), Err(fault), "{text}");
        }
        let odd = read(br#"{"ts":1,"path":"/","headers":{"a b":"c"}}"#).unwrap();
        assert_eq!(
            odd.fields(&mut HeaderMap::new()),
            Err(Fault::BadMember("headers"))
        );
    }
}

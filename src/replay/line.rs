//! One line of a trace: the access log's JSON, shorter JSON of that kind, or the log of another server.

mod members;

use super::fields::Mapping;
use super::line_layout::LineLayout;
use super::request::LoggedRequest;
use super::{Fault, apache_format, proxy_formats};

/// Prefixes that are looked behind: of compose, of its time, of syslog.
const DEEPEST: usize = 3;

impl<'a> LoggedRequest<'a> {
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
                Err(fault) => return read_proxy_format(self, text, fault, line_layout, mapping),
            },
            Err(fault) => return Err(fault),
        }
        Ok(())
    }
}

/// A line of text that is no plain combined log, for `fault`.
#[cold]
fn read_proxy_format<'a>(
    request: &mut LoggedRequest<'a>,
    line: &'a str,
    fault: Fault,
    line_layout: &mut LineLayout,
    mapping: Option<&Mapping>,
) -> Result<(), Fault> {
    let (mut line, mut fault) = (line, fault);
    for _ in 0..DEEPEST {
        if let Some(read) = proxy_formats::read(line) {
            *request = read?;
            return Ok(());
        }
        let Some(rest) = proxy_formats::strip_prefix(line) else {
            return Err(fault);
        };
        line = rest;
        if line.starts_with('{') {
            return request.read(line.as_bytes(), line_layout, mapping);
        }
        match apache_format::read(line) {
            Ok(read) => {
                *request = read;
                return Ok(());
            }
            Err(other) => fault = other,
        }
    }
    Err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use http::HeaderMap;
    use std::borrow::Cow;

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

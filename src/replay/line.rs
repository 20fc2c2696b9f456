//! One line of a trace: the access log's JSON, shorter JSON of that kind, or the log of another server.

mod layout;
mod members;

use super::json::{self, Value};
use super::mapping::Mapping;
use super::request::LoggedRequest;
use super::{Fault, apache_format, proxy_formats};
use layout::LineLayout;
use std::borrow::Cow;

/// The most prefixes that are removed from one line: compose's, a time, and syslog's.
const DEEPEST: usize = 3;

/// The reader of one trace's lines.
#[derive(Debug)]
pub(super) struct LineReader {
    layout: LineLayout,
    /// The mapping that `--fields` gives, if any.
    pub(super) mapping: Option<Mapping>,
    servers: [Mapping; 2],
}

/// The text of a line. A member that is not read need not be UTF-8: in JSON, invalid bytes become an escape that
/// represents no text.
pub(super) fn line_text(line: &[u8]) -> Result<Cow<'_, str>, Fault> {
    let line = trimmed(line);
    match str::from_utf8(line) {
        Ok(text) => Ok(Cow::Borrowed(text)),
        Err(_) if line.starts_with(b"{") => Ok(Cow::Owned(mended(line))),
        Err(_) => Err(Fault::NotText),
    }
}

/// The line without the blanks of JSON around it (RFC 8259, section 2). A form feed, which is a blank in ASCII, is not
/// one in JSON.
fn trimmed(line: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = line.iter().position(is_text).unwrap_or(line.len());
    let end = line.iter().rposition(is_text).map_or(start, |at| at + 1);
    &line[start..end]
}

#[cold]
fn mended(line: &[u8]) -> String {
    let parts = line.utf8_chunks().flat_map(|chunk| {
        let is_whole = chunk.invalid().is_empty();
        // The blank ends an escape that the invalid bytes cut off.
        [chunk.valid(), if is_whole { "" } else { r" \ud800" }]
    });
    parts.collect()
}

impl LineReader {
    /// A reader at the beginning of its trace. JSON is read by `mapping`, if there is one.
    pub(super) fn new(mapping: Option<Mapping>) -> Self {
        Self {
            layout: LineLayout::default(),
            mapping,
            servers: Mapping::of_servers(),
        }
    }

    /// Reads a line of any known form into `request`, which is blank. The caller passes the request in since it is too
    /// large to be moved for every line.
    pub(super) fn read<'a>(
        &mut self,
        request: &mut LoggedRequest<'a>,
        line: &'a str,
    ) -> Result<(), Fault> {
        if line.starts_with('{') {
            self.read_json(request, line)?;
        } else {
            self.read_text(request, line)?;
        }
        if request.ts.is_none() {
            return Err(Fault::NoTime);
        }
        if !request.says_anything() {
            return Err(Fault::Nameless);
        }
        if request.has_fields() {
            return request.fill_fields();
        }
        Ok(())
    }

    /// Reads a line of text, with or without the prefixes of other programs.
    #[inline(never)]
    fn read_text<'a>(
        &mut self,
        request: &mut LoggedRequest<'a>,
        line: &'a str,
    ) -> Result<(), Fault> {
        let mut line = line;
        for depth in 0.. {
            let Err(fault) = apache_format::read_apache(request, line) else {
                break;
            };
            if let Some(read) = proxy_formats::read_proxy_format(request, line) {
                return read;
            }
            let rest = proxy_formats::strip_prefix(line).filter(|_| depth < DEEPEST);
            line = rest.ok_or(fault)?;
            if line.starts_with('{') {
                return self.read_json(request, line);
            }
        }
        Ok(())
    }

    fn read_json<'a>(
        &mut self,
        request: &mut LoggedRequest<'a>,
        line: &'a str,
    ) -> Result<(), Fault> {
        if let Some(mapping) = &self.mapping {
            return mapping.read(request, line).map(drop);
        }
        self.read_members(request, line)?;
        if request.ts.is_none() || (request.client.is_none() && !request.names_path) {
            return self.read_server(request, line);
        }
        Ok(())
    }

    /// Reads a line of JSON as another server's, since our own members do not describe a request in it.
    #[cold]
    fn read_server<'a>(&self, request: &mut LoggedRequest<'a>, line: &'a str) -> Result<(), Fault> {
        for server in &self.servers {
            if server.read(request, line)? {
                break;
            }
        }
        Ok(())
    }

    /// Reads the members of our own log.
    fn read_members<'a>(
        &mut self,
        request: &mut LoggedRequest<'a>,
        line: &'a str,
    ) -> Result<(), Fault> {
        let mut at = 0;
        for index in 0.. {
            let (start, member) = match self.layout.next(index, &line.as_bytes()[at..]) {
                Some(known) => (at + known.length, known.member),
                None => {
                    let Some((name, start)) = json::member(line, at)? else {
                        break;
                    };
                    let member = name.read().ok().and_then(|name| members::find(&name));
                    let prefix = &line.as_bytes()[at..start];
                    self.layout.learn(index, prefix, member);
                    (start, member)
                }
            };
            let (value, end) = json::value_at(line, start)?;
            at = end;
            if let Some(member) = member
                && (value != Value::Null || member.name == "ts")
            {
                (member.read)(request, value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::replay::request::LoggedTarget;

    fn read_line(line: &str) -> Result<LoggedRequest<'_>, Fault> {
        let mut request = LoggedRequest::default();
        let read = LineReader::new(None).read(&mut request, line);
        read.map(|()| request)
    }

    #[test]
    fn a_line_of_every_member() {
        let line = r#"{"ts": 12.000001, "client": "203.0.113.9", "method": "GET", "host": "a", "path": "/x?q=1",
            "headers": {"x-api-key": "k", "accept": ["a", "b"], "x-n": 3, "x-none": null}, "cost": 4,
            "duration_ms": 1.5, "keys": {"per-ip": "a\"b"}, "costs": {"per-ip": 2}, "repeated": 7}"#;
        let request = read_line(line).unwrap();
        assert_eq!(request.ts, Some(Timestamp::from_micros(12_000_001)));
        assert_eq!(request.target().path, "/x");
        assert_eq!(
            (request.cost, request.duration, request.times),
            (Some(4), 1_500, 8)
        );
        assert_eq!(request.logged_key("per-ip").as_deref(), Some("a\"b"));
        assert_eq!(request.logged_key("other"), None);
        assert_eq!(request.fields.len(), 4);
        assert_eq!(request.fields.get_all("accept").iter().count(), 2);
    }

    #[test]
    fn a_call_fails_by_its_own_status() {
        for (rest, has_failed) in [
            (r#""status":503,"reason":"ok"}"#, true),
            (r#""status":200,"grpc_status":0,"reason":"ok"}"#, false),
            (r#""status":200,"grpc_status":null,"reason":"ok"}"#, false),
            (r#""status":200,"grpc_status":14,"reason":"ok"}"#, true),
            (
                r#""status":200,"grpc_status":14,"reason":"store_down"}"#,
                false,
            ),
            (
                r#""status":200,"grpc_status":4,"reason":"upstream_timeout"}"#,
                true,
            ),
            (
                r#""status":200,"grpc_status":4,"reason":"deadline_exceeded"}"#,
                false,
            ),
            (
                r#""status":200,"grpc_status":8,"reason":"limit_refused"}"#,
                false,
            ),
        ] {
            let line = format!(r#"{{"ts":1,"client":"::1","path":"/a.B/C",{rest}"#);
            assert_eq!(read_line(&line).unwrap().failed(), has_failed, "{line}");
        }
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
        let mut reader = LineReader::new(None);
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
            let line = String::from_utf8(line).unwrap();
            let line = line.trim_ascii();
            let [mut first, mut next] = [0; 2].map(|_| LoggedRequest::default());
            let first_result = LineReader::new(None).read(&mut first, line);
            assert_eq!(reader.read(&mut next, line), first_result);
            assert_eq!(next, first, "{line}");
            *if first_result.is_ok() {
                &mut good
            } else {
                &mut bad
            } += 1;
        }
        assert!(good > 10_000 && bad > 10_000, "{good} {bad}");
    }

    #[test]
    fn a_line_says_when_and_who_or_what() {
        let asked = LoggedRequest {
            ts: Some(Timestamp::from_micros(1_000_000)),
            target: Cow::Borrowed("/x"),
            names_path: true,
            ..LoggedRequest::default()
        };
        assert_eq!(read_line(r#"{"ts":1,"path":"/x"}"#), Ok(asked.clone()));
        let nulls = r#"{"client":null,"host":null,"ts":"1970-01-01T00:00:01Z","upstream_ms":null,"x":[{}],"path":"/x"}"#;
        assert_eq!(read_line(nulls), Ok(asked));
        for line in [
            r#"{"ts":1}"#,
            r#"{"ts":1,"host":"web-1","level":"info","client":null}"#,
            r#"{"ts":1,"duration_ms":2,"headers":{}}"#,
        ] {
            assert_eq!(read_line(line), Err(Fault::Nameless));
        }
        for line in [
            r#"{"ts":1,"headers":{"x-api-key":"k"}}"#,
            r#"{"ts":1,"keys":{"a":"k"}}"#,
            r#"{"ts":1,"cost":2}"#,
        ] {
            assert!(read_line(line).is_ok());
        }
    }

    #[test]
    fn a_whole_uri_names_its_host() {
        let path = |target: &'static str| {
            let request = LoggedRequest {
                target: Cow::Borrowed(target),
                ..LoggedRequest::default()
            };
            let LoggedTarget { host, path, query } = request.target();
            [host, path, query.unwrap_or("none")].map(str::to_owned)
        };
        assert_eq!(path("http://a.b/x?y"), ["a.b", "/x", "y"]);
        assert_eq!(path("https://a.b?y"), ["a.b", "/", "y"]);
        assert_eq!(path("/x#y?z"), ["", "/x", "none"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, fault) in [
            ("{", Fault::NotJson),
            ("{}", Fault::NoTime),
            ("hello", Fault::Unknown),
            (r#"{"ts":1e3}"#, Fault::BadTime),
            (r#"{"ts":-1}"#, Fault::BadTime),
            (r#"{"ts":true}"#, Fault::BadTime),
            (r#"{"ts":9795196930}"#, Fault::BadTime),
            (r#"{"ts":1,"client":"nobody"}"#, Fault::BadClient),
            (r#"{"ts":1,"cost":1.5}"#, Fault::BadMember("cost")),
            (r#"{"ts":1,"cost":-1}"#, Fault::BadMember("cost")),
            (r#"{"ts":1,"path":5}"#, Fault::BadMember("path")),
            (r#"{"ts":1,"headers":[]}"#, Fault::BadMember("headers")),
            (
                r#"{"ts":1,"path":"/","headers":{"a b":"c"}}"#,
                Fault::BadMember("headers"),
            ),
        ] {
            assert_eq!(read_line(line), Err(fault), "{line}");
        }
    }

    #[test]
    fn what_is_not_read_need_not_be_text() {
        let whole =
            |line: &[u8]| read_line(&line_text(line)?).map(|request| request.target.into_owned());
        assert_eq!(whole(b"\xff"), Err(Fault::NotText));
        assert_eq!(
            whole(b"{\"ts\":1,\"x\":\"\xff\",\"path\":\"/\xc3\xa9\"}"),
            Ok("/\u{e9}".to_owned())
        );
        let path = b" {\"ts\":1,\"path\":\"/\xff\"}\n";
        assert_eq!(whole(path), Err(Fault::NotText));
        let escape = b"{\"ts\":1,\"x\":\"\\\xff\",\"path\":\"/\"}";
        assert_eq!(whole(escape), Err(Fault::NotJson));
    }
}

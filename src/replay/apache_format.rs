//! A line of the common or combined log, as Apache, nginx, Traefik and this gateway's `access = "combined"` write it.

use super::request::{LogFormat, LoggedRequest, ProxyFields};
use super::{Fault, address, instant};
use std::borrow::Cow;

/// `203.0.113.9 - - [20/Nov/2026:17:48:50 +0000] "GET /x HTTP/1.1" 200 212 "-" "curl/8.7"`
pub(super) fn read(line: &str) -> Result<LoggedRequest<'_>, Fault> {
    let (client, rest) = split(line, b' ').ok_or(Fault::Unknown)?;
    let (_, rest) = split(rest, b'[').ok_or(Fault::Unknown)?;
    let (time, rest) = split(rest, b']').ok_or(Fault::Unknown)?;
    let mut rest = rest;
    let request = quoted(&mut rest).ok_or(Fault::Unknown)?;
    let (method, target) = asked(request)?;
    let status = rest.split_ascii_whitespace().next();
    // The size stands between.
    let referer = quoted(&mut rest).filter(|text| *text != "-");
    let agent = quoted(&mut rest);
    let mut request = LoggedRequest {
        client: match client {
            "-" => None,
            client => Some(address::read(client)?),
        },
        method,
        target,
        referer: referer.map(worded),
        user_agent: agent.filter(|text| *text != "-").map(worded),
        status: status.and_then(|status| status.parse().ok()).unwrap_or(0),
        names_path: true,
        format: match agent {
            Some(_) => LogFormat::Combined,
            None => LogFormat::Common,
        },
        ..LoggedRequest::at(instant::apache(time).ok_or(Fault::BadTime)?)
    };
    if agent.is_some() && !rest.is_empty() {
        more(&mut request, rest);
    }
    Ok(request)
}

/// What stands behind a combined line: nginx's `main` has the addresses that a request came through, Traefik the time
/// that it took.
#[cold]
fn more<'a>(request: &mut LoggedRequest<'a>, line: &'a str) {
    let (mut rest, mut list) = (line, None);
    while let Some(text) = quoted(&mut rest) {
        list = address::is_list(text).then_some(text).or(list);
    }
    if let Some(list) = list {
        request.proxy_fields = Some(Box::new(ProxyFields {
            forwarded_for: Some(worded(list)),
            ..ProxyFields::default()
        }));
    }
    let took = rest.trim_ascii().strip_suffix("ms").map(str::parse::<u32>);
    match took {
        Some(Ok(took)) => {
            request.duration = u64::from(took) * 1_000;
            request.format = LogFormat::TraefikText;
        }
        _ if line.trim_ascii_start().starts_with('"') => request.format = LogFormat::Main,
        _ => {}
    }
}

/// Method and target.
pub(super) type PathAndQuery<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// What a request's first line asks for.
pub(super) fn asked(line: &str) -> Result<PathAndQuery<'_>, Fault> {
    let (method, words) = split(line, b' ').ok_or(Fault::NoRequest)?;
    let (target, protocol) = split(words, b' ').unwrap_or((words, ""));
    let is_nothing = |word: &str| word.is_empty() || word == "-";
    if is_nothing(method) || is_nothing(target) || protocol.contains(' ') {
        return Err(Fault::NoRequest);
    }
    Ok((bytes(plain(method)), bytes(plain(target))))
}

/// What stands before the first `mark`, which is ASCII, and behind it.
pub(super) fn split(text: &str, mark: u8) -> Option<(&str, &str)> {
    let at = memchr::memchr(mark, text.as_bytes())?;
    Some((&text[..at], &text[at + 1..]))
}

/// The inside of the next quotes; a quote behind a backslash is part of it.
pub(super) fn quoted<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (_, behind) = split(rest, b'"')?;
    let bytes = behind.as_bytes();
    let mut end = memchr::memchr2(b'"', b'\\', bytes)?;
    while bytes[end] == b'\\' {
        let next = end + 2;
        end = next + memchr::memchr2(b'"', b'\\', bytes.get(next..)?)?;
    }
    *rest = &behind[end + 1..];
    Some(&behind[..end])
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// The value of a field, whose bytes are not written by percents. One that is no text afterwards stays as paths do.
pub(super) fn worded(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let (byte, taken) = match &rest[at + 1..] {
            [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |hex: &u8| char::from(*hex).to_digit(16).unwrap_or_default();
                (
                    u8::try_from(digit(high) * 16 + digit(low)).unwrap_or_default(),
                    4,
                )
            }
            [b't', ..] => (b'\t', 2),
            [b'n', ..] => (b'\n', 2),
            [b'r', ..] => (b'\r', 2),
            [mark, ..] => (*mark, 2),
            [] => break,
        };
        out.push(byte);
        rest = &rest[at + taken..];
    }
    out.extend_from_slice(rest);
    String::from_utf8(out).map_or_else(|_| plain(text), Cow::Owned)
}

/// Without the escapes. Bytes beyond ASCII are spelled as the path's normal form spells them.
fn plain(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let code = behind
            .strip_prefix('x')
            .and_then(|hex| hex.get(..2))
            .filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        rest = match (code, behind.chars().next()) {
            (Some(hex), _) => {
                out.push('%');
                out.push_str(hex);
                &behind[3..]
            }
            (None, Some(mark)) => {
                out.push(mark);
                &behind[mark.len_utf8()..]
            }
            (None, None) => "",
        };
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combined_line() {
        let line = r#"203.0.113.9 - joe [20/Nov/2026:17:48:50 +0000] "POST /v1/\"x\"\xc3\xa9?q=1 HTTP/1.1" 200 212 "http://a/" "curl \"8\"""#;
        let request = read(line).unwrap();
        assert_eq!(request.client, Some("203.0.113.9".parse().unwrap()));
        assert_eq!(
            (&*request.method, &*request.target),
            (&b"POST"[..], &b"/v1/\"x\"%c3%a9?q=1"[..])
        );
        assert_eq!(request.ts.micros(), 1_795_196_930_000_000);
        assert_eq!(request.user_agent.as_deref(), Some("curl \"8\""));
        assert_eq!(request.referer.as_deref(), Some("http://a/"));
    }

    #[test]
    fn a_common_line_has_less() {
        let line = r#"2001:db8::1 - - [20/Nov/2026:17:48:50 +0100] "GET / HTTP/1.0" 304 -"#;
        let request = read(line).unwrap();
        assert_eq!(request.client, Some("2001:db8::1".parse().unwrap()));
        assert_eq!((request.user_agent, request.referer), (None, None));
    }

    #[test]
    fn what_is_no_request_is_told() {
        let with = |request: &str| {
            format!(r#"1.2.3.4 - - [20/Nov/2026:17:48:50 +0000] "{request}" 400 0"#)
        };
        assert_eq!(read(&with("-")).unwrap_err(), Fault::NoRequest);
        assert_eq!(read(&with("\\x16\\x03")).unwrap_err(), Fault::NoRequest);
        assert_eq!(read("hello").unwrap_err(), Fault::Unknown);
        assert_eq!(read("").unwrap_err(), Fault::Unknown);
        let named = with("GET / HTTP/1.1").replace("1.2.3.4", "host.example.com");
        assert_eq!(read(&named).unwrap_err(), Fault::BadClient);
        let late = with("GET / HTTP/1.1").replace("Nov", "Nov.");
        assert_eq!(read(&late).unwrap_err(), Fault::BadTime);
    }

    #[test]
    fn fields_are_what_was_sent() {
        for (escaped, sent) in [
            ("plain", "plain"),
            (r"caf\xc3\xa9", "caf\u{e9}"),
            (r"a\tb\\c", "a\tb\\c"),
            // No text, so that it is spelled as it is in a path.
            (r"a\xff", "a%ff"),
            (r"\x4", "x4"),
        ] {
            assert_eq!(worded(escaped), sent);
        }
    }
}

//! A line of the common or combined log, as Apache, nginx, Traefik and this gateway's `access = "combined"` write it.

use super::request::{LogFormat, LoggedRequest, ProxyFields, read_method};
use super::{Fault, address, instant};
use http::Method;
use std::borrow::Cow;

/// `203.0.113.9 - - [20/Nov/2026:17:48:50 +0000] "GET /x HTTP/1.1" 200 212 "-" "curl/8.7"`
pub(super) fn read_apache<'a>(request: &mut LoggedRequest<'a>, line: &'a str) -> Result<(), Fault> {
    let (client, rest) = split(line, b' ').ok_or(Fault::Unknown)?;
    let (_, rest) = split(rest, b'[').ok_or(Fault::Unknown)?;
    let (time, rest) = split(rest, b']').ok_or(Fault::Unknown)?;
    let mut rest = rest;
    let asked = quoted(&mut rest).ok_or(Fault::Unknown)?;
    take_request_line(request, asked.into())?;
    let client = match client {
        "-" => None,
        client => Some(address::parse_address(client)?),
    };
    request.ts = Some(instant::apache(time).ok_or(Fault::BadTime)?);
    request.client = client;
    request.put_status(rest.split_ascii_whitespace().next());
    // The answer's size stands between the status and the referer.
    request.referer = said(&mut rest);
    let agent = quoted(&mut rest);
    request.user_agent = agent.filter(|text| *text != "-").map(worded);
    request.format = match agent {
        Some(_) => LogFormat::Combined,
        None => LogFormat::Common,
    };
    if agent.is_some() && !rest.is_empty() {
        more(request, rest);
    }
    Ok(())
}

/// Reads the words after a combined line. nginx's `main` has the addresses of the request's hops there, Traefik has the
/// request's duration.
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

/// Takes method and target of a request's first line.
pub(super) fn take_request_line<'a>(
    request: &mut LoggedRequest<'a>,
    line: Cow<'a, str>,
) -> Result<(), Fault> {
    let (method, target) = match line {
        Cow::Borrowed(line) => asked(line)?,
        Cow::Owned(line) => {
            let (method, target) = asked(&line)?;
            (method, Cow::Owned(target.into_owned()))
        }
    };
    request.method = method;
    request.put_target(target);
    Ok(())
}

fn asked(line: &str) -> Result<(Method, Cow<'_, str>), Fault> {
    let (method, words) = split(line, b' ').ok_or(Fault::NoRequest)?;
    let (target, protocol) = split(words, b' ').unwrap_or((words, ""));
    let is_nothing = |word: &str| word.is_empty() || word == "-";
    if is_nothing(method) || is_nothing(target) || protocol.contains(' ') {
        return Err(Fault::NoRequest);
    }
    Ok((read_method(&plain(method))?, plain(target)))
}

/// The texts before and after the first `mark`, which is ASCII.
pub(super) fn split(text: &str, mark: u8) -> Option<(&str, &str)> {
    let at = memchr::memchr(mark, text.as_bytes())?;
    Some((&text[..at], &text[at + 1..]))
}

/// The inside of the next quotes; a quote after a backslash is part of it.
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

/// The value of a field in the next quotes; `None` for `-`.
pub(super) fn said<'a>(rest: &mut &'a str) -> Option<Cow<'a, str>> {
    quoted(rest).filter(|text| *text != "-").map(worded)
}

/// The value of a field, in which an escaped byte, `\xHH`, becomes the byte itself. A value that is then not UTF-8 is
/// spelled like a path, with `%HH`.
pub(super) fn worded(text: &str) -> Cow<'_, str> {
    let byte = |out: &mut Vec<u8>, hex: &str| out.extend(u8::from_str_radix(hex, 16));
    unescaped(text, byte).unwrap_or_else(|| plain(text))
}

/// The text without backslash escapes. Bytes beyond ASCII are spelled as the path's normal form spells them.
fn plain(text: &str) -> Cow<'_, str> {
    let percents = |out: &mut Vec<u8>, hex: &str| {
        out.push(b'%');
        out.extend_from_slice(hex.as_bytes());
    };
    unescaped(text, percents).unwrap_or_default()
}

/// The text without backslash escapes; `byte` writes a byte that is escaped as two hexadecimal digits. `None` if the
/// result is not UTF-8.
fn unescaped(text: &str, byte: impl Fn(&mut Vec<u8>, &str)) -> Option<Cow<'_, str>> {
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((before, behind)) = rest.split_once('\\') {
        out.extend_from_slice(before.as_bytes());
        let is_hex = |hex: &&str| hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hex = behind.strip_prefix('x').and_then(|hex| hex.get(..2));
        let mark = behind.chars().next();
        let taken = if let Some(hex) = hex.filter(is_hex) {
            byte(&mut out, hex);
            3
        } else {
            out.extend(
                mark.map(control)
                    .map(String::from)
                    .unwrap_or_default()
                    .bytes(),
            );
            mark.map_or(0, char::len_utf8)
        };
        rest = &behind[taken..];
    }
    out.extend_from_slice(rest.as_bytes());
    String::from_utf8(out).ok().map(Cow::Owned)
}

/// The character that an escape of backslash and `mark` represents: a control character, or `mark` itself.
fn control(mark: char) -> char {
    match mark {
        't' => '\t',
        'n' => '\n',
        'r' => '\r',
        _ => mark,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Result<LoggedRequest<'_>, Fault> {
        let mut request = LoggedRequest::default();
        super::read_apache(&mut request, line).map(|()| request)
    }

    #[test]
    fn a_combined_line() {
        let line = r#"203.0.113.9 - joe [20/Nov/2026:17:48:50 +0000] "POST /v1/\"x\"\xc3\xa9?q=1 HTTP/1.1" 200 212 "http://a/" "curl \"8\"""#;
        let request = read_line(line).unwrap();
        assert_eq!(request.client, Some("203.0.113.9".parse().unwrap()));
        assert_eq!(request.method, Method::POST);
        assert_eq!(request.target, "/v1/\"x\"%c3%a9?q=1");
        assert_eq!(request.ts.unwrap().micros(), 1_795_196_930_000_000);
        assert_eq!(request.user_agent.as_deref(), Some("curl \"8\""));
        assert_eq!(request.referer.as_deref(), Some("http://a/"));
    }

    #[test]
    fn a_common_line_has_less() {
        let line = r#"2001:db8::1 - - [20/Nov/2026:17:48:50 +0100] "GET / HTTP/1.0" 304 -"#;
        let request = read_line(line).unwrap();
        assert_eq!(request.client, Some("2001:db8::1".parse().unwrap()));
        assert_eq!((request.user_agent, request.referer), (None, None));
    }

    #[test]
    fn what_is_no_request_is_told() {
        let with = |request: &str| {
            format!(r#"1.2.3.4 - - [20/Nov/2026:17:48:50 +0000] "{request}" 400 0"#)
        };
        assert_eq!(read_line(&with("-")).unwrap_err(), Fault::NoRequest);
        assert_eq!(
            read_line(&with("\\x16\\x03")).unwrap_err(),
            Fault::NoRequest
        );
        assert_eq!(read_line("hello").unwrap_err(), Fault::Unknown);
        assert_eq!(read_line("").unwrap_err(), Fault::Unknown);
        let named = with("GET / HTTP/1.1").replace("1.2.3.4", "host.example.com");
        assert_eq!(read_line(&named).unwrap_err(), Fault::BadClient);
        let late = with("GET / HTTP/1.1").replace("Nov", "Nov.");
        assert_eq!(read_line(&late).unwrap_err(), Fault::BadTime);
    }

    #[test]
    fn fields_are_what_was_sent() {
        for (escaped, sent) in [
            ("plain", "plain"),
            (r"caf\xc3\xa9", "caf\u{e9}"),
            (r"a\tb\\c", "a\tb\\c"),
            // The byte is not UTF-8, and is spelled as in a path.
            (r"a\xff", "a%ff"),
            (r"\x4", "x4"),
        ] {
            assert_eq!(worded(escaped), sent);
        }
    }
}

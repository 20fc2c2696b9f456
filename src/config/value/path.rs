//! Path patterns, brought into the normal form that requests are matched in.

use super::{Code, Wrong, quoted};
use crate::route::{PathPattern, Segment};
use std::fmt::Write as _;
use std::sync::Arc;

/// Reads `/v1/orders/{id}` or `/files/{*rest}`.
///
/// Literals are normalised as requests are: duplicate and trailing slashes go, unreserved escapes are decoded. What can
/// never be in a normalised request (dot segments, `;parameters`, escaped separators) is refused: it would never match.
pub(in crate::config) fn path(text: &str) -> Result<PathPattern, Wrong> {
    let wrong = |label: &str| {
        Wrong::new(
            Code::BadPath,
            format!("{} is not a path to match", quoted(text)),
            label,
        )
    };
    if !text.starts_with('/') {
        let text = text.trim_start_matches('*');
        return Err(match text.split_once("://") {
            Some((_, rest)) => wrong("a path alone, without scheme and host").help(format!(
                "write `path = \"/{}\"` and a `host`",
                rest.split_once('/').map_or("", |(_, path)| path)
            )),
            None => wrong("a path begins with `/`").help(format!("write `\"/{text}\"`")),
        });
    }
    if let Some(at) = text.find(['?', '#']) {
        let what = if text[at..].starts_with('?') {
            "query"
        } else {
            "fragment"
        };
        return Err(wrong(&format!(
            "a {what} is not part of a path: routes do not look at it"
        ))
        .help(format!("write `\"{}\"`", &text[..at])));
    }
    let mut segments: Vec<Segment> = Vec::new();
    let written: Vec<&str> = text
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect();
    for (index, segment) in written.iter().enumerate() {
        let read = read(segment, text)?;
        if matches!(read, Segment::Rest(_)) && index + 1 < written.len() {
            return Err(wrong(&format!(
                "`{segment}` takes all that follows, so nothing can follow it"
            )));
        }
        if let Some(name) = name_of(&read)
            && segments
                .iter()
                .filter_map(name_of)
                .any(|other| other == name)
        {
            return Err(wrong(&format!("`{name}` stands twice"))
                .help("give each parameter a name of its own"));
        }
        segments.push(read);
    }
    Ok(PathPattern { segments })
}

fn name_of(segment: &Segment) -> Option<&Arc<str>> {
    match segment {
        Segment::Literal(_) => None,
        Segment::Parameter(name) | Segment::Rest(name) => Some(name),
    }
}

fn read(segment: &str, path: &str) -> Result<Segment, Wrong> {
    let wrong = |label: &str| {
        Wrong::new(
            Code::BadPath,
            format!("{} is not a path to match", quoted(path)),
            label,
        )
    };
    if segment.contains(['{', '}']) {
        let inside = segment
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        let Some(inside) = inside.filter(|inside| !inside.contains(['{', '}'])) else {
            return Err(wrong("a parameter is a whole segment, from `/{` to `}`")
                .help("write `\"/v1/{version}\"`, `\"/files/{*rest}\"`"));
        };
        let (rest, name) = match inside.strip_prefix('*') {
            Some(name) => (true, name),
            None => (false, inside),
        };
        let good = !name.is_empty()
            && name.len() <= 64
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if !good {
            return Err(
                wrong("a parameter needs a name of letters, digits, `_` and `-`")
                    .help("write `{id}`, or `{*rest}` for all that follows"),
            );
        }
        let name = Arc::from(name);
        return Ok(if rest {
            Segment::Rest(name)
        } else {
            Segment::Parameter(name)
        });
    }
    if segment.contains('*') {
        return Err(wrong("`*` alone does not stand for anything")
            .help("write `{name}` for one segment, or `{*rest}` for all that follow"));
    }
    if let Some(name) = segment.strip_prefix(':')
        && !name.is_empty()
    {
        return Err(wrong("a parameter is written in braces").help(format!(
            "write `{{{name}}}`; a literal colon is written `%3A`"
        )));
    }
    literal(segment)
        .map(Segment::Literal)
        .map_err(|label| wrong(label))
}

/// A literal segment in normal form, or why no request can ever have it.
fn literal(segment: &str) -> Result<Arc<str>, &'static str> {
    const NEVER: &str =
        "requests with `%2F`, `%5C`, `%00` or a backslash are answered 400 and never matched";
    if segment.contains(';') {
        return Err("`;` and what follows is dropped from requests before they are matched");
    }
    if segment.contains('\\') {
        return Err(NEVER);
    }
    let bytes = segment.as_bytes();
    let mut out = String::with_capacity(segment.len());
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'%' {
            let digits = segment
                .get(at + 1..at + 3)
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            match value.ok_or("a `%` needs two hexadecimal digits")? {
                b'/' | b'\\' | 0 => return Err(NEVER),
                value => put(value, true, &mut out),
            }
            at += 3;
        } else {
            put(byte, false, &mut out);
            at += 1;
        }
    }
    if out == "." || out == ".." {
        return Err("dot segments are removed from requests before they are matched");
    }
    Ok(Arc::from(out))
}

/// Unreserved characters stand for themselves and reserved ones as they were written; everything else is escaped, as it
/// is in every request.
fn put(byte: u8, escaped: bool, out: &mut String) {
    let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let plain = unreserved || (!escaped && b"!$&'()+,=:@".contains(&byte));
    if plain {
        out.push(char::from(byte));
    } else {
        // Writing into a string cannot fail.
        let _ = write!(out, "%{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut out = String::new();
        for segment in path(text).unwrap().segments {
            match segment {
                Segment::Literal(text) => out.push_str(&format!("/{text}")),
                Segment::Parameter(name) => out.push_str(&format!("/<{name}>")),
                Segment::Rest(name) => out.push_str(&format!("/<*{name}>")),
            }
        }
        out
    }

    #[test]
    fn patterns_are_brought_into_normal_form() {
        for (text, normal) in [
            ("/", ""),
            ("/v1/orders/{id}", "/v1/orders/<id>"),
            ("/{*rest}", "/<*rest>"),
            ("//v1///orders/", "/v1/orders"),
            ("/%76%31/%7e", "/v1/~"),
            ("/a%20b/%3a", "/a%20b/%3A"),
            ("/café/a b", "/caf%C3%A9/a%20b"),
            ("/a:b@c", "/a:b@c"),
        ] {
            assert_eq!(shown(text), normal, "{text}");
        }
    }

    #[test]
    fn what_can_never_match_is_refused() {
        for text in [
            "",
            "v1",
            "/a?b",
            "/a#b",
            "/{",
            "/}",
            "/{}",
            "/{*}",
            "/a{b}",
            "/{a}{b}",
            "/{a}/{a}",
            "/{*a}/b",
            "/*",
            "/a*",
            "/:id",
            "/.",
            "/a/..",
            "/%2e%2e/a",
            "/a%2fb",
            "/a%5cb",
            "/a\\b",
            "/a%00",
            "/a%",
            "/a%4",
            "/a%zz",
            "/a;b",
            "/{a b}",
            "/%é",
            "http://a/b",
        ] {
            assert!(path(text).is_err(), "{text}");
        }
    }
}

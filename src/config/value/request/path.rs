//! Path patterns in the normal form in which requests are matched.

use crate::config::value::servers::server::in_ascii;
use crate::config::value::{Code, ValueError, quoted};
use crate::route::path::BadPath;
use crate::route::{self, PathPattern, Segment};
use std::sync::Arc;

/// Reads the path of a route. Conditions on a query have a separate key.
pub(in crate::config) fn route_path(text: &str) -> Result<PathPattern, ValueError> {
    path(text).map_err(|wrong| {
        let text = text.split('#').next().unwrap_or_default();
        let asked = text.split_once('?').filter(|(_, query)| !query.is_empty());
        let Some((front, query)) = asked else {
            return wrong;
        };
        let front = if path(front).is_ok() {
            front.to_owned()
        } else {
            repaired(front)
        };
        let advice = "write conditions on the query beside the path, not in it";
        match (path(&front), in_table(query)) {
            (Ok(_), Some(table)) => wrong.instead(format!(
                "{advice}: `path = \"{front}\"`, `query = {{ {table} }}`"
            )),
            _ => wrong.instead(format!("{advice}: `query = {{ x = \"1\" }}`")),
        }
    })
}

/// The conditions of `x=1&y`: `x = "1", y = true`. `None` if a name occurs twice, or if a TOML string would need
/// escapes.
fn in_table(query: &str) -> Option<String> {
    let mut names = Vec::new();
    let mut conditions = Vec::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_plain =
            |text: &str| !text.contains(['"', '\\', '`']) && !text.contains(char::is_control);
        if name.is_empty() || names.contains(&name) || !is_plain(&name) || !is_plain(&value) {
            return None;
        }
        let is_bare = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let key = if name.chars().all(is_bare) {
            name.to_string()
        } else {
            format!("\"{name}\"")
        };
        conditions.push(if value.is_empty() {
            format!("{key} = true")
        } else {
            format!("{key} = \"{value}\"")
        });
        names.push(name);
    }
    Some(conditions.join(", ")).filter(|table| !table.is_empty())
}

/// Reads `/static`, which stands for itself and all paths below it, in the form in which requests are matched.
pub(in crate::config) fn top(text: &str) -> Result<Box<str>, ValueError> {
    let text = text.strip_suffix("/{*rest}").unwrap_or(text);
    let path = path(if text.is_empty() { "/" } else { text })?;
    let mut whole = String::new();
    for segment in &path.segments {
        let Segment::Literal(literal) = segment else {
            return Err(ValueError::of(
                Code::BadPath,
                text,
                "is not a path",
                "parameters are for routes; a path here includes all paths below it",
            ));
        };
        whole.push('/');
        whole.push_str(literal);
    }
    Ok(if whole.is_empty() {
        "/".into()
    } else {
        whole.into()
    })
}

/// Reads the path of a rewrite, and returns the text unchanged.
pub(in crate::config) fn new_path(text: &str) -> Result<String, ValueError> {
    match path(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(wrong) => Err(ValueError {
            message: format!("{} is not a path to forward", quoted(text)),
            ..wrong
        }),
    }
}

/// Reads the target of a redirect: scheme and host, which are empty for the request's own, and a path.
pub(in crate::config) fn destination(text: &str) -> Result<(String, String), ValueError> {
    let wrong = |label: &str| {
        ValueError::of(Code::BadPath, text, "is not a redirect target", label).help(
            "write `\"https://new.example.com/{*rest}\"`, or `\"/new/{*rest}\"` for the same host",
        )
    };
    let Some((scheme, rest)) = text.split_once("://") else {
        return if text.starts_with('/') {
            Ok((String::new(), new_path(text)?))
        } else {
            Err(wrong("a path, or a URL from `https://` on"))
        };
    };
    if !matches!(scheme, "http" | "https") {
        return Err(wrong("`http://` or `https://`"));
    }
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._~:[]".contains(c);
    if !host.chars().all(is_host) || host.parse::<http::uri::Authority>().is_err() {
        let ascii = in_ascii(host).filter(|_| !host.is_ascii());
        return Err(wrong("a host, with its port where it has one")
            .offer(ascii.map(|host| format!("{scheme}://{host}{path}"))));
    }
    let path = match path {
        "" => String::new(),
        path => new_path(path).map_err(|inner| ValueError {
            offers: inner
                .offers
                .iter()
                .map(|offer| format!("{scheme}://{host}{offer}"))
                .collect(),
            ..wrong(&inner.label)
        })?,
    };
    Ok((format!("{scheme}://{host}"), path))
}

/// Reads a prefix that all paths of a route have.
pub(in crate::config) fn prefix(text: &str) -> Result<PathPattern, ValueError> {
    let wrong =
        |label: &str| ValueError::of(Code::BadPath, text, "is not a prefix to strip", label);
    let read = path(text)?;
    if read.segments.is_empty() {
        return Err(wrong("the prefix is empty").help("leave it out"));
    }
    let name = read.parameters().next().map(str::to_owned);
    match name {
        None => Ok(read),
        Some(name) => Err(wrong(&format!("`{name}` differs in each request"))
            .help("write what is left as `rewrite = \"/{*rest}\"`")),
    }
}

/// A path without parameters, as text.
pub(in crate::config) fn literal_path(path: &PathPattern) -> String {
    let segments = path.segments.iter().map(|segment| match segment {
        Segment::Literal(text)
        | Segment::Folded(text)
        | Segment::Parameter(text)
        | Segment::Rest(text) => format!("/{text}"),
    });
    segments.collect()
}

/// Reads `/v1/orders/{id}` or `/files/{*rest}`.
///
/// Literals are normalised as requests are: duplicate and trailing slashes go, unreserved escapes are decoded. A
/// pattern that no normalised request can match (dot segments, `;parameters`, escaped separators) is refused.
pub(in crate::config) fn path(text: &str) -> Result<PathPattern, ValueError> {
    let wrong = |label: &str| {
        ValueError::of(Code::BadPath, text, "is not a path to match", label).offer([repaired(text)])
    };
    if !text.starts_with('/') {
        return Err(match text.split_once("://") {
            Some(_) => wrong("a path alone: its host is written as `host`"),
            None => wrong("a path begins with `/`")
                .help("write it as `\"/v1/orders/{id}\"` or `\"/files/{*rest}\"`"),
        });
    }
    if let Some(at) = text.find(['?', '#']) {
        return Err(wrong(if text[at..].starts_with('?') {
            "a query is not part of a path"
        } else {
            "a fragment is not part of a path: clients do not send it"
        }));
    }
    let mut segments: Vec<Segment> = Vec::new();
    let written: Vec<&str> = text
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect();
    for (index, segment) in written.iter().enumerate() {
        let read = one(segment).map_err(|(label, help)| match help {
            Some(help) => wrong(label).help(help),
            None => wrong(label),
        })?;
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
        Segment::Literal(_) | Segment::Folded(_) => None,
        Segment::Parameter(name) | Segment::Rest(name) => Some(name),
    }
}

/// The mistake in a segment, and the advice about the mistake.
type SegmentError = (&'static str, Option<&'static str>);

fn one(segment: &str) -> Result<Segment, SegmentError> {
    if segment.contains(['{', '}']) {
        return parameter(segment);
    }
    if segment.contains('*') {
        return Err((
            "`*` alone has no meaning here",
            Some("write `{name}` for one segment, or `{*rest}` for all that follow"),
        ));
    }
    if segment.len() > 1 && segment.starts_with(':') {
        return Err((
            "a parameter is written in braces, and a literal colon as `%3A`",
            None,
        ));
    }
    if segment.starts_with('<') && segment.ends_with('>') {
        return Err((
            "a parameter is written in braces, and a literal `<` as `%3C`",
            None,
        ));
    }
    literal(segment)
        .map(Segment::Literal)
        .map_err(|label| (label, None))
}

/// `{id}` or `{*rest}`.
fn parameter(segment: &str) -> Result<Segment, SegmentError> {
    let inside = segment
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .filter(|inside| !inside.contains(['{', '}']))
        .ok_or((
            "a parameter is a whole segment, from `/{` to `}`",
            Some("write the parameter as a segment of its own, as in `\"/v1/{version}\"`"),
        ))?;
    let (rest, name) = match inside.strip_prefix('*') {
        Some(name) => (true, name),
        None => (false, inside),
    };
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(in_name) {
        return Err((
            "a parameter needs a name of letters, digits, `_` and `-`",
            Some("write `{id}`, or `{*rest}` for all that follows"),
        ));
    }
    let name = Arc::from(name);
    Ok(if rest {
        Segment::Rest(name)
    } else {
        Segment::Parameter(name)
    })
}

/// The longest name of a parameter.
const LONGEST_NAME: usize = 64;

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-".contains(c)
}

/// Is the whole segment one parameter, in any style? A segment that is only partly a parameter gives no guess.
fn is_parameter(segment: &str) -> bool {
    let braces = |c| segment.matches(c).count();
    let whole = |c| braces(c) <= usize::from(segment.starts_with(c) || segment.ends_with(c));
    segment.starts_with([':', '{', '<']) && !segment[1..].contains('{') && whole('}')
        || segment.ends_with('}') && !segment.contains('{') && whole('}')
}

/// The pattern that was probably meant: a guess, which [`with_valid_offers`] checks before it is shown.
fn repaired(text: &str) -> String {
    let after_host = |rest: &str| {
        rest.find('/')
            .map_or(String::new(), |at| rest[at..].to_owned())
    };
    let path = match text.split_once("://") {
        Some((_, rest)) => after_host(rest),
        None => text.to_owned(),
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let segments: Vec<&str> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect();
    let mut out = String::new();
    for (index, segment) in segments.iter().enumerate() {
        let bare = segment.trim_matches(['{', '}', '<', '>', ':']);
        let last = index + 1 == segments.len();
        out.push('/');
        match bare {
            _ if one(segment).is_ok() => out.push_str(segment),
            "*" | "**" | "" if last => out.push_str("{*rest}"),
            "*" => out.push_str("{name}"),
            name if is_parameter(segment) => {
                let end = name.find(|c| !in_name(c)).unwrap_or(name.len());
                out.push_str(&format!("{{{}}}", &name[..end]));
            }
            _ => out.push_str(&segment.replace(' ', "%20")),
        }
    }
    if out.is_empty() { "/".into() } else { out }
}

/// A literal segment in normal form, or the reason why no request can have the segment.
fn literal(segment: &str) -> Result<Arc<str>, &'static str> {
    if segment.contains(';') || segment.to_ascii_lowercase().contains("%3b") {
        return Err("`;` and what follows is dropped from requests before they are matched");
    }
    route::path::literal(segment)
        .map(|normal| Arc::from(&*normal))
        .map_err(|bad| match bad {
            BadPath::Separator | BadPath::Nul => {
                "requests with `%2F`, `%5C`, `%00` or a backslash are answered 400 and never matched"
            }
            BadPath::Escape => "a `%` needs two hexadecimal digits",
            BadPath::Character => "a blank or a control character is written as an escape, as `%20`",
            BadPath::AboveRoot | BadPath::DotParameters | BadPath::NotAbsolute => {
                "dot segments are removed from requests before they are matched"
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut out = String::new();
        for segment in path(text).unwrap().segments {
            match segment {
                Segment::Literal(text) | Segment::Folded(text) => out.push_str(&format!("/{text}")),
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
            ("/a%20b/%3a%fa", "/a%20b/:%FA"),
            ("/café", "/caf%C3%A9"),
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
            "/<id>",
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
            "/a b",
            "/a%3Bb",
            "/{a b}",
            "/%é",
            "http://a/b",
        ] {
            assert!(path(text).is_err(), "{text}");
        }
    }
}

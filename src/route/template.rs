//! Templates of paths, for `rewrite`, `strip_prefix` and `redirect`: a new path is made from the matched one.
//!
//! A template is filled from the forwarded form of the path, segment by segment. The segments of a parameter are
//! forwarded as they would be without the rewriting, with their `;parameters` and escapes. Only whole segments are
//! joined, and none of them is a dot segment or contains a separator, so that the new path is in normal form again.

use super::path::{self, BadPath};
use super::{PathPattern, Segment};
use std::sync::Arc;

/// A template of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<TemplatePiece>,
    /// The template as the file writes it.
    written: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePiece {
    /// Literal text.
    Text(Arc<str>),
    /// A slash, and the segment of the path with this index.
    Segment(usize),
    /// All segments of the path from this index on, with the leading slash and the trailing one.
    Rest(usize),
}

impl Template {
    /// A template that removes the first `many` segments.
    #[must_use]
    pub fn without(many: usize, written: &str) -> Self {
        Self {
            pieces: vec![TemplatePiece::Rest(many)],
            written: written.into(),
        }
    }

    /// Reads the template `text`, which follows `origin` and has parameters of `pattern`. The text has the form of a
    /// pattern and begins with a slash.
    ///
    /// # Errors
    /// The parameter, with its braces, that `pattern` does not have in this form.
    pub fn read(origin: &str, text: &str, pattern: &PathPattern) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut fixed = origin.to_owned();
        for segment in text.split('/').filter(|segment| !segment.is_empty()) {
            let piece = match segment.strip_prefix('{') {
                Some(rest) => {
                    find(rest.trim_end_matches('}'), pattern).ok_or_else(|| segment.to_owned())?
                }
                None => {
                    fixed.push('/');
                    fixed.push_str(&spelled(segment).unwrap_or_default());
                    continue;
                }
            };
            if !fixed.is_empty() {
                pieces.push(TemplatePiece::Text(std::mem::take(&mut fixed).into()));
            }
            pieces.push(piece);
        }
        if text.ends_with('/') {
            fixed.push('/');
        }
        if !fixed.is_empty() {
            pieces.push(TemplatePiece::Text(fixed.into()));
        }
        Ok(Self {
            pieces,
            written: format!("{origin}{text}").into(),
        })
    }

    /// The template as the file writes it.
    #[must_use]
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Appends the new path to `out`. `path` is a path in forwarded form that the pattern has matched.
    pub fn fill(&self, path: &str, out: &mut String) {
        let start = out.len();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => out.push_str(text),
                TemplatePiece::Segment(place) => {
                    if let Some((from, to)) = segments(path).nth(*place) {
                        out.push_str(&path[from..to]);
                    }
                }
                TemplatePiece::Rest(0) => out.push_str(path),
                TemplatePiece::Rest(place) => {
                    let before = segments(path).nth(place - 1);
                    out.push_str(&path[before.map_or(path.len(), |(_, to)| to)..]);
                }
            }
        }
        if out.len() == start {
            out.push('/');
        }
    }
}

/// The piece for a parameter of `pattern`; `name` is written `id` or `*rest`.
fn find(name: &str, pattern: &PathPattern) -> Option<TemplatePiece> {
    let is_segment =
        |segment: &&Segment| !matches!(segment, Segment::Literal(text) if text.is_empty());
    let mut all = pattern.segments.iter().filter(is_segment).enumerate();
    all.find_map(|(place, segment)| match (segment, name.strip_prefix('*')) {
        (Segment::Parameter(parameter), None) if **parameter == *name => {
            Some(TemplatePiece::Segment(place))
        }
        (Segment::Rest(parameter), Some(name)) if **parameter == *name => {
            Some(TemplatePiece::Rest(place))
        }
        _ => None,
    })
}

/// A literal segment in its forwarded form: the escapes that the file has stay.
fn spelled(segment: &str) -> Result<String, BadPath> {
    if !segment.is_ascii() {
        return path::literal(segment).map(std::borrow::Cow::into_owned);
    }
    let whole = format!("/{segment}");
    Ok(path::normalize(&whole)?.to_forward()[1..].to_owned())
}

/// The ranges of the segments that patterns see, each from its leading slash to its end. A segment that is empty
/// without its parameters is left out.
fn segments(path: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    let pieces = path.split('/').map(move |segment| {
        let start = at;
        at += segment.len() + 1;
        (start, segment)
    });
    pieces
        .filter(|(_, segment)| !segment.is_empty() && !path::begins_parameters(segment))
        .map(|(start, segment)| (start.saturating_sub(1), start + segment.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{HostPattern, Rule, Table};
    use proptest::prelude::*;

    fn pattern(text: &str) -> PathPattern {
        let segment = |text: &str| match text.trim_matches(['{', '}']) {
            name if name == text => Segment::Literal(text.into()),
            name => match name.strip_prefix('*') {
                Some(rest) => Segment::Rest(rest.into()),
                None => Segment::Parameter(name.into()),
            },
        };
        let parts = text.split('/').filter(|part| !part.is_empty());
        PathPattern {
            segments: parts.map(segment).collect(),
        }
    }

    fn filled(template: &Template, sent: &str) -> String {
        let path = path::normalize(sent).unwrap();
        let mut out = String::new();
        template.fill(path.to_forward(), &mut out);
        out
    }

    #[test]
    fn a_prefix_goes_and_all_else_stays() {
        let template = Template::without(2, "/api/v1");
        for (sent, made) in [
            ("/api/v1", "/"),
            ("/api/v1/", "/"),
            ("/api/v1/a", "/a"),
            ("/api//v1/./a/../b/", "/b/"),
            ("/api;x=1/;y/v1;z/a;b=c/", "/a;b=c/"),
            ("/%3Bq/api/v1/a%3Bb/%40", "/a%3Bb/%40"),
            ("/api/v1/a+b%2Bc", "/a+b%2Bc"),
            ("/api/v1/;x", "/;x"),
        ] {
            assert_eq!(filled(&template, sent), made, "{sent}");
        }
    }

    #[test]
    fn parameters_are_put_where_they_are_named() {
        let path = pattern("/v1/{id}/x/{*rest}");
        for (text, sent, made) in [
            ("/v2/{id}/{*rest}", "/v1/7/x/a/b/", "/v2/7/a/b/"),
            ("/v2/{id}/{*rest}", "/v1/7/x", "/v2/7"),
            ("/v2/{id}/{*rest}", "/v1/7/x/", "/v2/7/"),
            ("/{*rest}", "/v1/7/x", "/"),
            ("/", "/v1/7/x/a", "/"),
            ("/all/", "/v1/7/x/a", "/all/"),
            ("/{id}/y", "/v1/7;v=1%2B/x/a", "/7;v=1%2B/y"),
            ("//v2//{id}", "/;q/v1/;q/%37/x", "/v2/7"),
            ("/a%2Bb/caf%c3%a9/%7e", "/v1/7/x", "/a%2Bb/caf%C3%A9/~"),
        ] {
            let template = Template::read("", text, &path).unwrap();
            assert_eq!(filled(&template, sent), made, "{text} of {sent}");
        }
        let there = Template::read("https://b.test", "/{*rest}", &path).unwrap();
        assert_eq!(filled(&there, "/v1/7/x"), "https://b.test");
        assert_eq!(filled(&there, "/v1/7/x/a"), "https://b.test/a");
        for text in ["/{other}", "/{rest}", "/{*id}"] {
            assert_eq!(Template::read("", text, &path), Err(text[1..].to_owned()));
        }
    }

    struct Nothing(http::HeaderMap);

    impl crate::route::RequestView for Nothing {
        fn fields(&self) -> &http::HeaderMap {
            &self.0
        }

        fn query(&self) -> Option<&str> {
            None
        }

        fn is_https(&self) -> bool {
            false
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn what_is_made_is_in_the_normal_form(
            sent in "/(a|b|/|\\.|\\.\\.|%2e|;|;x|%3B|%3b1|%41|%2B|é|:|@|~){0,12}",
        ) {
            let Ok(normal) = path::normalize(&sent) else { return Ok(()) };
            let wanted = pattern("/{x}/{y}/{*rest}");
            let rule = Rule {
                name: "r".into(),
                hosts: Vec::<HostPattern>::new(),
                path: wanted.clone(),
                methods: Vec::new(),
                conditions: Vec::new(),
            };
            let table = Table::build(&[rule]).unwrap();
            let none = Nothing(http::HeaderMap::new());
            if table.find("", normal.to_match(), &http::Method::GET, &none).is_none() {
                return Ok(());
            }
            for template in [
                Template::without(2, ""),
                Template::read("", "/n/{y}/{x}/{*rest}", &wanted).unwrap(),
                Template::read("", "/{y}/", &wanted).unwrap(),
            ] {
                let mut made = String::new();
                template.fill(normal.to_forward(), &mut made);
                let twice = path::normalize(&made).map_err(|bad| TestCaseError::fail(format!("{made}: {bad}")))?;
                prop_assert!(twice.is_as_sent(), "{} to {}", sent, made);
            }
            // The match form of the new path has the same segments as its forwarded text.
            let mut made = String::new();
            Template::read("", "/n/{y}/{x}/{*rest}", &wanted).unwrap().fill(normal.to_forward(), &mut made);
            let seen = path::normalize(&made).unwrap().to_match().to_owned();
            let take = |name| wanted.taken(normal.to_match(), name).unwrap();
            let rest = take("rest");
            let slash = if rest.is_empty() { "" } else { "/" };
            prop_assert_eq!(seen, format!("/n/{}/{}{slash}{rest}", take("y"), take("x")));
        }
    }
}

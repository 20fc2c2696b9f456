//! Containment of patterns: does one pattern match everything that another matches? The text of patterns is also here.

use super::{HostPattern, PathPattern, Segment, host_key, path};
use std::fmt;

impl HostPattern {
    /// Does `bound` match every host of this pattern?
    #[must_use]
    pub fn is_within(&self, bound: &Self) -> bool {
        match (self, bound) {
            (Self::Exact(host), Self::Exact(bound)) => host_key(host) == host_key(bound),
            (Self::Exact(host), Self::Suffix(bound)) => {
                let (host, bound) = (host_key(host), host_key(bound));
                host.len() > bound.len() && host.ends_with(&*bound)
            }
            (Self::Suffix(host), Self::Suffix(bound)) => {
                host_key(host).ends_with(&*host_key(bound))
            }
            (Self::Suffix(_), Self::Exact(_)) => false,
        }
    }
}

/// The pattern as the file writes it.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
        }
    }
}

impl PathPattern {
    /// Does `bound` match every path of this pattern?
    #[must_use]
    pub fn is_within(&self, bound: &Self) -> bool {
        let (mut inner, mut bound) = (self.seen(), bound.seen());
        loop {
            match (inner.next(), bound.next()) {
                (_, Some(Segment::Rest(_))) | (None, None) => return true,
                (Some(Segment::Literal(one)), Some(Segment::Literal(other)))
                    if spelled(one) == spelled(other) => {}
                // A folded segment with letters also matches spellings that `bound` does not match, and that may belong
                // to another owner.
                (Some(Segment::Folded(one)), Some(Segment::Literal(other)))
                    if spelled(one) == spelled(other) && !has_case(one) => {}
                (
                    Some(Segment::Literal(_) | Segment::Folded(_) | Segment::Parameter(_)),
                    Some(Segment::Parameter(_)),
                ) => {}
                _ => return false,
            }
        }
    }

    /// The same pattern, for paths in any case.
    #[must_use]
    pub fn in_any_case(self) -> Self {
        let segments = self.segments.into_iter().map(|segment| match segment {
            Segment::Literal(text) if !text.is_empty() => Segment::Folded(text),
            other => other,
        });
        Self {
            segments: segments.collect(),
        }
    }

    /// The same pattern, for paths in exactly its case.
    #[must_use]
    pub fn in_its_case(self) -> Self {
        let segments = self.segments.into_iter().map(|segment| match segment {
            Segment::Folded(text) => Segment::Literal(text),
            other => other,
        });
        Self {
            segments: segments.collect(),
        }
    }

    /// The pattern for people, with a remark if case is ignored.
    #[must_use]
    pub fn description(&self) -> String {
        let folded = |segment: &Segment| matches!(segment, Segment::Folded(_));
        if self.segments.iter().any(folded) {
            format!("{self} in any case")
        } else {
            self.to_string()
        }
    }

    /// The pattern's segments. A leading, doubled or trailing slash in the file has no meaning, as in a request.
    fn seen(&self) -> impl Iterator<Item = &Segment> {
        let is_empty =
            |segment: &&Segment| matches!(segment, Segment::Literal(text) if text.is_empty());
        self.segments
            .iter()
            .filter(move |segment| !is_empty(segment))
    }
}

/// The pattern as the file writes it.
impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut segments = self.seen().peekable();
        if segments.peek().is_none() {
            return f.write_str("/");
        }
        segments.try_for_each(|segment| match segment {
            Segment::Literal(text) | Segment::Folded(text) => write!(f, "/{text}"),
            Segment::Parameter(name) => write!(f, "/{{{name}}}"),
            Segment::Rest(name) => write!(f, "/{{*{name}}}"),
        })
    }
}

fn has_case(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn spelled(text: &str) -> String {
    path::literal(text).map_or_else(|_| text.to_owned(), |text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{RequestView, Rule, Table};
    use http::{HeaderMap, Method};

    struct Nothing(HeaderMap);

    impl RequestView for Nothing {
        fn fields(&self) -> &HeaderMap {
            &self.0
        }

        fn query(&self) -> Option<&str> {
            None
        }

        fn is_https(&self) -> bool {
            false
        }
    }

    fn pattern(text: &str) -> PathPattern {
        let parts = text.split('/').filter(|part| !part.is_empty());
        let segment = |part: &str| match part {
            "*" => Segment::Rest("rest".into()),
            text => Segment::Literal(text.into()),
        };
        PathPattern {
            segments: parts.map(segment).collect(),
        }
    }

    fn rule(path: PathPattern) -> Rule {
        Rule {
            name: "r".into(),
            hosts: Vec::new(),
            path,
            methods: Vec::new(),
            conditions: Vec::new(),
        }
    }

    #[test]
    fn a_path_in_any_case_comes_behind_its_very_spelling_and_before_all_else() {
        let rules = [
            rule(pattern("/*")),
            rule(pattern("/Login/x").in_any_case()),
            rule(pattern("/login/x")),
            rule(pattern("/LOGIN/*")),
        ];
        let table = Table::build(&rules).unwrap();
        let none = Nothing(HeaderMap::new());
        for (path, route) in [
            ("/login/x", 2),
            ("/Login/x", 1),
            ("/lOGIN/X", 1),
            ("/LOGIN/x", 3),
            ("/LOGIN", 3),
            ("/lOGIN", 0),
        ] {
            let found = table.find("", path, &Method::GET, &none);
            assert_eq!(found, Some(route), "{path}");
        }
        let twice = [
            rule(pattern("/a").in_any_case()),
            rule(pattern("/A").in_any_case()),
        ];
        assert_eq!(Table::build(&twice).unwrap_err().len(), 1);
        assert_eq!(rules[1].path.description(), "/Login/x in any case");
        assert!(!rules[1].path.is_within(&pattern("/login/*")));
        let number = pattern("/2026/Login").in_any_case();
        assert!(number.is_within(&pattern("/2026/*")));
        assert!(!rules[2].path.is_within(&pattern("/LOGIN/*")));
    }
}

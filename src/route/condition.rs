//! Conditions of a route beyond host, path and method: fields, parameters of the query, the scheme, groups.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A condition that a request must meet for a route to match.
///
/// A field or parameter that occurs several times has one value: all of them, joined by `, ` (RFC 9110 section 5.3).
/// Two conditions that require different values of one name therefore contradict each other, for any repetitions by a
/// client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// A field has this value, or is present at all.
    Field(HeaderName, Option<HeaderValue>),
    /// A parameter of the query, decoded, has this value, or is present at all.
    Query(Arc<str>, Option<Arc<str>>),
    /// The request used `https`, or `http`.
    Https(bool),
    /// The client is a member of one of these groups.
    Groups(Vec<Arc<str>>),
}

/// A request, as conditions see it. No part is computed before a condition needs it.
pub trait RequestView {
    /// The request's fields.
    fn fields(&self) -> &HeaderMap;
    /// The request's query, as received.
    fn query(&self) -> Option<&str>;
    /// Did the request use `https`?
    fn is_https(&self) -> bool;
    /// Is the client a verified member of one of these groups? An unknown client is a member of none.
    fn is_member(&self, _groups: &[Arc<str>]) -> bool {
        false
    }
    /// May the search end at this route? A search for one certain route skips all others.
    #[inline]
    fn seeks(&self, _route: usize) -> bool {
        true
    }
    /// Does the request meet the conditions of this route? A search with unknown facts may note the route and continue.
    #[inline]
    fn meets(&self, _route: usize, conditions: &[Condition]) -> bool
    where
        Self: Sized,
    {
        conditions.iter().all(|one| one.is_met(self))
    }
}

impl Condition {
    /// Does the request meet the condition?
    pub(super) fn is_met(&self, asked: &impl RequestView) -> bool {
        match self {
            Self::Field(name, None) => asked.fields().contains_key(name),
            Self::Field(name, Some(value)) => {
                let lines = asked.fields().get_all(name).iter();
                is_joined(lines.map(HeaderValue::as_bytes), value.as_bytes())
            }
            Self::Query(name, None) => parameters(asked, name).next().is_some(),
            Self::Query(name, Some(value)) => is_joined(parameters(asked, name), value.as_bytes()),
            Self::Https(https) => asked.is_https() == *https,
            Self::Groups(groups) => asked.is_member(groups),
        }
    }

    /// The name of the field or parameter whose value the condition requires, if `is_secret` is true for that name.
    #[must_use]
    pub fn secret_name(&self, is_secret: impl Fn(&str) -> bool) -> Option<&str> {
        let name = match self {
            Self::Field(name, Some(_)) => name.as_str(),
            Self::Query(name, Some(_)) => name,
            _ => return None,
        };
        is_secret(name).then_some(name)
    }

    /// The text of the value that the condition requires, if any.
    #[must_use]
    pub fn value(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Field(_, value) => {
                let value = value.as_ref()?;
                Some(String::from_utf8_lossy(value.as_bytes()))
            }
            Self::Query(_, value) => value.as_deref().map(Cow::Borrowed),
            Self::Https(_) | Self::Groups(_) => None,
        }
    }

    /// The subject and the value that the condition requires: two conditions with the same subject and different values
    /// contradict each other.
    pub(super) fn asked(&self) -> Option<(ConditionSubject<'_>, &[u8])> {
        match self {
            Self::Field(name, value) => {
                Some((ConditionSubject::Field(name), value.as_ref()?.as_bytes()))
            }
            Self::Query(name, value) => {
                Some((ConditionSubject::Query(name), value.as_ref()?.as_bytes()))
            }
            Self::Https(https) => Some((
                ConditionSubject::Scheme,
                if *https { b"https" } else { b"http" },
            )),
            Self::Groups(_) => None,
        }
    }
}

/// The subject of a condition that requires one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ConditionSubject<'a> {
    Field(&'a HeaderName),
    Query(&'a str),
    Scheme,
}

impl<'a> ConditionSubject<'a> {
    /// An order of subjects.
    pub(super) fn spelled(self) -> (u8, &'a str) {
        match self {
            Self::Field(name) => (0, name.as_str()),
            Self::Query(name) => (1, name),
            Self::Scheme => (2, ""),
        }
    }
}

/// A request's values of one parameter, decoded.
fn parameters<'a>(
    asked: &'a impl RequestView,
    name: &'a str,
) -> impl Iterator<Item = Cow<'a, [u8]>> + 'a {
    let query = asked.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .filter(move |(key, _)| *key == *name)
        .map(|(_, value)| match value {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
}

/// Are there values, and do they equal `expected` when joined?
fn is_joined<V: AsRef<[u8]>>(values: impl Iterator<Item = V>, expected: &[u8]) -> bool {
    let mut left = expected;
    let mut first = true;
    for value in values {
        let joint: &[u8] = if first { b"" } else { b", " };
        first = false;
        let behind = left.strip_prefix(joint);
        match behind.and_then(|behind| behind.strip_prefix(value.as_ref())) {
            Some(behind) => left = behind,
            None => return false,
        }
    }
    !first && left.is_empty()
}

/// The conditions of two routes in an example of a request: `?v=2`, ` x-version: 2`, ` by https`.
pub(super) struct Example<'a>(pub(super) &'a [Condition], pub(super) &'a [Condition]);

impl fmt::Display for Example<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(these, those) = *self;
        // A condition that requires a value implies the one that requires any value of that name.
        let is_said = |one: &&Condition| match one {
            Condition::Field(name, None) => !these
                .iter()
                .chain(those)
                .any(|other| matches!(other, Condition::Field(also, Some(_)) if also == name)),
            Condition::Query(name, None) => !these
                .iter()
                .chain(those)
                .any(|other| matches!(other, Condition::Query(also, Some(_)) if also == name)),
            _ => true,
        };
        let more = those.iter().filter(|one| !these.contains(one));
        let all: Vec<&Condition> = these.iter().chain(more).filter(is_said).collect();
        let mut query = form_urlencoded::Serializer::new(String::new());
        for one in &all {
            if let Condition::Query(name, value) = one {
                query.append_pair(name, value.as_deref().unwrap_or("x"));
            }
        }
        let query = query.finish();
        if !query.is_empty() {
            write!(out, "?{query}")?;
        }
        let mut joint = " with";
        for one in &all {
            if let Condition::Field(name, value) = one {
                let value = value.as_ref().map_or("x".into(), |value| {
                    String::from_utf8_lossy(value.as_bytes())
                });
                write!(out, "{joint} {name}: {value}")?;
                joint = ",";
            }
        }
        match all.iter().find_map(|one| match one {
            Condition::Https(https) => Some(*https),
            _ => None,
        }) {
            Some(true) => out.write_str(" by https")?,
            Some(false) => out.write_str(" by http")?,
            None => {}
        }
        let mut groups = all.iter().filter_map(|one| match one {
            Condition::Groups(groups) => groups.first(),
            _ => None,
        });
        // Each route has one such condition at most.
        match (groups.next(), groups.next()) {
            (Some(one), Some(other)) if one != other => {
                write!(out, " of a member of {one} and {other}")
            }
            (Some(one), _) => write!(out, " of a member of {one}"),
            (None, _) => Ok(()),
        }
    }
}

/// The condition as the file writes it, without its key: `x-version = "2"`, `x-debug = true`, `https`.
impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name, None) => write!(out, "{name} = true"),
            Self::Field(name, Some(value)) => {
                write!(
                    out,
                    "{name} = {:?}",
                    String::from_utf8_lossy(value.as_bytes())
                )
            }
            Self::Query(name, None) => write!(out, "{name} = true"),
            Self::Query(name, Some(value)) => write!(out, "{name} = {value:?}"),
            Self::Https(true) => out.write_str("https"),
            Self::Https(false) => out.write_str("http"),
            Self::Groups(groups) => out.write_str(&groups.join(" or ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sent(HeaderMap, &'static str);

    impl RequestView for Sent {
        fn fields(&self) -> &HeaderMap {
            &self.0
        }

        fn query(&self) -> Option<&str> {
            Some(self.1)
        }

        fn is_https(&self) -> bool {
            false
        }
    }

    fn sent(fields: &[(&'static str, &'static str)], query: &'static str) -> Sent {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        Sent(map, query)
    }

    fn field(value: Option<&'static str>) -> Condition {
        let name = HeaderName::from_static("x-v");
        Condition::Field(name, value.map(HeaderValue::from_static))
    }

    #[test]
    fn a_field_is_all_its_lines() {
        let two = sent(&[("x-v", "1"), ("x-v", "2")], "");
        assert!(!field(Some("1")).is_met(&two) && !field(Some("2")).is_met(&two));
        assert!(field(Some("1, 2")).is_met(&two) && field(None).is_met(&two));
        assert!(!field(Some("1, 2, ")).is_met(&two) && !field(Some("1,2")).is_met(&two));
        let one = sent(&[("x-v", "2")], "");
        assert!(field(Some("2")).is_met(&one) && !field(Some("")).is_met(&one));
        assert!(!field(Some("20")).is_met(&one) && !field(Some("2, 2")).is_met(&one));
        let none = sent(&[], "");
        assert!(!field(Some("")).is_met(&none) && !field(None).is_met(&none));
        assert!(field(None).is_met(&sent(&[("x-v", "")], "")));
    }

    #[test]
    fn the_query_is_decoded() {
        let query =
            |name: &str, value: Option<&str>| Condition::Query(name.into(), value.map(Arc::from));
        let asked = sent(&[], "a+b=1%2C+2&%76=2&v=3&flag");
        assert!(query("a b", Some("1, 2")).is_met(&asked));
        assert!(query("v", Some("2, 3")).is_met(&asked));
        assert!(!query("v", Some("2")).is_met(&asked) && !query("v", Some("3")).is_met(&asked));
        assert!(query("flag", None).is_met(&asked) && query("flag", Some("")).is_met(&asked));
        assert!(!query("fla", None).is_met(&asked));
    }

    #[test]
    fn what_is_asked_for_one_value_is_told() {
        let (one, other) = (field(Some("1")), field(Some("2")));
        assert_eq!(one.asked().unwrap().0, other.asked().unwrap().0);
        assert_ne!(one.asked(), other.asked());
        assert_eq!(field(None).asked(), None);
        let [plain, encrypted] = [false, true].map(Condition::Https);
        assert_eq!(plain.asked().unwrap().0, encrypted.asked().unwrap().0);
        assert_ne!(plain.asked(), encrypted.asked());
        assert_eq!(Condition::Groups(Vec::new()).asked(), None);
    }
}

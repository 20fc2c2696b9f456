//! Is all that one pattern takes taken by another too? And how they are written.

use super::{HostPattern, PathPattern, Segment, host_key, path};
use std::fmt;

impl HostPattern {
    /// Is every host of this pattern one of `bound`?
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

/// As the file writes it.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
        }
    }
}

impl PathPattern {
    /// Is every path of this pattern one of `bound`?
    #[must_use]
    pub fn is_within(&self, bound: &Self) -> bool {
        let (mut own, mut bound) = (self.seen(), bound.seen());
        loop {
            match (own.next(), bound.next()) {
                (_, Some(Segment::Rest(_))) | (None, None) => return true,
                (Some(Segment::Literal(one)), Some(Segment::Literal(other)))
                    if spelled(one) == spelled(other) => {}
                (
                    Some(Segment::Literal(_) | Segment::Parameter(_)),
                    Some(Segment::Parameter(_)),
                ) => {}
                _ => return false,
            }
        }
    }

    /// Its segments; a leading, doubled or trailing slash in the file means nothing, as in a request.
    fn seen(&self) -> impl Iterator<Item = &Segment> {
        let is_empty =
            |segment: &&Segment| matches!(segment, Segment::Literal(text) if text.is_empty());
        self.segments
            .iter()
            .filter(move |segment| !is_empty(segment))
    }
}

/// As the file writes it.
impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut segments = self.seen().peekable();
        if segments.peek().is_none() {
            return f.write_str("/");
        }
        segments.try_for_each(|segment| match segment {
            Segment::Literal(text) => write!(f, "/{text}"),
            Segment::Parameter(name) => write!(f, "/{{{name}}}"),
            Segment::Rest(name) => write!(f, "/{{*{name}}}"),
        })
    }
}

fn spelled(text: &str) -> String {
    path::literal(text).map_or_else(|_| text.to_owned(), |text| text.into_owned())
}

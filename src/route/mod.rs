//! Route matching: the rule that matches a request by host, path, method and conditions, the most specific first.
//!
//! In: a host, a path, a method, conditions. Out: a route with its path parameters.
//!
//! ```text
//! host         the one spelling of a host
//! path         the normal form of a path: what is matched is what is forwarded. Else 400
//! table        all routes, by host: the most specific one. Else 404
//! trie         the paths of one host, as a tree
//! condition    conditions by field, query, scheme and group
//! open_search  a search before a token is verified
//! template     a new path from the one that was matched
//! path_back    the way back, for addresses in answers
//! clash        two routes that can take one request
//! containment  does one pattern take all that another takes?
//! ```

mod clash;
mod condition;
mod containment;
mod host;
mod open_search;
pub mod path;
mod path_back;
mod table;
mod template;
mod trie;

pub use condition::{Condition, RequestView};
pub use host::host_key;
pub use open_search::{OpenSearch, RoutePositions};
pub use path_back::PathBack;
pub use table::{Overlap, Table};
pub use template::Template;

use http::Method;
use std::sync::Arc;

/// A rule that matches requests, as the file writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The route's name.
    pub name: Arc<str>,
    /// The hosts that the rule matches; an empty list matches every host.
    pub hosts: Vec<HostPattern>,
    /// The paths that the rule matches.
    pub path: PathPattern,
    /// Methods that the rule is for; empty means any. `GET` includes `HEAD`, unless a route of equal rank names `HEAD`.
    pub methods: Vec<Method>,
    /// Further conditions; each name occurs once.
    pub conditions: Vec<Condition>,
}

/// A host to match: exact, or any number of labels before a suffix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Lower case, without port and final dot.
    Exact(Arc<str>),
    /// `*.example.com`: the suffix with its leading dot, `.example.com`.
    Suffix(Arc<str>),
}

/// A path to match, segment by segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PathPattern {
    /// The pattern's segments; only the last can be [`Segment::Rest`].
    pub segments: Vec<Segment>,
}

impl PathPattern {
    /// The part of `path` that the parameter `name` matches; `None` if there is no such parameter. `path` is a match
    /// form that this pattern matches. Several segments come without the leading slash; a `{*rest}` that matches no
    /// segment gives an empty text.
    #[must_use]
    pub fn taken<'a>(&self, path: &'a str, name: &str) -> Option<&'a str> {
        let mut left = path.strip_prefix('/').unwrap_or(path);
        for segment in &self.segments {
            let (one, behind) = left.split_once('/').unwrap_or((left, ""));
            match segment {
                // A leading, doubled or trailing slash in the file has no meaning, as in a request.
                Segment::Literal(text) if text.is_empty() => continue,
                Segment::Parameter(parameter) if **parameter == *name => return Some(one),
                Segment::Rest(parameter) => return (**parameter == *name).then_some(left),
                Segment::Literal(_) | Segment::Folded(_) | Segment::Parameter(_) => {}
            }
            left = behind;
        }
        None
    }

    /// Has the pattern a parameter of this name?
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.parameters().any(|parameter| parameter == name)
    }

    /// The names of the pattern's parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Literal(_) | Segment::Folded(_) => None,
            Segment::Parameter(name) | Segment::Rest(name) => Some(&**name),
        })
    }
}

/// One segment of a path pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Segment {
    /// This text, in normal form ([`path::literal`]).
    Literal(Arc<str>),
    /// This text, with ASCII letters in any case.
    Folded(Arc<str>),
    /// `{name}`: any one segment.
    Parameter(Arc<str>),
    /// `{*name}`: zero or more segments.
    Rest(Arc<str>),
}

//! Which rule recognises a request: by host, path and method, the most specific first.

use http::Method;
use std::sync::Arc;

/// A rule that recognises requests, as the file writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The route's name.
    pub name: Arc<str>,
    /// Hosts it is for; none means any.
    pub hosts: Vec<HostPattern>,
    /// Paths it is for.
    pub path: PathPattern,
    /// Methods it is for; none means any.
    pub methods: Vec<Method>,
}

/// A host to match: exact, or any number of labels in front of a suffix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Lower case, without port and final dot.
    Exact(Arc<str>),
    /// `*.example.com`: the suffix with its leading dot, `.example.com`.
    Suffix(Arc<str>),
}

/// A path to match, segment by segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathPattern {
    /// Its segments; only the last can be [`Segment::Rest`].
    pub segments: Vec<Segment>,
}

/// One segment of a path pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Itself, in normal form.
    Literal(Arc<str>),
    /// `{name}`: any one segment.
    Parameter(Arc<str>),
    /// `{*name}`: zero or more segments.
    Rest(Arc<str>),
}

/// All routes, arranged for finding.
#[derive(Debug, Default)]
pub struct Table {}

/// Two routes of equal rank that can match the same request: positions in the list of rules, and such a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The earlier one.
    pub first: usize,
    /// The later one.
    pub second: usize,
    /// For example `GET api.example.com/v1/orders`.
    pub example: String,
}

impl Table {
    /// Arranges `rules`; a found route is a position in that list.
    ///
    /// # Errors
    /// Every pair of routes of equal rank that can match the same request.
    pub fn build(_rules: &[Rule]) -> Result<Self, Vec<Overlap>> {
        Ok(Self {})
    }
}

//! Which rule recognises a request: by host, path and method, the most specific first.

mod host;
pub mod path;
mod table;
mod trie;

pub use host::host_key;
pub use table::{Overlap, Table};

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
    /// Methods it is for; none means any. `GET` stands for `HEAD` too, unless a route of equal rank names `HEAD`.
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
    /// Itself, in normal form ([`path::literal`]).
    Literal(Arc<str>),
    /// `{name}`: any one segment.
    Parameter(Arc<str>),
    /// `{*name}`: zero or more segments.
    Rest(Arc<str>),
}

//! The paths of one host, as a tree of segments.
//!
//! At each segment, a search tries literal, literal in any case, parameter and rest in this order, and backtracks if a
//! branch fails. The first route that it meets therefore has the highest rank. The search visits only the nodes that
//! match the path's own segments, so that its cost does not depend on the number of routes.

use super::condition::{Condition, RequestView};
use super::{PathPattern, Segment, path};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use http::Method;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

/// A node of the tree: the paths that begin with the same segments.
#[derive(Debug, Default)]
pub(super) struct TrieNode {
    literals: HashMap<Box<str>, TrieNode, RandomState>,
    /// Segments in any case, under their lower-case form.
    folded: HashMap<Box<str>, TrieNode, RandomState>,
    parameter: Option<Box<TrieNode>>,
    /// Routes whose path ends at this node.
    ends: RouteList,
    /// Routes whose path has `{*rest}` from this node on.
    rests: RouteList,
}

/// The routes of one host and one path shape, which differ in methods and conditions only. Routes with more conditions
/// come first.
#[derive(Debug, Default)]
pub(super) struct RouteList(Vec<RouteEnd>);

/// A route at the end of its path.
#[derive(Debug, Clone)]
pub(super) struct RouteEnd {
    pub(super) route: usize,
    /// The methods of the route; empty means any.
    pub(super) methods: Arc<[Method]>,
    pub(super) conditions: Arc<[Condition]>,
}

impl RouteEnd {
    /// Does the search end here? Most routes have no conditions.
    fn takes(&self, asked: &impl RequestView) -> bool {
        asked.seeks(self.route)
            && (self.conditions.is_empty() || asked.meets(self.route, &self.conditions))
    }
}

impl TrieNode {
    /// The list of the routes with this path, which is added if it is new.
    pub(super) fn slot(&mut self, pattern: &PathPattern) -> &mut RouteList {
        let mut node = self;
        for segment in &pattern.segments {
            node = match segment {
                // A leading, doubled or trailing slash in the file has no meaning, as in a request.
                Segment::Literal(text) if text.is_empty() => node,
                Segment::Literal(text) => {
                    let spelled = path::literal(text).map_or_else(|_| (**text).into(), Box::from);
                    node.literals.entry(spelled).or_default()
                }
                Segment::Folded(text) => {
                    let spelled = path::literal(text).unwrap_or(Cow::Borrowed(text));
                    let lower = spelled.to_ascii_lowercase();
                    node.folded.entry(lower.into()).or_default()
                }
                Segment::Parameter(_) => node.parameter.get_or_insert_default(),
                Segment::Rest(_) => return &mut node.rests,
            };
        }
        &mut node.ends
    }

    /// The route of the highest rank for `path`, a match form.
    pub(super) fn find(
        &self,
        path: &str,
        method: &Method,
        asked: &impl RequestView,
    ) -> Option<usize> {
        let path = path.strip_prefix('/').unwrap_or(path);
        if path.is_empty() {
            let end = self.ends.find(method, asked);
            return end.or_else(|| self.rests.find(method, asked));
        }
        let (segment, behind) = match path.bytes().position(|byte| byte == b'/') {
            Some(slash) => path.split_at(slash),
            None => (path, ""),
        };
        let literal = self.literals.get(segment);
        literal
            .and_then(|node| node.find(behind, method, asked))
            .or_else(|| self.folded(segment)?.find(behind, method, asked))
            .or_else(|| self.parameter.as_ref()?.find(behind, method, asked))
            .or_else(|| self.rests.find(method, asked))
    }
}

impl TrieNode {
    /// Sorts the routes of every list, and shows each list to `look`.
    pub(super) fn settle(&mut self, look: &mut impl FnMut(&[RouteEnd])) {
        for list in [&mut self.ends, &mut self.rests] {
            list.0.sort_by_key(|end| Reverse(end.conditions.len()));
            look(&list.0);
        }
        let below = self.literals.values_mut().chain(self.folded.values_mut());
        for node in below.chain(self.parameter.as_deref_mut()) {
            node.settle(look);
        }
    }

    /// The node for a segment in any case. Only tables with such routes pay for the lookup.
    fn folded(&self, segment: &str) -> Option<&Self> {
        if self.folded.is_empty() {
            return None;
        }
        self.folded.get(&*segment.to_ascii_lowercase())
    }
}

impl RouteList {
    /// Adds a route, whose methods and conditions its other hosts share.
    pub(super) fn add(&mut self, end: RouteEnd) {
        // The route may have the same host twice.
        if self.0.last().is_none_or(|last| last.route != end.route) {
            self.0.push(end);
        }
    }

    fn find(&self, method: &Method, asked: &impl RequestView) -> Option<usize> {
        let naming = |method: &Method| {
            let mut ends = self.0.iter();
            ends.find(|end| end.methods.contains(method) && end.takes(asked))
        };
        // A route that matches GET matches HEAD, which is GET without the content (RFC 9110 section 9.3.2): otherwise
        // HEAD would circumvent a limit on GET.
        let implied = || (*method == Method::HEAD).then(|| naming(&Method::GET))?;
        let any = || {
            let mut ends = self.0.iter();
            ends.find(|end| end.methods.is_empty() && end.takes(asked))
        };
        let end = naming(method).or_else(implied).or_else(any)?;
        Some(end.route)
    }
}

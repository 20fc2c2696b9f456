//! The paths of one host, as a tree of segments.
//!
//! At each segment, a search tries literal, literal in any case, parameter and rest in this order, and comes back where
//! a branch fails. The first route that it meets therefore has the highest rank. The search visits only the nodes that
//! the path's own segments lead to, so that its cost does not depend on the number of routes.

use super::condition::{Condition, RequestView, compatible};
use super::{PathPattern, Rule, Segment, path};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use http::Method;
use std::borrow::Cow;

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
/// stand first.
#[derive(Debug, Default)]
pub(super) struct RouteList(Vec<RouteEnd>);

/// A route at the end of its path.
#[derive(Debug)]
struct RouteEnd {
    route: usize,
    /// The methods of the route; none means any.
    methods: Box<[Method]>,
    conditions: Box<[Condition]>,
}

impl RouteEnd {
    /// Does the request meet the route's conditions? Most routes have none.
    fn takes(&self, asked: &impl RequestView) -> bool {
        self.conditions.is_empty()
            || self.conditions.iter().all(|one| one.holds(asked))
                && asked.ends_with(self.route, &self.conditions)
    }
}

/// A route that the list had before, and a method that both routes take.
#[derive(Debug)]
pub(super) struct RouteClash {
    pub(super) route: usize,
    pub(super) method: Method,
}

impl TrieNode {
    /// The list of the routes with this path, which is added if it is new.
    pub(super) fn slot(&mut self, pattern: &PathPattern) -> &mut RouteList {
        let mut node = self;
        for segment in &pattern.segments {
            node = match segment {
                // A leading, doubled or trailing slash in the file means nothing, as in a request.
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
    /// The node that a segment in any case leads to. Only tables with such routes pay for the lookup.
    fn folded(&self, segment: &str) -> Option<&Self> {
        if self.folded.is_empty() {
            return None;
        }
        self.folded.get(&*segment.to_ascii_lowercase())
    }
}

impl RouteList {
    /// Adds a route, and returns the routes that match the same requests.
    pub(super) fn add(&mut self, route: usize, rule: &Rule) -> Vec<RouteClash> {
        let (methods, conditions) = (&rule.methods[..], &rule.conditions[..]);
        if self.0.iter().any(|end| end.route == route) {
            // The route has the same host twice.
            return Vec::new();
        }
        let clashes = self.0.iter().filter_map(|end| {
            if end.conditions.len() != conditions.len() || !compatible(&end.conditions, conditions)
            {
                return None;
            }
            let method = match (methods, &*end.methods) {
                ([], []) => Method::GET,
                (methods, there) => methods
                    .iter()
                    .find(|method| there.contains(method))?
                    .clone(),
            };
            let route = end.route;
            Some(RouteClash { route, method })
        });
        let clashes = clashes.collect();
        let is_before = |end: &RouteEnd| end.conditions.len() >= conditions.len();
        let place = self.0.partition_point(is_before);
        let end = RouteEnd {
            route,
            methods: methods.into(),
            conditions: conditions.into(),
        };
        self.0.insert(place, end);
        clashes
    }

    fn find(&self, method: &Method, asked: &impl RequestView) -> Option<usize> {
        let naming = |method: &Method| {
            let mut ends = self.0.iter();
            ends.find(|end| end.methods.contains(method) && end.takes(asked))
        };
        // A route that takes GET takes HEAD, which is GET without the content (RFC 9110 section 9.3.2): a limit on GET
        // that HEAD slipped past would be no limit.
        let implied = || (*method == Method::HEAD).then(|| naming(&Method::GET))?;
        let any = || {
            let mut ends = self.0.iter();
            ends.find(|end| end.methods.is_empty() && end.takes(asked))
        };
        let end = naming(method).or_else(implied).or_else(any)?;
        Some(end.route)
    }
}

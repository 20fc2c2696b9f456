//! All routes, arranged by host for lookup.

use super::clash::Clashes;
use super::condition::{Example, RequestView};
use super::trie::{RouteEnd, TrieNode};
use super::{HostPattern, Rule, Segment, host_key};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use http::{HeaderMap, Method};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;

/// All routes, arranged for lookup.
#[derive(Debug, Default)]
pub struct Table {
    exact: HashMap<Box<str>, TrieNode, RandomState>,
    /// The paths of each suffix, with its leading dot.
    suffixes: HashMap<Box<str>, TrieNode, RandomState>,
    /// The length of the longest suffix. No longer part of a host is looked up among the suffixes, for any number of
    /// dots in a client's host.
    longest_suffix: usize,
    /// Does any route have conditions?
    conditional: bool,
    any: TrieNode,
}

/// Two routes of equal rank that can match the same request: their positions in the list of rules, and such a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The position of the earlier route.
    pub first: usize,
    /// The position of the later route.
    pub second: usize,
    /// A request that both routes match, such as `GET api.example.com/v1/orders`; without a host if both match any.
    pub example: String,
}

impl Table {
    /// Arranges `rules`; a found route is a position in that list.
    ///
    /// Two routes have equal rank when their host pattern and path shape are the same (names of parameters aside), when
    /// both name a common method or neither names any, and when they have the same number of conditions. If the
    /// conditions contradict each other, no request meets both.
    ///
    /// # Errors
    /// The pairs of routes of equal rank that can match the same request: all of them, up to 1,000, in the order of
    /// their second routes.
    pub fn build(rules: &[Rule]) -> Result<Self, Vec<Overlap>> {
        let mut table = Self::default();
        for (route, rule) in rules.iter().enumerate() {
            table.conditional |= !rule.conditions.is_empty();
            let end = RouteEnd {
                route,
                methods: rule.methods.as_slice().into(),
                conditions: rule.conditions.as_slice().into(),
            };
            for host in hosts(rule) {
                table.host(host).slot(&rule.path).add(end.clone());
            }
        }
        let mut shared = Vec::new();
        let hosts = table.exact.values_mut().chain(table.suffixes.values_mut());
        for node in hosts.chain([&mut table.any]) {
            node.settle(&mut |ends| {
                if ends.len() > 1 {
                    shared.push(ends.to_vec());
                }
            });
        }
        // Hosts and paths have no order here, and the reported overlaps must be the same at each reading.
        shared.sort_by_cached_key(|ends| {
            let mut routes: Vec<usize> = ends.iter().map(|end| end.route).collect();
            routes.sort_unstable();
            routes
        });
        let mut clashes = Clashes::new(MOST_OVERLAPS);
        for ends in &shared {
            clashes.look(ends);
        }
        let overlaps: Vec<Overlap> = clashes
            .sorted()
            .map(|(first, second)| overlap(first, second, rules))
            .collect();
        if overlaps.is_empty() {
            Ok(table)
        } else {
            Err(overlaps)
        }
    }

    /// Does any route have a condition about the host? If none has, the host need not be normalised for
    /// [`find`](Self::find).
    #[must_use]
    pub fn asks_for_hosts(&self) -> bool {
        !(self.exact.is_empty() && self.suffixes.is_empty())
    }

    /// Does any route have conditions beyond host, path and method?
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        self.conditional
    }

    /// The route that matches a request, as a position in the list of rules.
    ///
    /// `host` is a [`host_key`], empty when the request names none; `path` is the match form of
    /// [`normalize`](super::path::normalize). The most specific route wins: first by host (exact, then the longest
    /// suffix, then any), then by path from the left (literal, parameter, rest), then the route that names the method,
    /// then the one with more conditions. If a route that is first by one criterion fails by a later one, the next
    /// route is tried, also under the other hosts.
    #[must_use]
    pub fn find(
        &self,
        host: &str,
        path: &str,
        method: &Method,
        asked: &impl RequestView,
    ) -> Option<usize> {
        let exact = self.exact.get(host);
        exact
            .and_then(|node| node.find(path, method, asked))
            .or_else(|| self.find_by_suffix(host, path, method, asked))
            .or_else(|| self.any.find(path, method, asked))
    }

    /// Does this route match requests for `host` and `path` by `method`, regardless of its conditions? The arguments
    /// are the same as for [`find`](Self::find).
    #[must_use]
    pub fn fits(&self, route: usize, host: &str, path: &str, method: &Method) -> bool {
        let search = OneRoute(route, HeaderMap::new());
        self.find(host, path, method, &search).is_some()
    }

    fn find_by_suffix(
        &self,
        host: &str,
        path: &str,
        method: &Method,
        asked: &impl RequestView,
    ) -> Option<usize> {
        // At least one byte of a label comes before a suffix.
        let from = host.len().saturating_sub(self.longest_suffix).max(1);
        let candidates = host.as_bytes().get(from..)?;
        let dots = (from..).zip(candidates).filter(|(_, byte)| **byte == b'.');
        dots.filter_map(|(at, _)| self.suffixes.get(host.get(at..)?))
            .find_map(|node| node.find(path, method, asked))
    }

    /// The paths under a host pattern, which is added if it is new.
    fn host(&mut self, host: Option<&HostPattern>) -> &mut TrieNode {
        match host {
            None => &mut self.any,
            Some(HostPattern::Exact(host)) => self.exact.entry(host_key(host).into()).or_default(),
            Some(HostPattern::Suffix(suffix)) => {
                let suffix = host_key(suffix);
                self.longest_suffix = self.longest_suffix.max(suffix.len());
                self.suffixes.entry(suffix.into()).or_default()
            }
        }
    }
}

/// A search for one route, whose conditions count as met.
struct OneRoute(usize, HeaderMap);

impl RequestView for OneRoute {
    fn fields(&self) -> &HeaderMap {
        &self.1
    }

    fn query(&self) -> Option<&str> {
        None
    }

    fn is_https(&self) -> bool {
        false
    }

    fn seeks(&self, route: usize) -> bool {
        route == self.0
    }

    fn meets(&self, _route: usize, _conditions: &[super::Condition]) -> bool {
        true
    }
}

/// The most overlaps that are reported: a reader needs no more, and pairs grow with the square of the routes.
const MOST_OVERLAPS: usize = 1_000;

/// The host patterns of a rule; `None` means any host.
fn hosts(rule: &Rule) -> impl Iterator<Item = Option<&HostPattern>> {
    let any = rule.hosts.is_empty().then_some(None);
    rule.hosts.iter().map(Some).chain(any)
}

/// The overlap of two routes, with a request that both match.
fn overlap(first: usize, second: usize, rules: &[Rule]) -> Overlap {
    let example = example(&rules[first], &rules[second]);
    Overlap {
        first,
        second,
        example,
    }
}

/// The spelling of a host, and whether it is a single host.
fn spelled(host: &HostPattern) -> (bool, Cow<'_, str>) {
    match host {
        HostPattern::Exact(host) => (true, host_key(host)),
        HostPattern::Suffix(suffix) => (false, host_key(suffix)),
    }
}

/// A request that both rules match.
fn example(first: &Rule, second: &Rule) -> String {
    let there: HashSet<_> = first.hosts.iter().map(spelled).collect();
    let mut hosts = second.hosts.iter().map(spelled);
    let host = match hosts.find(|host| there.contains(host)) {
        None => String::new(),
        Some((true, host)) => host.into_owned(),
        Some((false, suffix)) => format!("x{suffix}"),
    };
    let there: HashSet<&Method> = first.methods.iter().collect();
    let mut methods = second.methods.iter();
    let method = methods.find(|method| there.contains(method));
    let mut text = format!("{} {host}", method.unwrap_or(&Method::GET));
    let start = text.len();
    for segment in &second.path.segments {
        let segment = match segment {
            Segment::Literal(text) if text.is_empty() => continue,
            Segment::Literal(text) | Segment::Folded(text) => text,
            Segment::Parameter(_) | Segment::Rest(_) => "x",
        };
        // Writing into a string cannot fail.
        let _ = write!(text, "/{segment}");
    }
    if text.len() == start {
        text.push('/');
    }
    let _ = write!(text, "{}", Example(&first.conditions, &second.conditions));
    text
}

#[cfg(test)]
mod tests;

//! A cache of the last routes found. Logged traffic has few paths and many requests for each, and finding a route takes
//! a fifth of the time of a replay. The cache is small and never grows.

use super::request::LoggedTarget;
use crate::route::{RequestView, Table, host_key, path};
use http::Method;
use std::hash::{BuildHasher as _, Hasher as _};

/// The number of places, for two routes each: a power of two, and few enough for the processor's cache.
const PLACES: usize = 256;

/// The longest path in the cache; longer ones are looked up each time.
const LONGEST: usize = 128;

/// Routes by method, host and path, as written in the trace.
#[derive(Debug)]
pub(super) struct RouteCache {
    hasher: foldhash::fast::RandomState,
    places: Vec<[CachedRoute; 2]>,
}

#[derive(Debug, Clone, Default)]
struct CachedRoute {
    /// The host, a blank, the path.
    text: String,
    method: Method,
    found: RouteMatch,
}

/// The destination of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RouteMatch {
    /// The request goes to this route.
    Found(usize),
    /// No route matches the request.
    #[default]
    Missing,
    /// The gateway answers 400, before any limit is checked.
    BadRequest,
}

impl RouteCache {
    /// An empty cache.
    pub(super) fn new() -> Self {
        Self {
            hasher: foldhash::fast::RandomState::default(),
            places: vec![Default::default(); PLACES],
        }
    }

    /// The route of `table` that matches such a request. All calls must pass the same table.
    pub(super) fn find(
        &mut self,
        table: &Table,
        method: &Method,
        target: &LoggedTarget<'_>,
        asked: &impl RequestView,
    ) -> RouteMatch {
        let LoggedTarget { host, path, .. } = *target;
        if host.len() + path.len() > LONGEST || table.has_conditions() {
            return look(table, method, target, asked);
        }
        let mut hasher = self.hasher.build_hasher();
        hasher.write(host.as_bytes());
        hasher.write(path.as_bytes());
        let set = usize::try_from(hasher.finish() % PLACES as u64).unwrap_or(0);
        let [first, second] = &mut self.places[set];
        if first.is(method, host, path) {
            return first.found;
        }
        // The route of the last request comes first, and the second is replaced next.
        std::mem::swap(first, second);
        if !first.is(method, host, path) {
            first.text.clear();
            first.text.push_str(host);
            first.text.push(' ');
            first.text.push_str(path);
            first.method.clone_from(method);
            first.found = look(table, method, target, asked);
        }
        first.found
    }
}

impl CachedRoute {
    fn is(&self, method: &Method, host: &str, path: &str) -> bool {
        let behind = self
            .text
            .strip_prefix(host)
            .and_then(|rest| rest.strip_prefix(' '));
        behind == Some(path) && self.method == *method
    }
}

/// Looks the route up in `table`, as the gateway does.
fn look(
    table: &Table,
    method: &Method,
    target: &LoggedTarget<'_>,
    asked: &impl RequestView,
) -> RouteMatch {
    let Ok(path) = path::normalize(target.path) else {
        return RouteMatch::BadRequest;
    };
    let route = table.find(&host_key(target.host), path.to_match(), method, asked);
    route.map_or(RouteMatch::Missing, RouteMatch::Found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{PathPattern, Rule, Segment};

    /// A request with only host, path and method.
    struct Nothing;

    impl RequestView for Nothing {
        fn fields(&self) -> &http::HeaderMap {
            static NONE: std::sync::OnceLock<http::HeaderMap> = std::sync::OnceLock::new();
            NONE.get_or_init(http::HeaderMap::new)
        }

        fn query(&self) -> Option<&str> {
            None
        }

        fn is_https(&self) -> bool {
            false
        }
    }

    #[test]
    fn what_is_remembered_is_what_would_be_found() {
        let rule = |name: &str, path: &str, methods: &[Method]| Rule {
            name: name.into(),
            hosts: Vec::new(),
            path: PathPattern {
                segments: path
                    .split('/')
                    .map(|part| Segment::Literal(part.into()))
                    .collect(),
            },
            methods: methods.to_vec(),
            conditions: Vec::new(),
        };
        let rules = [
            rule("a", "a", &[]),
            rule("b", "b/c", &[Method::GET]),
            rule("d", "b c", &[]),
        ];
        let table = Table::build(&rules).unwrap();
        let mut route_cache = RouteCache::new();
        let mut random = fastrand::Rng::with_seed(7);
        let long = "/a".repeat(200);
        for _ in 0..20_000 {
            let path = [
                "/a", "/b/c", "/b//c", "b", "/b%20c", "/%2f", "/x", "", &long,
            ][random.usize(..9)];
            let path = if random.bool() {
                path.to_owned()
            } else {
                format!("{path}/{}", random.u32(..2_000))
            };
            let host = ["", "a b", "h", "H:80"][random.usize(..4)];
            let method = [Method::GET, Method::POST, Method::HEAD][random.usize(..3)].clone();
            let target = LoggedTarget {
                host,
                path: &path,
                query: None,
            };
            let expected = look(&table, &method, &target, &Nothing);
            let found = route_cache.find(&table, &method, &target, &Nothing);
            assert_eq!(found, expected, "{method} {host:?} {path:?}");
        }
    }
}

//! `GET /v1/routes` and `GET /v1/upstreams`: the routes of the configuration in force, and servers as they are now.

use serde::Serialize;

/// All routes.
#[derive(Debug, Serialize)]
pub struct RoutesAnswer {
    /// The number of the configuration.
    pub generation: u64,
    /// A page of the routes, in the order of the file.
    pub routes: Vec<RouteAnswer>,
    /// What `after` of the next page is; null at the end.
    pub next: Option<String>,
}

/// A route.
#[derive(Debug, Clone, Serialize)]
pub struct RouteAnswer {
    /// Its name.
    pub name: String,
    /// Its hosts; none is any host.
    pub hosts: Vec<String>,
    /// Its path.
    pub path: String,
    /// Its methods; none is any.
    pub methods: Vec<String>,
    /// The number of its further conditions.
    pub conditions: usize,
    /// Its upstream; null where it answers by itself.
    pub upstream: Option<String>,
    /// The limits of its requests, in the order in which they are looked at.
    pub limits: Vec<String>,
    /// Where the file has it: `gateway.toml:12`.
    pub place: Option<String>,
}

/// All upstreams.
#[derive(Debug, Serialize)]
pub struct UpstreamsAnswer {
    /// The upstreams, in the order of the file.
    pub upstreams: Vec<ListedUpstream>,
}

/// An upstream.
#[derive(Debug, Serialize)]
pub struct ListedUpstream {
    /// Its name.
    pub name: String,
    /// Servers that take requests.
    pub available: usize,
    /// Requests that wait for a server.
    pub waiting: usize,
    /// Its servers.
    pub servers: Vec<ServerAnswer>,
}

/// A server.
#[derive(Debug, Serialize)]
pub struct ServerAnswer {
    /// Its address.
    pub server: String,
    /// `up`, `down`, `ejected`, `draining` or `unknown`. More words may come.
    pub state: &'static str,
    /// Its weight.
    pub weight: u32,
    /// Requests under way there, where they are counted.
    pub in_flight: Option<u64>,
    /// Requests that it takes at once.
    pub max_requests: Option<u64>,
    /// Open connections, where they are counted.
    pub connections: Option<u64>,
    /// Failures in a row.
    pub failures: u64,
    /// Ejections in a row.
    pub ejections: u64,
    /// Milliseconds until an ejected server is tried again.
    pub ejected_ms: Option<u64>,
}

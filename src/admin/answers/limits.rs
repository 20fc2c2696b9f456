//! `GET /v1/limits` and `GET /v1/limits/{limit}`: the limits of the configuration in force.

use serde::Serialize;

/// A page of limits.
#[derive(Debug, Serialize)]
pub struct LimitsAnswer {
    /// The limits, in the order of the file.
    pub limits: Vec<ListedLimit>,
    /// What `after` of the next page is; null at the end.
    pub next: Option<String>,
}

/// A limit. A limit with a list of rates is one of these.
#[derive(Debug, Clone, Serialize)]
pub struct ListedLimit {
    /// Its name.
    pub name: String,
    /// Its numbers in short: `10/s, burst 20`. Rates of a list are joined by `; `.
    pub rule: String,
    /// The parts of the key that it counts by.
    pub by: Vec<String>,
    /// `enforce` or `shadow`.
    pub mode: &'static str,
    /// `cluster`: all gateways count together; `gateway`: each counts alone.
    pub scope: &'static str,
    /// Its algorithm, as the file names it.
    pub algorithm: &'static str,
}

/// A limit with all that is known of it without its counters.
#[derive(Debug, Clone, Serialize)]
pub struct LimitDetails {
    /// The limit.
    #[serde(flatten)]
    pub limit: ListedLimit,
    /// The routes and upstreams that name it.
    pub used_by: UsedBy,
    /// Where the file has it: `gateway.toml:12`.
    pub place: Option<String>,
    /// What it means, as `tollgate check` says it: a sentence for each rate.
    pub sentence: String,
}

/// The routes and upstreams that name a limit.
#[derive(Debug, Clone, Default, Serialize)]
pub struct UsedBy {
    /// Names of routes, those by `defaults` and by their upstream included.
    pub routes: Vec<String>,
    /// Names of upstreams.
    pub upstreams: Vec<String>,
}

//! A configuration file under construction: the lines that every test needs, plus the lines that the test is about.

use super::redis::Redis;
use super::upstream::Upstream;
use std::fmt::Write as _;

/// The text of a gateway.toml. A gateway with this file listens on free ports of the loopback and logs each request as
/// JSON.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    server: String,
    admin: String,
    store: String,
    rest: String,
}

impl File {
    /// A file that sends every path to `upstream`, under `limits`.
    pub(crate) fn to(upstream: &Upstream, limits: &[&str]) -> Self {
        Self::default()
            .upstream("main", &[upstream])
            .route("all", "/{*rest}", "main", limits)
    }

    /// Adds lines to `[server]`.
    pub(crate) fn server(mut self, lines: &str) -> Self {
        let _ = writeln!(self.server, "{lines}");
        self
    }

    /// Adds lines to `[admin]`, the address among them.
    pub(crate) fn admin(mut self, lines: &str) -> Self {
        let _ = writeln!(self.admin, "{lines}");
        self
    }

    /// Adds lines to `[store]`.
    pub(crate) fn store(mut self, lines: &str) -> Self {
        let _ = writeln!(self.store, "{lines}");
        self
    }

    /// Makes the gateway count in `redis`, with further `lines` of `[store]`.
    pub(crate) fn redis(self, redis: &Redis, lines: &str) -> Self {
        self.store(&format!("url = \"{}\"\n{lines}", redis.url()))
    }

    /// Adds any further tables.
    pub(crate) fn with(mut self, text: &str) -> Self {
        let _ = writeln!(self.rest, "{text}");
        self
    }

    /// Adds a limit with these lines.
    pub(crate) fn limit(self, name: &str, lines: &str) -> Self {
        self.with(&format!("[limits.{name}]\n{lines}"))
    }

    /// Adds an upstream of these servers.
    pub(crate) fn upstream(self, name: &str, servers: &[&Upstream]) -> Self {
        let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
        self.with(&format!("[upstreams.{name}]\nservers = {urls:?}"))
    }

    /// Adds a route for `path` at the end, so that more lines of the route may follow.
    pub(crate) fn route(self, name: &str, path: &str, upstream: &str, limits: &[&str]) -> Self {
        self.with(&format!(
            "[routes.{name}]\npath = \"{path}\"\nupstream = \"{upstream}\"\nlimits = {limits:?}"
        ))
    }

    /// The whole text.
    pub(crate) fn text(&self) -> String {
        let store = if self.store.is_empty() {
            String::new()
        } else {
            format!("[store]\n{}", self.store)
        };
        let listen = if self.server.contains("listen") {
            ""
        } else {
            "listen = [\"127.0.0.1:0\"]\n"
        };
        let admin = match self.admin.as_str() {
            "" => "listen = \"127.0.0.1:0\"\n",
            lines => lines,
        };
        format!(
            "[server]\n{listen}{}[log]\naccess = \"json\"\n[admin]\n{admin}{store}{}",
            self.server, self.rest
        )
    }
}

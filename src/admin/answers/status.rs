//! `GET /v1/status`: the gateway in short.

use super::store::StoreAnswer;
use serde::Serialize;
use serde_json::Value;

/// The gateway in short.
#[derive(Debug, Serialize)]
pub struct StatusAnswer {
    /// The gateway's name.
    pub name: String,
    /// A random number, new with each start, in hexadecimal digits.
    pub id: String,
    /// The program's version.
    pub version: &'static str,
    /// Milliseconds since the start.
    pub up_ms: u64,
    /// Does it take requests?
    pub ready: bool,
    /// `starting`, `ready` or `draining`.
    pub phase: &'static str,
    /// The number of the configuration in force.
    pub generation: u64,
    /// The beginning of SHA-256 of that configuration, as `/v1/config` shows it: gateways with one file have one hash.
    pub hash: String,
    /// The instant since which it is in force.
    pub loaded_at: String,
    /// `file`, or `flags` where the gateway was started without a file.
    pub source: &'static str,
    /// The last reload, if there was one.
    pub last_reload: Option<LastReload>,
    /// Where the counters are.
    pub store: StoreAnswer,
    /// The gateways that count together.
    pub gateways: GatewayCount,
    /// The servers of all upstreams.
    pub servers: ServerCount,
    /// A state that needs attention.
    pub alerts: Vec<Alert>,
    /// The state in one sentence.
    pub headline: String,
    /// Where its cause lies: `us`, `servers` or `none`. More words may come.
    pub cause: &'static str,
}

/// A reload.
#[derive(Debug, Clone, Serialize)]
pub struct LastReload {
    /// The instant.
    pub at: String,
    /// Is the file in force?
    pub ok: bool,
    /// The mistakes of a refused file, as `tollgate check --json` writes them.
    pub diagnostics: Vec<Value>,
}

/// Gateways that count together.
#[derive(Debug, Serialize)]
pub struct GatewayCount {
    /// This one included.
    pub count: u64,
}

/// The servers of all upstreams.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerCount {
    /// All that have a weight.
    pub count: usize,
    /// Those that take requests.
    pub available: usize,
    /// Those that do not.
    pub down: Vec<DownServer>,
}

/// A server that takes no requests.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct DownServer {
    /// Its upstream.
    pub upstream: String,
    /// Its address.
    pub server: String,
    /// `down`, `ejected` or another word of `/v1/upstreams`.
    pub state: &'static str,
}

/// A state that needs attention.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// The kind, for programs. More kinds may come.
    pub code: &'static str,
    /// One sentence.
    pub text: String,
    /// The instant of the beginning, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

//! Upstreams: named sets of servers to forward to.

pub mod balance;
pub mod balance_rule;
pub mod connection;
pub mod connection_bound;
pub mod demo;
pub mod ejection;
pub mod endpoint;
pub mod failure;
pub mod http1;
mod keep_alive;
mod least_requests;
pub mod pool;
pub mod probe_rule;
mod reachability;
pub mod rendezvous;
pub mod retry_budget;
pub mod retry_rule;
mod rotation;
pub mod server_queue;
pub mod shared_connection;
mod stream;
pub mod tunnel;

pub use stream::ConnectError;

use balance_rule::{BalanceRule, NoneLeft, QueueRule};
use bytes::Bytes;
use ejection::EjectionRule;
use hyper::body::Body;
use probe_rule::ProbeRule;
use retry_rule::RetryRule;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The body of a request to a server.
pub trait OutgoingBody:
    Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static
{
}

impl<B> OutgoingBody for B where
    B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static
{
}

/// A named set of servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its name in the file.
    pub name: Arc<str>,
    /// Its servers, taken in turn. Never empty.
    pub servers: Vec<Server>,
    /// Longest time to wait for a connection.
    pub connect_timeout: Duration,
    /// Which server gets a request, and what becomes of it when the server fails.
    pub rules: UpstreamRules,
}

/// The rules of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamRules {
    /// How a server is chosen.
    pub balance: BalanceRule,
    /// The probes of its servers.
    pub health: Option<ProbeRule>,
    /// When a server that fails requests gets none.
    pub eject: Option<EjectionRule>,
    /// Which requests are sent once more.
    pub retry: Option<RetryRule>,
    /// The requests that wait for a server with a bound.
    pub queue: QueueRule,
    /// The time in which the share of a server that is back grows to the whole.
    pub ramp: Option<Duration>,
    /// What becomes of requests while no server is available.
    pub none_left: NoneLeft,
}

/// The place where one server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Server {
    /// `http://host:port`; a name is resolved at each new connection.
    Http {
        /// Name or address, IPv6 without brackets.
        host: Arc<str>,
        /// TCP port.
        port: u16,
    },
    /// `demo:`, the built-in server, started because the file asks for it.
    Demo,
}

impl Server {
    /// The host of a request to this server that names none.
    #[must_use]
    pub fn authority(&self) -> String {
        let url = self.to_string();
        url.strip_prefix("http://")
            .unwrap_or("localhost")
            .to_owned()
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Http { host, port } => write!(f, "http://{host}:{port}"),
            Self::Demo => f.write_str("demo:"),
        }
    }
}

//! Upstreams: named sets of servers to forward to.

pub mod balance;
pub mod connection;
pub mod demo;
pub mod endpoint;
pub mod failure;
pub mod http1;
mod keep_alive;
pub mod pool;
mod reachability;
pub mod shared_connection;
mod stream;
pub mod tunnel;

pub use stream::ConnectError;

use bytes::Bytes;
use hyper::body::Body;
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
    /// Requests carry the certificate that their client has shown (RFC 9440).
    pub forward_client_cert: bool,
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

//! Upstreams: named sets of servers to forward to.
//!
//! In: the head and body of a request for a server. Out: the answer's, or a failure with its cause. The room knows no
//! limits.
//!
//! ```text
//! server     an entry of `servers`: where it listens, and what it speaks
//! rules      the rules of an upstream: choice, retries, probes, ejection
//! state      what all workers know of its servers: names, availability, queues and bounds
//! dial       opens a stream
//! transport  one exchange over it, in HTTP/1.1 or HTTP/2
//! failure    how an upstream fails a request, and its class in metrics and log
//! balance    the servers as one worker uses them: the choice of one, and the connections to it
//! probe      one probe; what is done beside requests; one look for `check --connect`
//! ```

pub mod balance;
mod dial;
pub mod failure;
mod probe;
mod rules;
mod server;
mod state;
mod transport;

pub use balance::{endpoint, pool, rendezvous, shared_connection};
pub use dial::connect_error::ConnectError;
pub use dial::demo;
pub use dial::destination::{Destination, ServerProtocol};
pub use failure::fault;
pub use probe::{keeper, survey};
pub use rules::upstream_rules::UpstreamRules;
pub use rules::{balance_rule, ejection, probe_rule, retry_rule};
pub use server::Server;
pub use server::server_host::ServerHost;
pub use server::server_tls::{OfferedProtocols, ServerTls};
pub use server::server_url::ServerUrl;
pub use server::socket_fence::SocketFence;
pub use state::registry::Registry;
pub use state::upstream_state::UpstreamState;
pub use state::{resolution, server_queue};
#[cfg(test)]
pub(crate) use transport::http2::connection::STREAM_WINDOW;
pub use transport::unasked_upgrade::UnaskedUpgrade;
pub use transport::{connection, http1, owed_time, tunnel};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Body;
use std::error::Error as StdError;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use transport::owed_time::UploadState;

/// The purpose of a request's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// One exchange among others on its connection.
    Exchange,
    /// A tunnel, which keeps its connection, and is opened over HTTP/1.1.
    Tunnel,
}

/// The body of a request to a server. A body whose beginning is kept can be sent once more from its first byte.
pub trait OutgoingBody:
    Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static
{
    /// The state of its upload, in which the server's progress is noted; `None` if that is not needed.
    fn upload(&self) -> Option<Rc<dyn UploadState>> {
        None
    }

    /// Keeps the part of the body that is taken from now on, as long as there is room.
    fn keep(&mut self) {}

    /// Is everything that was taken of the body still available?
    fn is_kept(&self) -> bool {
        false
    }

    /// Starts the body again, once. Returns false if the taken part is no longer available.
    fn rewind(&mut self) -> bool {
        false
    }

    /// Drops the kept part, since the request is answered.
    fn forget(&mut self) {}
}

/// The body of a request without a body.
impl OutgoingBody for Empty<Bytes> {}

/// A named set of servers.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Its name in the file.
    pub name: Arc<str>,
    /// Its servers, in the order of the file. Never empty.
    pub servers: Vec<Server>,
    /// Longest time to wait for a connection, the TLS handshake included.
    pub connect_timeout: Duration,
    /// Requests carry the certificate that their client has shown (RFC 9440).
    pub forward_client_cert: bool,
    /// The host in requests to its servers; `None` means the client's.
    pub host: Option<ServerHost>,
    /// TLS towards its servers, if one of them uses it.
    pub tls: Option<ServerTls>,
    /// The protocol of requests to its servers.
    pub protocol: ServerProtocol,
    /// The time between two resolutions of its servers' names.
    pub resolve: Duration,
    /// The age from which a connection takes no further request, if configured.
    pub max_age: Option<Duration>,
    /// The choice of a request's server, and the treatment of the request if the server fails.
    pub rules: UpstreamRules,
    /// Its state. Kept over reloads by the [`Registry`].
    pub state: Arc<UpstreamState>,
}

impl Upstream {
    /// Those names of its servers that must be resolved, including repetitions.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.servers.iter().filter_map(|server| server.url.name())
    }
}

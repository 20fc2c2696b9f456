//! Upstreams: named sets of servers to forward to.
//!
//! In: the head and body of a request for a server. Out: the answer's, or a failure with its cause. Limits are not
//! known here.
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
    /// A tunnel, which takes its connection for good, and is opened over HTTP/1.1.
    Tunnel,
}

/// The body of a request to a server. One whose beginning is kept can be sent once more from its first byte on.
pub trait OutgoingBody:
    Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static
{
    /// The state of its upload, to which is noted what the server takes; nothing where that is of no use.
    fn upload(&self) -> Option<Rc<dyn UploadState>> {
        None
    }

    /// From now on what is taken of the body is kept, as long as there is room.
    fn keep(&mut self) {}

    /// Is all that was taken of the body still at hand?
    fn is_kept(&self) -> bool {
        false
    }

    /// Begins anew, once. False where what was taken is not at hand any more.
    fn rewind(&mut self) -> bool {
        false
    }

    /// Lets go of what is kept: the request is answered.
    fn forget(&mut self) {}
}

/// The body of a request that has none.
impl OutgoingBody for Empty<Bytes> {}

/// A named set of servers.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Its name in the file.
    pub name: Arc<str>,
    /// Its servers, in the order of the file. Never empty.
    pub servers: Vec<Server>,
    /// Longest time to wait for a connection, the handshake of TLS included.
    pub connect_timeout: Duration,
    /// Requests carry the certificate that their client has shown (RFC 9440).
    pub forward_client_cert: bool,
    /// The host that its servers are asked for; nothing where it is the client's.
    pub host: Option<ServerHost>,
    /// TLS towards its servers, where one of them has it.
    pub tls: Option<ServerTls>,
    /// The protocol that its servers are asked in.
    pub protocol: ServerProtocol,
    /// The time between two resolutions of its servers' names.
    pub resolve: Duration,
    /// The age from which a connection takes no further request, where it is written.
    pub max_age: Option<Duration>,
    /// Which server gets a request, and what becomes of it when the server fails.
    pub rules: UpstreamRules,
    /// What is known of it. Kept over reloads by the [`Registry`].
    pub state: Arc<UpstreamState>,
}

impl Upstream {
    /// The names among its servers that must be resolved, as often as they stand there.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.servers.iter().filter_map(|server| server.url.name())
    }
}

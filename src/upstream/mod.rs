//! Upstreams: named sets of servers to forward to.
//!
//! In: the head and body of a request for a server. Out: the answer's, or a failure with its cause. Limits are not
//! known here.
//!
//! ```text
//! server_url         where a server listens, and what it speaks
//! server             an entry of `servers`
//! server_host        the host that servers are asked for
//! destination        what a connection depends on
//! upstream_rules     the rules of an upstream
//! balance_rule       how a server is chosen
//! retry_rule         which requests may be sent again
//! ejection           when a failing server gets none for a while
//! probe_rule         how servers are probed
//! registry           the states of all upstreams, kept over reloads
//! upstream_state     one upstream's servers, as all workers know them
//! server_state       one server, as all workers know it
//! resolution         names are asked for again and again
//! balance            the servers as one worker uses them
//! endpoint           one server as one worker uses it
//! choice             which server gets a request
//! rotation           smooth weighted round robin
//! least_requests     fewest requests in flight
//! rendezvous         by a key
//! availability       which servers are available, and what changes that
//! server_health      what is known of one server
//! failure_row        failures in a row, and whose they were
//! recent_clients     which clients ask lately
//! server_queue       requests that wait for a place at a server
//! connection_bound   connections to one server, over all workers
//! open_socket        what an open connection takes
//! retry_budget       how many requests may be sent again
//! keeper             beside requests: ejections end, shares grow, servers are probed
//! probe              one probe
//! pool               connections that are kept
//! keep_alive         how long a connection may rest: always shorter than its server keeps it
//! dial               opens a stream
//! socket_fence       where sockets of included files' servers may stand
//! server_tls         TLS towards servers
//! stream             the bytes between gateway and server
//! connection         one exchange, read and written by the request that waits
//! shared_connection  an answer that comes while the request still goes up
//! owed_time          since when a server owes something
//! held_body          how long a client holds its body back
//! head_bound         how large an answer's head may be, over both versions
//! http1              HTTP/1.1 as a client speaks it
//! http2              HTTP/2 as a client speaks it
//! tunnel             an upgrade, by hyper's client
//! unasked_upgrade    a switch to a protocol that was not asked for
//! failure            how an upstream fails a request, and its class in metrics and log
//! fault              why, in words
//! connect_error      failures before any request is sent
//! stream_fault       failures of a stream of HTTP/2
//! offending_line     the line that is to blame
//! library_words      the HTTP/2 library's messages, in an operator's words
//! other_protocol     a server that speaks something else, by its first bytes
//! survey             one look at a server, for `check --connect`
//! reachability       logged once, and once when it is back
//! demo               the built-in demo server
//! ```

mod availability;
pub mod balance;
pub mod balance_rule;
mod choice;
mod connect_error;
pub mod connection;
pub mod connection_bound;
pub mod demo;
pub mod destination;
mod dial;
pub mod ejection;
pub mod endpoint;
pub mod failure;
mod failure_row;
pub mod fault;
mod head_bound;
mod held_body;
pub mod http1;
mod http2;
#[cfg(test)]
pub(crate) use http2::connection::STREAM_WINDOW;
mod keep_alive;
pub mod keeper;
mod least_requests;
mod library_words;
mod offending_line;
mod open_socket;
pub mod other_protocol;
pub mod owed_time;
pub mod pool;
mod probe;
pub mod probe_rule;
mod reachability;
mod recent_clients;
mod registry;
pub mod rendezvous;
pub mod resolution;
pub mod retry_budget;
pub mod retry_rule;
mod rotation;
mod server;
pub mod server_health;
mod server_host;
pub mod server_queue;
pub mod server_state;
mod server_tls;
mod server_url;
pub mod shared_connection;
mod socket_fence;
mod stream;
mod stream_fault;
pub mod survey;
pub mod tunnel;
mod unasked_upgrade;
mod upstream_rules;
pub mod upstream_state;

pub use connect_error::ConnectError;
pub use destination::{Destination, Protocol};
pub use registry::Registry;
pub use server::Server;
pub use server_host::ServerHost;
pub use server_tls::{OfferedProtocols, ServerTls};
pub use server_url::ServerUrl;
pub use socket_fence::SocketFence;
pub use unasked_upgrade::UnaskedUpgrade;
pub use upstream_rules::UpstreamRules;
pub use upstream_state::UpstreamState;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Body;
use owed_time::UploadState;
use std::error::Error as StdError;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

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
    pub protocol: Protocol,
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

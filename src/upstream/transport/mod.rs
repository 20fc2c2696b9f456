//! One exchange with a server over an open stream: HTTP/1.1, HTTP/2, or a tunnel.
//!
//! In: a request and a stream. Out: the answer, or the cause for which there is none.
//!
//! ```text
//! connection       one exchange, read and written by the request that waits
//! keep_alive       how long a connection may rest: always shorter than its server keeps it
//! owed_time        since when a server owes something
//! held_body        how long a client holds its body back
//! head_bound       how large an answer's head may be, over both versions
//! http1            HTTP/1.1 as a client speaks it
//! http2            HTTP/2 as a client speaks it
//! tunnel           an upgrade, by hyper's client
//! unasked_upgrade  a switch to a protocol that was not asked for
//! stream_fault     failures of a stream of HTTP/2
//! offending_line   the line that is to blame
//! library_words    the HTTP/2 library's messages, in an operator's words
//! ```

pub mod connection;
mod head_bound;
mod held_body;
pub mod http1;
pub(super) mod http2;
mod keep_alive;
pub(super) mod library_words;
pub(super) mod offending_line;
pub mod owed_time;
pub(super) mod stream_fault;
pub mod tunnel;
pub(super) mod unasked_upgrade;

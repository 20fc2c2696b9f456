//! The connection between a gateway and its successor, on which each side sends lines.
//!
//! The successor sends `ready`, with the positions of the sockets that it does not use; the gateway sends `serve`; the
//! successor accepts connections, and sends `serving`. Before `serve` the successor has no visible effect, and may be
//! ended.
//!
//! Before `ready` the successor may send `inherit`, and gets a line with the data that the gateway hands over beside
//! sockets ([`super::bequest`]): on this connection alone, since the line contains private keys. It sends `inherit`
//! only if the gateway announces support ([`crate::listen::handed_sockets::BEQUEATHS`]).

use std::io;
use std::os::unix::net;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The successor is ready to serve.
pub(in crate::app) const READY: &str = "ready";
/// The successor is to serve.
pub(in crate::app) const SERVE: &str = "serve";
/// The successor serves.
pub(in crate::app) const SERVING: &str = "serving";

/// The successor requests the data that is handed over beside sockets.
pub(in crate::app) const INHERIT: &str = "inherit";

/// The most bytes of a line that a gateway reads from its successor.
const MOST: usize = 64 * 1024;
/// The most bytes of a line that a successor reads: it contains the certificates of thousands of identities.
pub(in crate::app) const MOST_BEQUEATHED: usize = 32 << 20;
/// Longest time for writing a line.
const WRITTEN: Duration = Duration::from_secs(1);

/// One end of the connection.
#[derive(Debug)]
pub(in crate::app) struct HandoverChannel {
    stream: BufReader<UnixStream>,
    /// The most bytes of a line that is read.
    most: usize,
}

impl HandoverChannel {
    /// The gateway's end, inside a runtime.
    ///
    /// # Errors
    /// If the runtime cannot register the stream.
    pub(in crate::app) fn to_successor(stream: net::UnixStream) -> io::Result<Self> {
        Self::new(stream, MOST)
    }

    /// The successor's end, inside a runtime.
    ///
    /// # Errors
    /// If the runtime cannot register the stream.
    pub(in crate::app) fn to_predecessor(stream: net::UnixStream) -> io::Result<Self> {
        Self::new(stream, MOST_BEQUEATHED)
    }

    fn new(stream: net::UnixStream, most: usize) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let stream = BufReader::new(UnixStream::from_std(stream)?);
        Ok(Self { stream, most })
    }

    /// Sends a line.
    ///
    /// # Errors
    /// If the other end is closed, or does not take the line.
    pub(in crate::app) async fn say(&mut self, line: &str) -> io::Result<()> {
        let line = format!("{line}\n");
        timeout(WRITTEN, self.stream.write_all(line.as_bytes())).await?
    }

    /// Sends the line with the data that is handed over beside sockets. The caller bounds the time.
    ///
    /// # Errors
    /// If the other end is closed.
    pub(in crate::app) async fn send_bequest(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(line.as_bytes()).await?;
        self.stream.write_all(b"\n").await
    }

    /// The next line from the other end; `None` if it is closed, or sends something other than a line. The caller
    /// bounds the time.
    pub(in crate::app) async fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        let most = u64::try_from(self.most).unwrap_or(u64::MAX);
        let mut bounded = (&mut self.stream).take(most);
        bounded.read_line(&mut line).await.ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    }
}

//! The connection between a gateway and its successor: a line each way at a time.
//!
//! The successor says `ready`, with the positions of the sockets that it has no use for; the gateway says `serve`; the
//! successor accepts connections, and says `serving`. Until `serve` it has done nothing that shows, and may be ended.
//!
//! Before `ready` the successor may say `inherit`, and gets a line with what the gateway hands over beside sockets
//! ([`super::bequest`]): on this connection alone, since private keys are in it. It asks only where the gateway announces
//! that it answers ([`crate::listen::handed_sockets::BEQUEATHS`]).

use std::io;
use std::os::unix::net;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The successor could serve.
pub(in crate::app) const READY: &str = "ready";
/// The successor shall serve.
pub(in crate::app) const SERVE: &str = "serve";
/// The successor serves.
pub(in crate::app) const SERVING: &str = "serving";

/// The successor asks for what is handed over beside sockets.
pub(in crate::app) const INHERIT: &str = "inherit";

/// The most bytes of a line that a gateway hears of its successor.
const MOST: usize = 64 * 1024;
/// The most bytes of one that a successor hears: the certificates of thousands of identities are in it.
pub(in crate::app) const MOST_BEQUEATHED: usize = 32 << 20;
/// Longest time for a line to be taken.
const WRITTEN: Duration = Duration::from_secs(1);

/// One end of the connection.
#[derive(Debug)]
pub(in crate::app) struct HandoverChannel {
    stream: BufReader<UnixStream>,
    /// The most bytes of a line that is heard.
    most: usize,
}

impl HandoverChannel {
    /// The end of a gateway, inside a runtime.
    ///
    /// # Errors
    /// When the runtime cannot register it.
    pub(in crate::app) fn to_successor(stream: net::UnixStream) -> io::Result<Self> {
        Self::new(stream, MOST)
    }

    /// The end of a successor, inside a runtime.
    ///
    /// # Errors
    /// When the runtime cannot register it.
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
    /// When the other end is closed, or does not take the line.
    pub(in crate::app) async fn say(&mut self, line: &str) -> io::Result<()> {
        let line = format!("{line}\n");
        timeout(WRITTEN, self.stream.write_all(line.as_bytes())).await?
    }

    /// Sends the line with what is handed over beside sockets. The caller bounds the time.
    ///
    /// # Errors
    /// When the other end is closed.
    pub(in crate::app) async fn send_bequest(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(line.as_bytes()).await?;
        self.stream.write_all(b"\n").await
    }

    /// The next line of the other end; nothing when it is closed, or sends what is no line. The caller bounds the time.
    pub(in crate::app) async fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        let most = u64::try_from(self.most).unwrap_or(u64::MAX);
        let mut bounded = (&mut self.stream).take(most);
        bounded.read_line(&mut line).await.ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    }
}

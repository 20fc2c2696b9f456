//! The connection between a gateway and its successor: a line each way at a time.
//!
//! The successor says `ready`, with the positions of the sockets that it has no use for; the gateway says `serve`; the
//! successor accepts connections, and says `serving`. Until `serve` it has done nothing that shows, and may be ended.

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

/// The most bytes of a line.
const MOST: u64 = 64 * 1024;
/// Longest time for a line to be taken.
const WRITTEN: Duration = Duration::from_secs(1);

/// One end of the connection.
#[derive(Debug)]
pub(in crate::app) struct Channel(BufReader<UnixStream>);

impl Channel {
    /// This end, inside a runtime.
    ///
    /// # Errors
    /// When the runtime cannot register it.
    pub(in crate::app) fn new(stream: net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self(BufReader::new(UnixStream::from_std(stream)?)))
    }

    /// Sends a line.
    ///
    /// # Errors
    /// When the other end is closed, or does not take the line.
    pub(in crate::app) async fn say(&mut self, line: &str) -> io::Result<()> {
        let line = format!("{line}\n");
        timeout(WRITTEN, self.0.write_all(line.as_bytes())).await?
    }

    /// The next line of the other end; nothing when it is closed, or sends what is no line. The caller bounds the time.
    pub(in crate::app) async fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        let mut bounded = (&mut self.0).take(MOST);
        bounded.read_line(&mut line).await.ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    }
}

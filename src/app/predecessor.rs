//! The gateway that has started this one to take its place: when this one is ready it says so, and serves on its word.

use super::handover::channel::{Channel, READY, SERVE, SERVING};
use crate::listen::handed_sockets::{HandedSockets, PREDECESSOR};
use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for the word to serve. A predecessor that says nothing hangs, and this gateway serves in its place.
const WORD_WITHIN: Duration = Duration::from_secs(10);

/// The predecessor.
#[derive(Debug)]
pub(super) struct Predecessor(Channel);

impl Predecessor {
    /// The predecessor, if there is one: a connection to it is among the sockets that were handed over.
    ///
    /// # Errors
    /// When the runtime cannot register the connection.
    pub(super) fn among(handed: &mut HandedSockets) -> io::Result<Option<Self>> {
        let stream = handed.take_first(PREDECESSOR).map(OwnedFd::from);
        let channel = stream.map(|stream| Channel::new(stream.into()));
        Ok(channel.transpose()?.map(Self))
    }

    /// Says that this gateway is ready and has no use for the sockets at these positions, and waits for the word to
    /// serve. A predecessor that has ended meanwhile, or is silent, leaves its place too.
    pub(super) async fn released(&mut self, unused: &[usize]) {
        let mut ready = READY.to_owned();
        for position in unused {
            let _ = write!(ready, " {position}");
        }
        let asked = async {
            self.0.say(&ready).await.ok()?;
            self.0.hear().await
        };
        match timeout(WORD_WITHIN, asked).await {
            Ok(Some(word)) if word == SERVE => {}
            _ => tracing::warn!("the gateway before this one is gone or silent: this one serves"),
        }
    }

    /// Says that this gateway serves.
    pub(super) async fn leave(mut self) {
        // A predecessor that is gone needs no word.
        let _ = self.0.say(SERVING).await;
    }
}

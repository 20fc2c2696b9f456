//! The gateway that has started this one to take its place: it says what it hands over beside its sockets; when this one is
//! ready it says so, and serves on its word.

use super::handover::bequest::Bequest;
use super::handover::channel::{HandoverChannel, INHERIT, READY, SERVE, SERVING};
use crate::listen::handed_sockets::{BEQUEATHS, HandedSockets, PREDECESSOR};
use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for the word to serve. A predecessor that says nothing hangs, and this gateway serves in its place.
const WORD_WITHIN: Duration = Duration::from_secs(10);

/// Longest wait for what is handed over beside sockets. Without it this gateway serves all the same.
const BEQUEST_WITHIN: Duration = Duration::from_secs(2);

/// The predecessor.
#[derive(Debug)]
pub(super) struct Predecessor {
    channel: HandoverChannel,
    /// It answers what it hands over beside sockets: gateways of earlier versions do not, and take such a question for
    /// nonsense.
    bequeaths: bool,
}

impl Predecessor {
    /// The predecessor, if there is one: a connection to it is among the sockets that were handed over.
    ///
    /// # Errors
    /// When the runtime cannot register the connection.
    pub(super) fn among(handed: &mut HandedSockets) -> io::Result<Option<Self>> {
        let stream = handed.take_first(PREDECESSOR).map(OwnedFd::from);
        let channel = stream.map(|stream| HandoverChannel::to_predecessor(stream.into()));
        let bequeaths = handed.has_word(BEQUEATHS);
        Ok(channel
            .transpose()?
            .map(|channel| Self { channel, bequeaths }))
    }

    /// What the predecessor hands over beside its sockets. Where it hands over nothing, or is silent, that is nothing.
    pub(super) async fn bequest(&mut self) -> Bequest {
        if !self.bequeaths {
            return Bequest::default();
        }
        let asked = async {
            self.channel.say(INHERIT).await.ok()?;
            self.channel.hear().await
        };
        let answer = timeout(BEQUEST_WITHIN, asked).await;
        answer
            .ok()
            .flatten()
            .map(|line| Bequest::read(&line))
            .unwrap_or_default()
    }

    /// Says that this gateway is ready and has no use for the sockets at these positions, and waits for the word to
    /// serve. A predecessor that has ended meanwhile, or is silent, leaves its place too.
    pub(super) async fn released(&mut self, unused: &[usize]) {
        let mut ready = READY.to_owned();
        for position in unused {
            let _ = write!(ready, " {position}");
        }
        let asked = async {
            self.channel.say(&ready).await.ok()?;
            // What was handed over too late comes before the word.
            while self.channel.hear().await? != SERVE {}
            Some(())
        };
        if !matches!(timeout(WORD_WITHIN, asked).await, Ok(Some(()))) {
            tracing::warn!("the gateway before this one is gone or silent: this one serves");
        }
    }

    /// Says that this gateway serves.
    pub(super) async fn leave(mut self) {
        // A predecessor that is gone needs no word.
        let _ = self.channel.say(SERVING).await;
    }
}

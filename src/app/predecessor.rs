//! The gateway that has started this one as its successor: it hands over data beside its sockets, is told that this
//! gateway is ready, and lets it serve.

use super::handover::bequest::Bequest;
use super::handover::channel::{HandoverChannel, INHERIT, READY, SERVE, SERVING};
use crate::listen::handed_sockets::{BEQUEATHS, HandedSockets, PREDECESSOR};
use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for `serve`. A silent predecessor hangs, and this gateway serves in its place.
const WORD_WITHIN: Duration = Duration::from_secs(10);

/// Longest wait for the data that is handed over beside sockets. Without the data this gateway serves nevertheless.
const BEQUEST_WITHIN: Duration = Duration::from_secs(2);

/// The predecessor.
#[derive(Debug)]
pub(super) struct Predecessor {
    channel: HandoverChannel,
    /// The predecessor answers `inherit`: gateways of earlier versions do not, and reject the line.
    bequeaths: bool,
}

impl Predecessor {
    /// The predecessor, if there is one: a connection to it is among the sockets that were handed over.
    ///
    /// # Errors
    /// If the runtime cannot register the connection.
    pub(super) fn among(handed: &mut HandedSockets) -> io::Result<Option<Self>> {
        let stream = handed.take_first(PREDECESSOR).map(OwnedFd::from);
        let channel = stream.map(|stream| HandoverChannel::to_predecessor(stream.into()));
        let bequeaths = handed.has_word(BEQUEATHS);
        Ok(channel
            .transpose()?
            .map(|channel| Self { channel, bequeaths }))
    }

    /// The data that the predecessor hands over beside its sockets. Empty if the predecessor hands over no data, or is
    /// silent.
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

    /// Reports that this gateway is ready and does not use the sockets at these positions, and waits for `serve`. A
    /// predecessor that has ended meanwhile, or is silent, is replaced too.
    pub(super) async fn released(&mut self, unused: &[usize]) {
        let mut ready = READY.to_owned();
        for position in unused {
            let _ = write!(ready, " {position}");
        }
        let asked = async {
            self.channel.say(&ready).await.ok()?;
            // Data that was handed over too late comes before `serve`.
            while self.channel.hear().await? != SERVE {}
            Some(())
        };
        if !matches!(timeout(WORD_WITHIN, asked).await, Ok(Some(()))) {
            tracing::warn!("the previous gateway is gone or silent: this gateway serves");
        }
    }

    /// Reports that this gateway serves.
    pub(super) async fn leave(mut self) {
        // A predecessor that has exited needs no report.
        let _ = self.channel.say(SERVING).await;
    }
}

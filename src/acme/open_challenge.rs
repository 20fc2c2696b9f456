//! A challenge that is open, and its bounds: the same in a store and in a folder.

use std::time::Duration;

/// Challenges that may be open at once in one place: each gateway, or process, reads them all.
pub(super) const MOST_OPEN: usize = 1000;
/// The life of a challenge if its gateway is killed. An authority checks within minutes.
pub(super) const CHALLENGE_LIFE: Duration = Duration::from_secs(600);
/// Open challenges are read this often.
pub(super) const WATCH: Duration = Duration::from_secs(1);
/// The time in which each gateway, or process, has read them.
pub(super) const NOTICE: Duration = Duration::from_secs(2);

/// The key by which a challenge is looked up.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChallengeEntry<'a> {
    Text { host: &'a str, token: &'a str },
    Handshake { host: &'a str },
}

impl<'a> ChallengeEntry<'a> {
    /// The entry for a host and a token (`http-01`), or for a host alone.
    pub(super) fn of(host: &'a str, token: Option<&'a str>) -> Self {
        match token {
            Some(token) => Self::Text { host, token },
            None => Self::Handshake { host },
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Text { host, token } => format!("text:{host}:{token}"),
            Self::Handshake { host } => format!("handshake:{host}"),
        }
    }
}

/// A challenge that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenChallenge {
    /// The name by which the challenge is looked up ([`ChallengeEntry::name`]).
    pub(super) name: String,
    /// A text, or the digest that a handshake states.
    pub(super) answer: Vec<u8>,
}

//! The look for an answer to an authority where other gateways, or other processes, have theirs ready: a question to the
//! task that knows their common store or folder, for hosts of this gateway alone, a few in a second.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// Looks in a second, whatever is asked for: strangers can ask too.
const MOST: u8 = 10;
const SECOND: Duration = Duration::from_secs(1);
/// The longest wait for an answer.
const WITHIN: Duration = Duration::from_secs(3);

/// A question for an answer that another gateway has ready.
#[derive(Debug)]
pub struct ChallengeQuestion {
    /// The host that is to be shown, in lower case.
    pub host: Box<str>,
    /// The token of a text; none of a handshake.
    pub token: Option<Box<str>>,
    /// The way of the answer: a text, or the digest that a handshake states.
    pub answer: oneshot::Sender<Option<Vec<u8>>>,
}

/// The way of questions to the task that answers them.
#[derive(Clone)]
pub struct ChallengeDesk {
    /// The way to the task.
    pub questions: mpsc::Sender<ChallengeQuestion>,
    /// Hears of a look that is not made, since as many as may be were made.
    pub refused: Arc<dyn Fn() + Send + Sync>,
}

/// The way to other gateways' answers.
pub(super) struct OtherGateways {
    hosts: HashSet<Box<str>>,
    desk: ChallengeDesk,
    looks: Mutex<Looks>,
}

/// The looks of the second that runs.
struct Looks {
    since: Instant,
    count: u8,
}

impl OtherGateways {
    pub(super) fn new(hosts: HashSet<Box<str>>, desk: ChallengeDesk, now: Instant) -> Self {
        let looks = Mutex::new(Looks {
            since: now,
            count: 0,
        });
        Self { hosts, desk, looks }
    }

    /// Are these the hosts that another gateway may have an answer for?
    pub(super) fn knows_just(&self, hosts: &HashSet<Box<str>>) -> bool {
        self.hosts == *hosts
    }

    /// May another gateway have an answer for this host?
    pub(super) fn knows(&self, host: &str) -> bool {
        self.hosts.contains(host)
    }

    /// Asks, unless as much has been asked in this second as may be.
    pub(super) async fn ask(
        &self,
        host: &str,
        token: Option<&str>,
        now: Instant,
    ) -> Option<Vec<u8>> {
        if !self.knows(host) {
            return None;
        }
        if !self.may_look(now) {
            (self.desk.refused)();
            return None;
        }
        let (answer, receiver) = oneshot::channel();
        let question = ChallengeQuestion {
            host: host.into(),
            token: token.map(Into::into),
            answer,
        };
        if self.desk.questions.try_send(question).is_err() {
            (self.desk.refused)();
            return None;
        }
        timeout(WITHIN, receiver).await.ok()?.ok()?
    }

    fn may_look(&self, now: Instant) -> bool {
        let looks = self.looks.lock();
        let mut looks = looks.unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(looks.since) >= SECOND {
            *looks = Looks {
                since: now,
                count: 0,
            };
        }
        let may = looks.count < MOST;
        looks.count += u8::from(may);
        may
    }
}

impl fmt::Debug for ChallengeDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChallengeDesk").finish_non_exhaustive()
    }
}

impl fmt::Debug for OtherGateways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtherGateways")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

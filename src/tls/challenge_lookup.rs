//! The lookup of an answer for an authority at other gateways or processes: among their answers that are known here,
//! and else by a request to the task that reads their common store or folder. A request is for a host of this gateway,
//! and counts against the client that caused it.

use super::challenge_answer::OthersAnswer;
use crate::client::Client;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The most waiting requests of one client at the same time. Strangers can cause requests too; requests of other
/// clients proceed in parallel.
const MOST_OF_CLIENT: usize = 32;
/// The most waiting requests at the same time.
const MOST: usize = 4096;
/// The longest wait for an answer.
const WITHIN: Duration = Duration::from_secs(3);

/// A request for an answer that another gateway may have posted.
#[derive(Debug)]
pub struct ChallengeQuestion {
    /// The requested host, in lower case.
    pub host: Box<str>,
    /// The token of a text; `None` for a handshake.
    pub token: Option<Box<str>>,
    /// The channel for the answer.
    pub answer: oneshot::Sender<Option<Arc<OthersAnswer>>>,
}

/// Finds the answer for a host and the token of a text, or for a host alone, among the known answers of other gateways.
pub type KnownAnswers = dyn Fn(&str, Option<&str>) -> Option<Arc<OthersAnswer>> + Send + Sync;

/// A handle for the lookup of other gateways' answers. Clones share its bounds.
#[derive(Clone)]
pub struct ChallengeDesk {
    known: Arc<KnownAnswers>,
    questions: mpsc::Sender<ChallengeQuestion>,
    refused: Arc<dyn Fn() + Send + Sync>,
    askers: Arc<Askers>,
}

impl ChallengeDesk {
    /// A handle that looks among `known` first, and the receiver of further requests. `refused` is called for each
    /// request that is refused because the most requests are waiting.
    #[must_use]
    pub fn new(
        known: Arc<KnownAnswers>,
        refused: Arc<dyn Fn() + Send + Sync>,
    ) -> (Self, mpsc::Receiver<ChallengeQuestion>) {
        let (questions, asked) = mpsc::channel(MOST);
        let desk = Self {
            known,
            questions,
            refused,
            askers: Arc::default(),
        };
        (desk, asked)
    }
}

/// The number of waiting requests of each client.
#[derive(Debug, Default)]
struct Askers(Mutex<WaitingQuestions>);

#[derive(Debug, Default)]
struct WaitingQuestions {
    all: usize,
    of: HashMap<Client, usize>,
}

/// A place among the waiting requests, until dropped.
struct WaitingPlace<'a> {
    askers: &'a Askers,
    client: Client,
}

impl Askers {
    /// A place for a request of this client; `None` if the most requests are waiting.
    fn enter(&self, client: Client) -> Option<WaitingPlace<'_>> {
        let mut waiting = self.waiting();
        let of_client = waiting.of.get(&client).copied().unwrap_or_default();
        if of_client >= MOST_OF_CLIENT || waiting.all >= MOST {
            return None;
        }
        waiting.all += 1;
        waiting.of.insert(client, of_client + 1);
        Some(WaitingPlace {
            askers: self,
            client,
        })
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingQuestions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        let mut waiting = self.askers.waiting();
        waiting.all -= 1;
        if let Some(of_client) = waiting.of.get_mut(&self.client) {
            *of_client -= 1;
            if *of_client == 0 {
                waiting.of.remove(&self.client);
            }
        }
    }
}

/// The hosts for which other gateways may have answers, and the handle for the lookup.
pub(super) struct OtherGateways {
    hosts: HashSet<Box<str>>,
    desk: ChallengeDesk,
}

impl OtherGateways {
    pub(super) fn new(hosts: HashSet<Box<str>>, desk: ChallengeDesk) -> Self {
        Self { hosts, desk }
    }

    /// Are these exactly the hosts for which another gateway may have an answer?
    pub(super) fn knows_just(&self, hosts: &HashSet<Box<str>>) -> bool {
        self.hosts == *hosts
    }

    /// May another gateway have an answer for this host?
    pub(super) fn knows(&self, host: &str) -> bool {
        self.hosts.contains(host)
    }

    /// The known answer, or else the answer to a request of `asker`, unless the most requests are waiting.
    pub(super) async fn ask(
        &self,
        host: &str,
        token: Option<&str>,
        asker: Client,
    ) -> Option<Arc<OthersAnswer>> {
        if !self.knows(host) {
            return None;
        }
        if let Some(known) = (self.desk.known)(host, token) {
            return Some(known);
        }
        let Some(_place) = self.desk.askers.enter(asker) else {
            (self.desk.refused)();
            return None;
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn client(number: u32) -> Client {
        Client::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn a_client_that_asks_without_end_leaves_room_for_others() {
        let askers = Askers::default();
        let entered: Vec<_> = (0..100).filter_map(|_| askers.enter(client(1))).collect();
        assert_eq!(entered.len(), MOST_OF_CLIENT);
        let other = askers.enter(client(2));
        assert!(other.is_some());
        drop(entered);
        assert!(askers.enter(client(1)).is_some());
        drop(other);
        assert!(
            askers.waiting().of.is_empty(),
            "what has ended is forgotten"
        );
    }

    #[test]
    fn there_is_a_bound_for_all_together() {
        let askers = Askers::default();
        let all = 0..u32::try_from(MOST).unwrap() + 10;
        let places: Vec<_> = all
            .filter_map(|number| askers.enter(client(number)))
            .collect();
        assert_eq!(places.len(), MOST);
        drop(places);
        assert_eq!(askers.waiting().all, 0);
    }
}

//! Answers for workers that an authority has asked about an order of another gateway: they are looked up in the store.

use super::authority::{OrderedIdentity, Storage};
use super::sealing::SealingKey;
use super::store_vault::{ChallengeEntry, SharedStorage};
use crate::telemetry::metrics::{Lookup, Metrics};
use crate::tls::ChallengeQuestion;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Questions that wait at most.
const WAITING: usize = 16;

/// The way of questions from workers to [`serve`].
pub(super) fn channel() -> (
    mpsc::Sender<ChallengeQuestion>,
    mpsc::Receiver<ChallengeQuestion>,
) {
    mpsc::channel(WAITING)
}

/// The hosts whose challenges may be in the store.
pub(super) fn hosts_in_store(wanted: &[OrderedIdentity]) -> HashSet<Box<str>> {
    let shared = wanted
        .iter()
        .filter(|one| matches!(one.authority.storage, Storage::Store(_)));
    let hosts = shared.flat_map(|one| &one.hosts);
    hosts.map(|host| host.as_str().into()).collect()
}

/// Answers questions until none can come. Each has the deadline of the store's commands, and their number is bounded
/// where they are asked.
pub(super) async fn serve(
    mut questions: mpsc::Receiver<ChallengeQuestion>,
    wanted: watch::Receiver<Arc<[OrderedIdentity]>>,
    shared: SharedStorage,
    metrics: Arc<Metrics>,
) {
    while let Some(question) = questions.recv().await {
        let keys = keys_of(&wanted.borrow(), &question.host);
        let (shared, metrics) = (shared.clone(), Arc::clone(&metrics));
        tokio::spawn(async move {
            let (answer, result) = look_up(&question, &keys, &shared).await;
            metrics.acme_looked_up(result);
            // A worker whose authority has left does not wait.
            let _ = question.answer.send(answer);
        });
    }
}

/// The secrets of the authorities that a host is ordered from.
fn keys_of(wanted: &[OrderedIdentity], host: &str) -> Vec<SealingKey> {
    let mut keys = Vec::new();
    for identity in wanted {
        if let Storage::Store(key) = &identity.authority.storage
            && identity.hosts.iter().any(|own| own == host)
            && !keys.contains(key)
        {
            keys.push(key.clone());
        }
    }
    keys
}

async fn look_up(
    question: &ChallengeQuestion,
    keys: &[SealingKey],
    shared: &SharedStorage,
) -> (Option<Vec<u8>>, Lookup) {
    let host = &*question.host;
    let entry = match &question.token {
        Some(token) => ChallengeEntry::Text { host, token },
        None => ChallengeEntry::Handshake { host },
    };
    let mut result = Lookup::Missing;
    for key in keys {
        match shared.sealed_with(key).look_up(entry).await {
            Ok(Some(answer)) => {
                tracing::info!("{host}: an authority looks for a challenge of another gateway");
                return (Some(answer), Lookup::Found);
            }
            Ok(None) => {}
            Err(failure) => {
                tracing::warn!("{host}: a challenge is not answered: {failure}");
                result = Lookup::Failed;
            }
        }
    }
    (None, result)
}

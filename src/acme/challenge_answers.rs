//! Answers for workers that an authority has asked about an order of another gateway, or of another process on the same
//! folder: they are looked up where the order has put them.

use super::authority::{OrderedIdentity, Storage};
use super::store_vault::{ChallengeEntry, SharedStorage};
use super::vault::Vault;
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::{Lookup, Metrics};
use crate::tls::ChallengeQuestion;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Questions that wait at most.
const WAITING: usize = 16;

/// Logs that a look has failed. Strangers can have gateways look.
static UNANSWERED: Throttle = Throttle::every(Duration::from_secs(10));

/// The way of questions from workers to [`serve`].
pub(super) fn channel() -> (
    mpsc::Sender<ChallengeQuestion>,
    mpsc::Receiver<ChallengeQuestion>,
) {
    mpsc::channel(WAITING)
}

/// The hosts whose challenges another gateway, or another process, may have ready: those of the store, and of the folders
/// that are not this process's to order into.
pub(super) fn hosts_elsewhere(
    wanted: &[OrderedIdentity],
    is_ours: impl Fn(&Path) -> bool,
) -> HashSet<Box<str>> {
    let others = wanted.iter().filter(|one| match &one.authority.storage {
        Storage::Store(_) => true,
        Storage::Folder(path) => !is_ours(path),
    });
    let hosts = others.flat_map(|one| &one.hosts);
    hosts.map(|host| host.as_str().into()).collect()
}

/// Answers questions until none can come. Each has a deadline where it is asked, and their number is bounded there.
pub(super) async fn serve(
    mut questions: mpsc::Receiver<ChallengeQuestion>,
    wanted: watch::Receiver<Arc<[OrderedIdentity]>>,
    shared: Option<SharedStorage>,
    metrics: Arc<Metrics>,
) {
    while let Some(question) = questions.recv().await {
        let vaults = vaults_of(&wanted.borrow(), &question.host, shared.as_ref());
        let metrics = Arc::clone(&metrics);
        tokio::spawn(async move {
            let (answer, result) = look_up(&question, &vaults).await;
            metrics.acme_looked_up(result);
            // A worker whose authority has left does not wait.
            let _ = question.answer.send(answer);
        });
    }
}

/// The places that keep what is ordered for a host.
fn vaults_of(wanted: &[OrderedIdentity], host: &str, shared: Option<&SharedStorage>) -> Vec<Vault> {
    let mut storages: Vec<&Storage> = Vec::new();
    let mut vaults = Vec::new();
    for identity in wanted {
        let authority = &identity.authority;
        if identity.hosts.iter().any(|own| own == host) && !storages.contains(&&authority.storage) {
            storages.push(&authority.storage);
            vaults.extend(Vault::of(authority, shared).ok());
        }
    }
    vaults
}

async fn look_up(question: &ChallengeQuestion, vaults: &[Vault]) -> (Option<Vec<u8>>, Lookup) {
    let host = &*question.host;
    let entry = match &question.token {
        Some(token) => ChallengeEntry::Text { host, token },
        None => ChallengeEntry::Handshake { host },
    };
    let mut result = Lookup::Missing;
    for vault in vaults {
        match vault.look_up(entry).await {
            Ok(Some(answer)) => {
                tracing::info!("{host}: an authority looks for a challenge of another gateway");
                return (Some(answer), Lookup::Found);
            }
            Ok(None) => {}
            Err(failure) => {
                if let Some(more) = UNANSWERED.pass() {
                    tracing::warn!("{host}: a challenge is not answered: {failure}{more}");
                }
                result = Lookup::Failed;
            }
        }
    }
    (None, result)
}

//! The part of the store that keeps accounts, certificates, failures and challenges for many gateways, each sealed.

use super::failure::OrderFailure;
use super::folder::Part;
use super::open_challenge::{CHALLENGE_LIFE, ChallengeEntry, OpenChallenge};
use super::sealing::{Opened, SealFault, SealingKey};
use super::store_lock::{Pace, StoreLock};
use crate::clock;
use crate::store::StoreError;
use crate::store::redis::SharedKeys;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The life of the record of failures. It is longer than every wait.
const ATTEMPTS_LIFE: Duration = Duration::from_secs(30 * 86_400);
/// The life of a certificate's entry beyond the longest life of a certificate.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(400 * 86_400);
/// Tries to replace an entry that other gateways replace too.
const TRIES: u8 = 3;

/// The store of several gateways, without the secret that one authority's entries are sealed with.
#[derive(Debug, Clone)]
pub struct SharedStorage {
    pub(super) keys: SharedKeys,
    /// Locked by the order that changes the list of open challenges.
    pub(super) changing: Arc<Mutex<()>>,
    /// The first part of all keys: `PREFIX:acme:`.
    prefix: Arc<str>,
    pub(super) pace: Pace,
}

impl SharedStorage {
    /// The part of a store for keys that begin with `prefix`, which all its gateways share.
    #[must_use]
    pub fn new(keys: SharedKeys, prefix: &str) -> Self {
        Self {
            keys,
            changing: Arc::default(),
            prefix: format!("{prefix}:acme:").into(),
            pace: Pace::default(),
        }
    }

    /// The same with other times.
    #[must_use]
    pub fn at_pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// The entries that are sealed with this secret.
    pub(super) fn sealed_with(&self, key: &SealingKey) -> StoreVault {
        StoreVault {
            shared: self.clone(),
            key: key.clone(),
        }
    }
}

/// The entries of the store that one secret seals.
#[derive(Debug, Clone)]
pub(super) struct StoreVault {
    pub(super) shared: SharedStorage,
    pub(super) key: SealingKey,
}

fn entry(part: Part, name: &str) -> String {
    match part {
        Part::Accounts => format!("account:{name}"),
        Part::Certificates => format!("certificate:{name}"),
        Part::Attempts => format!("attempts:{name}"),
    }
}

impl StoreVault {
    /// Where it is, for messages.
    pub(super) fn place(&self) -> String {
        format!("{}, below `{}`", self.shared.keys, self.shared.prefix)
    }

    /// A stored text; `None` if there is no entry.
    pub(super) async fn read(
        &self,
        part: Part,
        name: &str,
    ) -> Result<Option<Opened>, OrderFailure> {
        let opened = self.raw(&self.full(&entry(part, name))).await?;
        Ok(opened.map(|(opened, _)| opened))
    }

    /// Stores a text as the newest version of its entry, above `floor`. Returns the version. An entry that another
    /// secret has sealed is not replaced.
    pub(super) async fn keep(
        &self,
        part: Part,
        name: &str,
        text: &str,
        floor: u64,
    ) -> Result<u64, OrderFailure> {
        let key = self.full(&entry(part, name));
        let life = match part {
            Part::Accounts => None,
            Part::Certificates => Some(CERTIFICATE_LIFE),
            Part::Attempts => Some(ATTEMPTS_LIFE),
        };
        for _ in 0..TRIES {
            let before = self.raw(&key).await?;
            let (there, raw) = match &before {
                Some((opened, raw)) => (opened.version, raw.as_slice()),
                None => (0, &[][..]),
            };
            // The clock keeps versions rising if the store has lost an entry.
            let next = there.max(floor).saturating_add(1);
            let version = next.max(clock::wall().micros());
            let sealed = self.seal(&key, version, text.as_bytes())?;
            let swapped = self.shared.keys.swap(&key, raw, &sealed, life).await;
            if swapped.map_err(|error| self.failed(error))? {
                return Ok(version);
            }
        }
        Err(OrderFailure::Contended { entry: key })
    }

    /// Deletes a text, if the entry still has this text.
    pub(super) async fn forget(
        &self,
        part: Part,
        name: &str,
        text: &str,
    ) -> Result<(), OrderFailure> {
        let key = self.full(&entry(part, name));
        if let Some((opened, raw)) = self.raw(&key).await?
            && opened.text == text.as_bytes()
        {
            let released = self.shared.keys.release(&key, &raw).await;
            released.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// Posts an answer to a challenge for every gateway, for ten minutes. The call waits while the store is
    /// unavailable.
    pub(super) async fn post(&self, challenge: &OpenChallenge) -> Result<(), OrderFailure> {
        let key = self.full(&challenge.name);
        let sealed = self.seal(&key, 0, &challenge.answer)?;
        let patience = self.shared.pace.patience();
        let posted = loop {
            match self.shared.keys.put(&key, &sealed, CHALLENGE_LIFE).await {
                Err(error) if patience.wait(&error).await => {}
                done => break done,
            }
        };
        posted.map_err(|error| self.failed(error))
    }

    /// Withdraws an answer. The answer expires if that fails.
    pub(super) async fn withdraw(&self, challenge: &str) {
        let key = self.full(challenge);
        if let Err(error) = self.shared.keys.remove(&key).await {
            tracing::debug!("{key}: {error}");
        }
    }

    /// The answer to a challenge that any gateway has posted.
    pub(super) async fn look_up(
        &self,
        challenge: ChallengeEntry<'_>,
    ) -> Result<Option<Vec<u8>>, OrderFailure> {
        let found = self.raw(&self.full(&challenge.name())).await?;
        Ok(found.map(|(opened, _)| opened.text))
    }

    /// Takes the lock of this name. `None` if another gateway has the lock.
    pub(super) async fn lock(&self, name: &str) -> Result<Option<StoreLock>, OrderFailure> {
        let key = self.full(&format!("lock:{name}"));
        let taken = StoreLock::take(&self.shared.keys, key, self.shared.pace).await;
        taken.map_err(|error| self.failed(error))
    }

    /// Has any gateway the lock of this name?
    pub(super) async fn is_locked(&self, name: &str) -> Result<bool, OrderFailure> {
        let key = self.full(&format!("lock:{name}"));
        let there = self.shared.keys.get(&key).await;
        Ok(there.map_err(|error| self.failed(error))?.is_some())
    }

    async fn raw(&self, key: &str) -> Result<Option<(Opened, Vec<u8>)>, OrderFailure> {
        let read = self.shared.keys.get(key).await;
        let Some(raw) = read.map_err(|error| self.failed(error))? else {
            return Ok(None);
        };
        match self.key.open(key, &raw) {
            Ok(opened) => Ok(Some((opened, raw))),
            Err(SealFault::OtherSecret) => Err(OrderFailure::OtherSecret { entry: key.into() }),
            Err(SealFault::Damaged) => Err(OrderFailure::Damaged { entry: key.into() }),
        }
    }

    pub(super) fn seal(
        &self,
        key: &str,
        version: u64,
        text: &[u8],
    ) -> Result<Vec<u8>, OrderFailure> {
        let sealed = self.key.seal(key, version, text);
        sealed.ok_or_else(|| OrderFailure::Crypto("it cannot be sealed".into()))
    }

    pub(super) fn full(&self, name: &str) -> String {
        format!("{}{name}", self.shared.prefix)
    }

    pub(super) fn failed(&self, source: StoreError) -> OrderFailure {
        OrderFailure::Store {
            place: self.shared.keys.to_string(),
            source,
        }
    }
}

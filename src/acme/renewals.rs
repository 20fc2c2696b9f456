//! The task that orders certificates, renews them before they end, and tries again after a failure.

use super::account::{OpenAccount, account_name};
use super::attempts::Attempts;
use super::authority::{Authority, OrderedIdentity};
use super::failure::Failure;
use super::folder::{FolderLock, Part};
use super::issuance::{ORDER_WITHIN, Purchase};
use super::issued::{Bundle, IssuedCertificates};
use super::schedule::{self, Seconds, seconds, share, words};
use super::suggestions::Suggestions;
use super::vault::Vault;
use crate::clock::Timestamp;
use crate::telemetry::metrics::{Metrics, OrderResult};
use crate::tls::AuthorityChallenges;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::{self, JoinSet};
use tokio::time::{sleep, timeout};

/// The wall clock: certificates end by it.
pub type WallClock = fn() -> Timestamp;

/// Certificates are looked at this often.
const LOOK: Duration = Duration::from_secs(60);
/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(500);
/// A folder that another process orders into is read this often.
const READ: Duration = Duration::from_secs(30);
/// Orders under way at once.
const AT_ONCE: usize = 4;
/// The time in which orders under way may come to their end after nothing can be wanted any more.
const LAST_ORDERS: Duration = Duration::from_secs(2);
/// Orders that are begun anew when nonces are refused (RFC 8555, section 6.5).
const TRIES: usize = 5;

/// The orders of a gateway.
#[derive(Debug)]
pub struct Renewals {
    orders: Arc<Orders>,
    wanted: watch::Receiver<Arc<[OrderedIdentity]>>,
    folders: HashMap<PathBuf, Right>,
    under_way: JoinSet<()>,
    /// The identities that are ordered just now.
    ordering: HashMap<task::Id, Arc<str>>,
}

/// The right to order into a folder.
#[derive(Debug)]
enum Right {
    Held(#[expect(dead_code, reason = "held for its lock")] FolderLock),
    /// Another process has it, or the folder cannot be used. It has been logged.
    Missing,
}

/// The parts that every order needs.
struct Orders {
    issued: IssuedCertificates,
    challenges: AuthorityChallenges,
    metrics: Arc<Metrics>,
    wall: WallClock,
    /// Closed when nothing can be wanted any more.
    wanted: watch::Receiver<Arc<[OrderedIdentity]>>,
    /// Spreads the renewals of several gateways.
    seed: u64,
    /// Open accounts, by folder and name. It is locked while one is opened, so that no two are made.
    accounts: Mutex<HashMap<(PathBuf, String), OpenAccount>>,
    suggestions: Suggestions,
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Orders")
            .field("issued", &self.issued)
            .finish_non_exhaustive()
    }
}

/// An identity that was looked at.
enum Look {
    /// Its certificate is ordered now.
    Due(Attempts),
    /// It is looked at again after so many seconds.
    Later(Seconds),
}

impl Renewals {
    /// The orders of identities as `wanted` tells them from now on. What comes is put into `issued`.
    #[must_use]
    pub fn new(
        wanted: watch::Receiver<Arc<[OrderedIdentity]>>,
        issued: IssuedCertificates,
        challenges: AuthorityChallenges,
        metrics: Arc<Metrics>,
        wall: WallClock,
    ) -> Self {
        let orders = Orders {
            issued,
            challenges,
            metrics,
            wall,
            wanted: wanted.clone(),
            seed: fastrand::u64(..),
            accounts: Mutex::default(),
            suggestions: Suggestions::default(),
        };
        Self {
            orders: Arc::new(orders),
            wanted,
            folders: HashMap::new(),
            under_way: JoinSet::new(),
            ordering: HashMap::new(),
        }
    }

    /// Orders and renews until it is dropped, or until nothing can be wanted any more. Orders under way then end within a
    /// moment, or are given up.
    pub async fn run(mut self) {
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let next = self.round(&wanted).await;
            tokio::select! {
                changed = timeout(next, self.wanted.changed()) => {
                    if matches!(changed, Ok(Err(_))) {
                        break;
                    }
                }
                Some(ended) = self.under_way.join_next_with_id() => {
                    let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                    self.ordering.remove(&id);
                }
            }
        }
        while self.under_way.join_next().await.is_some() {}
    }

    /// Looks at every identity that is not being ordered, and begins to order what is due. Returns the time until the next
    /// look, which comes earlier when an order ends.
    async fn round(&mut self, wanted: &Arc<[OrderedIdentity]>) -> Duration {
        self.folders
            .retain(|folder, _| wanted.iter().any(|one| one.authority.storage == *folder));
        let mut next = LOOK;
        for identity in wanted.iter() {
            if self.is_ordering(&identity.name) {
                continue;
            }
            let mine = self.may_order(&identity.authority).await;
            let orders = &self.orders;
            if !mine {
                orders.read_again(identity).await;
                next = next.min(READ);
                continue;
            }
            match orders.look(identity).await {
                Ok(Look::Due(attempts)) => self.begin(identity.clone(), attempts),
                Ok(Look::Later(after)) => {
                    let after = Duration::from_secs(after.max(0).unsigned_abs());
                    next = next.min(after.max(SHORTEST));
                }
                Err(failure) => tracing::error!("tls.{}: {failure}", identity.name),
            }
        }
        next
    }

    fn is_ordering(&self, name: &Arc<str>) -> bool {
        self.ordering.values().any(|ordered| ordered == name)
    }

    /// Begins an order, unless as many as may be are under way. The end of one of them is the time for the next.
    fn begin(&mut self, identity: OrderedIdentity, attempts: Attempts) {
        if self.under_way.len() >= AT_ONCE {
            return;
        }
        let (orders, name) = (Arc::clone(&self.orders), Arc::clone(&identity.name));
        let order = async move { orders.order(&identity, attempts).await };
        let begun = self.under_way.spawn(order);
        self.ordering.insert(begun.id(), name);
    }

    /// Has this process the right to order into the authority's folder?
    async fn may_order(&mut self, authority: &Authority) -> bool {
        let folder = &authority.storage;
        if let Some(Right::Held(_)) = self.folders.get(folder) {
            return true;
        }
        let vault = Vault::at(folder);
        let is_new = !self.folders.contains_key(folder);
        let right = match vault.lock().await {
            Ok(Some(lock)) => {
                if !is_new {
                    let place = vault.place();
                    tracing::info!(
                        "acme.{}: this process orders into {place} from now on",
                        authority.name
                    );
                }
                Right::Held(lock)
            }
            Ok(None) => {
                if is_new {
                    tracing::info!(
                        "acme.{}: another process orders into {}; its certificates are served as they come",
                        authority.name,
                        vault.place()
                    );
                }
                Right::Missing
            }
            Err(failure) => {
                if is_new {
                    tracing::error!("acme.{}: {failure}", authority.name);
                }
                Right::Missing
            }
        };
        let held = matches!(right, Right::Held(_));
        self.folders.insert(folder.clone(), right);
        held
    }
}

impl Orders {
    /// Takes the certificate that another process has put into the folder.
    async fn read_again(&self, identity: &OrderedIdentity) {
        let vault = Vault::at(&identity.authority.storage);
        let kept = vault.read(Part::Certificates, &identity.name).await;
        if let Some(bundle) = kept.ok().flatten().and_then(|pem| Bundle::read(&pem))
            && bundle.covers(&identity.hosts)
        {
            self.issued.put_newer(&identity.name, bundle);
        }
    }

    /// Is the certificate of an identity to be ordered?
    async fn look(&self, identity: &OrderedIdentity) -> Result<Look, Failure> {
        let vault = Vault::at(&identity.authority.storage);
        self.read_again(identity).await;
        let now = seconds((self.wall)());
        let kept = vault.read(Part::Attempts, &identity.name).await?;
        let attempts = kept.map(|text| Attempts::read(&text)).unwrap_or_default();
        let is_same_order = attempts.is_of(&order_text(identity));
        let mut attempts = attempts.of(&order_text(identity));
        attempts.take_over();
        let held = self.issued.of(&identity.name);
        let held = held.filter(|bundle| bundle.covers(&identity.hosts) && is_same_order);
        let due = match held {
            Some(bundle) => {
                let renewal = self.renewal(identity, &bundle, &vault, now).await;
                renewal.max(attempts.rest(now))
            }
            None => now,
        };
        let due = due.max(attempts.next(now));
        if due <= now {
            return Ok(Look::Due(attempts));
        }
        Ok(Look::Later(due - now))
    }

    /// The time of a certificate's renewal.
    async fn renewal(
        &self,
        identity: &OrderedIdentity,
        bundle: &Bundle,
        vault: &Vault,
        now: Seconds,
    ) -> Seconds {
        let facts = bundle.facts();
        let own = share(&identity.name, self.seed);
        let by_life = schedule::renewal(facts.not_before, facts.not_after, own);
        if self.suggestions.are_due(&identity.name, bundle, now)
            && let Ok(account) = self.account(&identity.authority, vault).await
        {
            let asked = self.suggestions.ask(&account, identity, bundle, now);
            asked.await;
        }
        let suggested = self.suggestions.of(&identity.name, bundle, own);
        suggested.unwrap_or(by_life)
    }

    /// The account with an authority, opened once.
    async fn account(&self, authority: &Authority, vault: &Vault) -> Result<OpenAccount, Failure> {
        let key = (authority.storage.clone(), account_name(authority));
        let mut accounts = self.accounts.lock().await;
        if let Some(open) = accounts.get(&key) {
            return Ok(open.clone());
        }
        let open = OpenAccount::open(authority, vault).await?;
        accounts.insert(key, open.clone());
        Ok(open)
    }

    /// Forgets an account that the authority does not know any more.
    async fn forget_account(&self, authority: &Authority, vault: &Vault) -> Result<(), Failure> {
        let key = (authority.storage.clone(), account_name(authority));
        self.accounts.lock().await.remove(&key);
        OpenAccount::forget(authority, vault).await
    }

    /// Orders the certificate of one identity. The outcome is kept, counted and logged.
    async fn order(&self, identity: &OrderedIdentity, mut attempts: Attempts) {
        let vault = Vault::at(&identity.authority.storage);
        let now = || seconds((self.wall)());
        let before = attempts.clone();
        attempts.begins(now());
        let kept = self.keep_attempts(identity, &attempts, &vault).await;
        let outcome = match kept {
            Ok(()) => tokio::select! {
                outcome = self.obtain(identity, &attempts, &vault) => outcome,
                () = self.last_orders() => Err(Failure::GivenUp),
            },
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(bundle) => {
                let until = bundle.facts().not_after;
                self.metrics.ordered(&identity.name, OrderResult::Obtained);
                tracing::info!(
                    "tls.{}: a certificate for {} has come, good for {}",
                    identity.name,
                    identity.hosts.join(", "),
                    words((until - now()).max(0).unsigned_abs())
                );
                attempts.succeeded(now(), until - bundle.facts().not_before);
                self.issued.put(&identity.name, bundle);
            }
            Err(failure) if self.is_over() => {
                // The authority may not have found the answer of a gateway that stops. Its successor orders anew.
                tracing::info!("tls.{}: the order is given up: {failure}", identity.name);
                attempts = before;
            }
            Err(failure) => {
                let pause = self.pause(&identity.authority).await;
                attempts.failed(now(), pause);
                self.metrics.ordered(&identity.name, result_of(&failure));
                let wait = attempts.next(now()) - now();
                tracing::error!(
                    "tls.{}: no certificate: {failure}; tried again in {}",
                    identity.name,
                    words(wait.max(0).unsigned_abs())
                );
            }
        }
        if let Err(failure) = self.keep_attempts(identity, &attempts, &vault).await {
            tracing::error!("tls.{}: {failure}", identity.name);
            // Without a memory of failures nothing bounds the orders but this.
            sleep(LOOK).await;
        }
    }

    /// Can nothing be wanted any more?
    fn is_over(&self) -> bool {
        self.wanted.has_changed().is_err()
    }

    /// Resolves when orders under way are given up.
    async fn last_orders(&self) {
        let mut wanted = self.wanted.clone();
        while wanted.changed().await.is_ok() {}
        sleep(LAST_ORDERS).await;
    }

    async fn keep_attempts(
        &self,
        identity: &OrderedIdentity,
        attempts: &Attempts,
        vault: &Vault,
    ) -> Result<(), Failure> {
        let text = attempts.text();
        vault.keep(Part::Attempts, &identity.name, &text).await
    }

    /// The pause that the authority asked for in its last answer, in seconds.
    async fn pause(&self, authority: &Authority) -> Option<Seconds> {
        let key = (authority.storage.clone(), account_name(authority));
        let accounts = self.accounts.lock().await;
        accounts.get(&key)?.client.take_pause()
    }

    /// Orders, and keeps what comes.
    async fn obtain(
        &self,
        identity: &OrderedIdentity,
        attempts: &Attempts,
        vault: &Vault,
    ) -> Result<Bundle, Failure> {
        let mut is_account_new = false;
        let mut tries = 0;
        loop {
            tries += 1;
            let made = timeout(ORDER_WITHIN, self.purchase(identity, attempts, vault)).await;
            match made.unwrap_or(Err(Failure::TooLong(ORDER_WITHIN))) {
                Ok(bundle) => {
                    let kept = vault.keep(Part::Certificates, &identity.name, bundle.pem());
                    if let Err(failure) = kept.await {
                        // It is served all the same, and lost with the process.
                        tracing::error!("tls.{}: {failure}", identity.name);
                    }
                    return Ok(bundle);
                }
                Err(failure) if failure.is("badNonce") && tries < TRIES => {}
                Err(failure) if failure.is("accountDoesNotExist") && !is_account_new => {
                    is_account_new = true;
                    self.forget_account(&identity.authority, vault).await?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn purchase(
        &self,
        identity: &OrderedIdentity,
        attempts: &Attempts,
        vault: &Vault,
    ) -> Result<Bundle, Failure> {
        let open = self.account(&identity.authority, vault).await?;
        let before = self.issued.of(&identity.name);
        let leaf = before.as_ref().and_then(Bundle::leaf);
        let is_known = before.as_ref().is_some_and(|bundle| {
            bundle.covers(&identity.hosts) && self.suggestions.are_given(&identity.name, bundle)
        });
        let replaces = leaf.as_ref().filter(|_| is_known);
        let purchase = Purchase {
            identity,
            replaces: replaces.and_then(|leaf| leaf.try_into().ok()),
            failures: attempts.failures(),
            challenges: &self.challenges,
        };
        purchase.make(&open.account).await
    }
}

/// What is ordered, in words that change when the order does.
pub(super) fn order_text(identity: &OrderedIdentity) -> String {
    let authority = &identity.authority;
    let mut hosts: Vec<&str> = identity.hosts.iter().map(String::as_str).collect();
    hosts.sort_unstable();
    let profile = authority.profile.as_deref().unwrap_or_default();
    format!("{} {profile} {}", authority.directory, hosts.join(" "))
}

fn result_of(failure: &Failure) -> OrderResult {
    match failure {
        Failure::Refused(_) | Failure::NoChallenge { .. } | Failure::Useless(_) => {
            OrderResult::Refused
        }
        Failure::NotOurs { .. } => OrderResult::NotOurs,
        Failure::Unreachable(_) | Failure::TooLong(_) => OrderResult::Unreachable,
        Failure::Storage { .. } | Failure::Crypto(_) | Failure::GivenUp => OrderResult::Failed,
    }
}

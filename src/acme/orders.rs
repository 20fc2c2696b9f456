//! One identity's certificate: whether it is due, and its order from the first request to the stored result.

use super::account::account_name;
use super::accounts::OpenAccounts;
use super::attempts::Attempts;
use super::authority::{Authority, OrderedIdentity};
use super::failure::{BAD_NONCE, OrderFailure};
use super::folder::Part;
use super::held_versions::HeldVersions;
use super::hurry::Hurry;
use super::issuance::{ORDER_WITHIN, Purchase};
use super::issued::{Bundle, IssuedCertificates};
use super::schedule::{self, Seconds, WallClock, seconds, share, words};
use super::store_vault::SharedStorage;
use super::suggestions::Suggestions;
use super::vault::{OrderRight, Vault};
use crate::telemetry::metrics::{Metrics, OrderResult};
use crate::telemetry::shown_url;
use crate::tls::AuthorityChallenges;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The pause of all orders when failures cannot be stored.
const UNKEPT: Duration = Duration::from_secs(60);
/// The time for unfinished orders to end after no certificate can be wanted any more, unless another is set.
const LAST_ORDERS: Duration = Duration::from_secs(2);
/// The longest time for which the log line about a failure waits for the release of the order's right.
const RELEASE: Duration = Duration::from_secs(1);
/// Orders that are begun anew when nonces are rejected (RFC 8555, section 6.5).
const TRIES: usize = 5;

/// The parts that every order needs.
pub(super) struct Orders {
    pub(super) issued: IssuedCertificates,
    pub(super) challenges: AuthorityChallenges,
    pub(super) metrics: Arc<Metrics>,
    pub(super) wall: WallClock,
    /// Closed when no certificate can be wanted any more.
    pub(super) wanted: watch::Receiver<Arc<[OrderedIdentity]>>,
    /// Spreads the renewals of several gateways.
    pub(super) seed: u64,
    pub(super) accounts: OpenAccounts,
    pub(super) suggestions: Suggestions,
    /// The store that several gateways share, where there is one.
    pub(super) shared: Option<SharedStorage>,
    pub(super) versions: HeldVersions,
    /// The time for unfinished orders to end after no certificate can be wanted any more.
    pub(super) last_orders: Arc<OnceLock<Duration>>,
    /// Orders that an operator asked to repeat at once.
    pub(super) hurry: Hurry,
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Orders")
            .field("issued", &self.issued)
            .finish_non_exhaustive()
    }
}

/// The result of looking at an identity.
pub(super) enum Look {
    /// Its certificate is ordered now.
    Due(Box<Attempts>, OrderRight),
    /// The identity is looked at again after this number of seconds.
    Later(Seconds),
}

impl Orders {
    /// The place that an authority's table names.
    pub(super) fn vault(&self, authority: &Authority) -> Result<Vault, OrderFailure> {
        Vault::of(authority, self.shared.as_ref())
    }

    /// Takes the certificate from the folder if it is newer than the one in memory. Returns the certificate if taken.
    pub(super) async fn reread(&self, identity: &OrderedIdentity, vault: &Vault) -> Option<Bundle> {
        let kept = vault.read(Part::Certificates, &identity.name).await;
        let bundle = kept.ok().flatten().and_then(|pem| Bundle::read(&pem))?;
        let is_taken =
            bundle.covers(&identity.hosts) && self.issued.put_newer(&identity.name, bundle.clone());
        is_taken.then_some(bundle)
    }

    /// Notes that a certificate was taken which another gateway or process has ordered.
    pub(super) fn note_taken(&self, identity: &OrderedIdentity, bundle: &Bundle, from: &str) {
        let left = bundle.facts().not_after - seconds((self.wall)());
        tracing::info!(
            "tls.{}: a certificate for {} was taken from {from}, good for {}",
            identity.name,
            identity.hosts.join(", "),
            words(left.max(0).unsigned_abs())
        );
        self.metrics.acme_taken(&identity.name);
    }

    /// Is the certificate of an identity, which is kept in a folder, to be ordered?
    pub(super) async fn look(
        &self,
        identity: &OrderedIdentity,
        vault: &Vault,
    ) -> Result<Look, OrderFailure> {
        self.reread(identity, vault).await;
        let now = seconds((self.wall)());
        let kept = vault.read(Part::Attempts, &identity.name).await?;
        let attempts = kept.map(|text| Attempts::read(&text)).unwrap_or_default();
        let is_same_order = attempts.is_of(&order_text(identity));
        let mut attempts = as_known_of(identity, attempts);
        attempts.take_over();
        let held = self.issued.of(&identity.name);
        let held = held.filter(|bundle| bundle.covers(&identity.hosts) && is_same_order);
        let due = self.due(identity, held, &attempts, vault, now).await;
        if due <= now {
            return Ok(Look::Due(Box::new(attempts), OrderRight::into_folder()));
        }
        Ok(Look::Later(due - now))
    }

    /// The time from which the certificate of an identity is ordered; `held` is its current certificate.
    pub(super) async fn due(
        &self,
        identity: &OrderedIdentity,
        held: Option<Bundle>,
        attempts: &Attempts,
        vault: &Vault,
        now: Seconds,
    ) -> Seconds {
        let due = match held {
            Some(bundle) => {
                let renewal = self.renewal(identity, &bundle, vault, now).await;
                renewal.max(attempts.rest(now))
            }
            None => now,
        };
        due.max(self.next_attempt(identity, attempts, now))
    }

    /// The earliest time of an order of an identity, by the failures before it. If a hurried order waits nevertheless,
    /// the log gets one line.
    fn next_attempt(
        &self,
        identity: &OrderedIdentity,
        attempts: &Attempts,
        now: Seconds,
    ) -> Seconds {
        let waits_until = attempts.next(now);
        if waits_until <= now {
            // No wait is left to shorten, so that the hurry ends: a later failure waits again.
            self.hurry.forget(&identity.name);
            return waits_until;
        }
        if !self.hurry.follow(&identity.name, attempts.last()) {
            return waits_until;
        }
        let next = attempts.next_at_once(now);
        if next > now && self.hurry.tell(&identity.name) {
            tracing::warn!(
                "tls.{}: the next order is made in {}: four orders have failed within an hour, or the authority asked for the pause",
                identity.name,
                words((next - now).unsigned_abs())
            );
        }
        next
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
        let spread = share(&identity.name, self.seed_of(vault));
        let by_life = schedule::renewal(facts.not_before, facts.not_after, spread);
        if self.suggestions.are_due(&identity.name, bundle, now)
            && let Ok(account) = self.accounts.of(&identity.authority, vault).await
        {
            let asked = self.suggestions.ask(&account, identity, bundle, now);
            asked.await;
        }
        let suggested = self.suggestions.of(&identity.name, bundle, spread);
        suggested.unwrap_or(by_life)
    }

    /// The seed that spreads renewals: gateways with a common store look at the same times, and one of them orders.
    fn seed_of(&self, vault: &Vault) -> u64 {
        match vault {
            Vault::Folder(_) => self.seed,
            Vault::Store(_) => 0,
        }
    }

    /// Orders the certificate of one identity. The outcome is stored, counted and logged, and the right released.
    pub(super) async fn order(
        &self,
        identity: &OrderedIdentity,
        attempts: Attempts,
        right: OrderRight,
    ) {
        let failed = match self.vault(&identity.authority) {
            Ok(vault) => self.order_into(&vault, identity, attempts, &right).await,
            Err(failure) => Some(format!("tls.{}: {failure}", identity.name)),
        };
        let mut releasing = pin!(right.release());
        // The line is logged after the release: an operator's signal in reaction to the line repeats the order. A slow
        // or unavailable store does not delay the log line.
        let released = timeout(RELEASE, releasing.as_mut()).await;
        if let Some(failed) = failed {
            tracing::error!("{failed}");
        }
        if released.is_err() {
            releasing.await;
        }
    }

    /// Orders the certificate of one identity. Returns the line about its failure.
    async fn order_into(
        &self,
        vault: &Vault,
        identity: &OrderedIdentity,
        mut attempts: Attempts,
        right: &OrderRight,
    ) -> Option<String> {
        self.log_order(identity);
        let before = attempts.clone();
        attempts.begins(seconds((self.wall)()));
        let outcome = match self.keep_attempts(identity, &attempts, vault).await {
            Ok(()) => tokio::select! {
                outcome = self.obtain(identity, &attempts, vault, right) => outcome,
                () = self.last_orders() => Err(OrderFailure::GivenUp),
            },
            // The authority received no request, so that this is not a failure of an order.
            Err(failure) if failure.is_of_store() => {
                tracing::warn!("tls.{}: {failure}", identity.name);
                self.versions.owe(&identity.name, before);
                return None;
            }
            Err(failure) => Err(failure),
        };
        let mut failed = None;
        match outcome {
            Ok(bundle) => {
                let facts = bundle.facts();
                let life = facts.not_after - facts.not_before;
                attempts.succeeded(seconds((self.wall)()), life);
                self.note_issued(identity, bundle);
            }
            Err(failure) if self.is_over() => {
                // The authority may not have found the answer of a gateway that stops. Its successor orders anew.
                let cause = failure.words(&identity.authority.directory);
                tracing::info!("tls.{}: the order is given up: {cause}", identity.name);
                attempts = before;
            }
            Err(failure) => failed = Some(self.failed(identity, vault, &mut attempts, &failure)),
        }
        if right.is_lost() {
            // The gateway that now has the right has counted the order as failed.
            return failed;
        }
        if let Err(failure) = self.keep_attempts(identity, &attempts, vault).await {
            if let Some(failed) = failed.take() {
                tracing::error!("{failed}");
            }
            tracing::error!("tls.{}: {failure}", identity.name);
            match vault {
                // Without a record of failures only this wait bounds the orders.
                Vault::Folder(_) => sleep(UNKEPT).await,
                Vault::Store(_) => self.versions.owe(&identity.name, attempts),
            }
        }
        failed
    }

    fn log_order(&self, identity: &OrderedIdentity) {
        let now = seconds((self.wall)());
        let held = self.issued.of(&identity.name);
        let held = held.map(|held| words((held.facts().not_after - now).max(0).unsigned_abs()));
        tracing::info!(
            "tls.{}: a certificate for {} is ordered from acme.{}{}",
            identity.name,
            identity.hosts.join(", "),
            identity.authority.name,
            held.map_or_else(String::new, |left| format!(
                "; the previous one is good for {left}"
            ))
        );
    }

    /// Counts a new certificate and serves it.
    fn note_issued(&self, identity: &OrderedIdentity, bundle: Bundle) {
        let left = bundle.facts().not_after - seconds((self.wall)());
        self.metrics.ordered(&identity.name, OrderResult::Obtained);
        tracing::info!(
            "tls.{}: a certificate for {} has come, good for {}",
            identity.name,
            identity.hosts.join(", "),
            words(left.max(0).unsigned_abs())
        );
        self.issued.put(&identity.name, bundle);
    }

    /// Notes and counts an order that has failed. Returns the line about it.
    fn failed(
        &self,
        identity: &OrderedIdentity,
        vault: &Vault,
        attempts: &mut Attempts,
        failure: &OrderFailure,
    ) -> String {
        let now = seconds((self.wall)());
        let cause = failure.words(&identity.authority.directory);
        if failure.is_of_bounds() {
            attempts.held_back(now, &cause);
        } else {
            let pause = self.accounts.pause(&identity.authority, vault);
            // A port that the authority does not reach is no reason to delay a try with the other.
            let kinds = identity.authority.challenges.len();
            let is_untried = attempts.failures() + 1 < kinds;
            attempts.failed(now, pause, &cause);
            if is_untried && pause.is_none() && matches!(failure, OrderFailure::NotOurs { .. }) {
                attempts.has_other_kind(now);
            }
        }
        let wait = attempts.next(now) - now;
        self.metrics.ordered(&identity.name, result_of(failure));
        format!(
            "tls.{}: no certificate: {cause}; the next attempt is in {}",
            identity.name,
            words(wait.max(0).unsigned_abs())
        )
    }

    /// Can no certificate be wanted any more?
    fn is_over(&self) -> bool {
        self.wanted.has_changed().is_err()
    }

    /// Resolves when unfinished orders are abandoned.
    async fn last_orders(&self) {
        let mut wanted = self.wanted.clone();
        while wanted.changed().await.is_ok() {}
        sleep(*self.last_orders.get().unwrap_or(&LAST_ORDERS)).await;
    }

    pub(super) async fn keep_attempts(
        &self,
        identity: &OrderedIdentity,
        attempts: &Attempts,
        vault: &Vault,
    ) -> Result<(), OrderFailure> {
        let text = attempts.text();
        vault.keep(Part::Attempts, &identity.name, &text).await
    }

    /// Orders, and stores the certificate.
    async fn obtain(
        &self,
        identity: &OrderedIdentity,
        attempts: &Attempts,
        vault: &Vault,
        right: &OrderRight,
    ) -> Result<Bundle, OrderFailure> {
        let mut is_account_new = false;
        let mut tries = 0;
        loop {
            tries += 1;
            let made = timeout(
                ORDER_WITHIN,
                self.purchase(identity, attempts, vault, right),
            )
            .await;
            match made.unwrap_or(Err(OrderFailure::TooLong(ORDER_WITHIN))) {
                Ok(bundle) => {
                    if let Err(failure) = self.keep(identity, &bundle, vault).await {
                        // The certificate is served nevertheless. A folder will never have the certificate; the store
                        // gets it later.
                        tracing::error!("tls.{}: {failure}", identity.name);
                    }
                    return Ok(bundle);
                }
                Err(failure) if failure.is(BAD_NONCE) && tries < TRIES => {}
                Err(failure) if failure.is("accountDoesNotExist") && !is_account_new => {
                    is_account_new = true;
                    self.accounts.forget(&identity.authority, vault).await?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn keep(
        &self,
        identity: &OrderedIdentity,
        bundle: &Bundle,
        vault: &Vault,
    ) -> Result<(), OrderFailure> {
        match vault {
            Vault::Folder(_) => {
                let name = &identity.name;
                vault.keep(Part::Certificates, name, bundle.pem()).await
            }
            Vault::Store(store) => self.keep_for_all(identity, bundle, store).await,
        }
    }

    async fn purchase(
        &self,
        identity: &OrderedIdentity,
        attempts: &Attempts,
        vault: &Vault,
        right: &OrderRight,
    ) -> Result<Bundle, OrderFailure> {
        let open = self.accounts.of(&identity.authority, vault).await?;
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
            vault,
            right,
        };
        purchase.make(&open.account).await
    }
}

/// The content of an order, in words that change when the order does. The words are stored, so that the name of the
/// account stands for a query.
pub(super) fn order_text(identity: &OrderedIdentity) -> String {
    let authority = &identity.authority;
    let mut hosts: Vec<&str> = identity.hosts.iter().map(String::as_str).collect();
    hosts.sort_unstable();
    let profile = authority.profile.as_deref().unwrap_or_default();
    let mut directory = shown_url(&authority.directory).into_owned();
    if directory != authority.directory {
        directory = format!("{directory} {}", account_name(authority));
    }
    format!("{directory} {profile} {}", hosts.join(" "))
}

/// The record of the order of `identity` as it is made now, from the stored record.
pub(super) fn as_known_of(identity: &OrderedIdentity, kept: Attempts) -> Attempts {
    kept.of(&order_text(identity))
        .by(&identity.authority.means())
}

fn result_of(failure: &OrderFailure) -> OrderResult {
    match failure {
        OrderFailure::Refused(_) | OrderFailure::NoChallenge { .. } | OrderFailure::Useless(_) => {
            OrderResult::Refused
        }
        OrderFailure::NotOurs { .. } => OrderResult::NotOurs,
        OrderFailure::Unreachable(_) | OrderFailure::TooLong(_) => OrderResult::Unreachable,
        OrderFailure::Storage { .. }
        | OrderFailure::Store { .. }
        | OrderFailure::NoStore
        | OrderFailure::OtherSecret { .. }
        | OrderFailure::Damaged { .. }
        | OrderFailure::TooManyOpen { .. }
        | OrderFailure::Contended { .. }
        | OrderFailure::LockLost
        | OrderFailure::AccountLocked
        | OrderFailure::Crypto(_)
        | OrderFailure::GivenUp => OrderResult::Failed,
    }
}

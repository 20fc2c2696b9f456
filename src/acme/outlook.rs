//! The state of an order without a request to its authority: for `check`, and for the start.

use super::attempts::Attempts;
use super::authority::{OrderedIdentity, Storage};
use super::failure::OrderFailure;
use super::folder::{Folder, Part};
use super::issued::Bundle;
use super::orders::{as_known_of, order_text};
use super::ownership;
use super::schedule::{self, Seconds};
use super::store_orders::entry_of;
use super::store_vault::SharedStorage;
use super::vault::Vault;
use crate::telemetry::{printable_line, without_queries};
use futures_util::future::join_all;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// The state of an order. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderOutlook {
    /// The stored certificate, if it is for at least one of the hosts.
    pub certificate: Option<Bundle>,
    /// Is the stored certificate damaged, or without its key? Another one is ordered then.
    pub is_damaged: bool,
    /// The time by which the certificate is renewed, unless the authority asks for it earlier (RFC 9773). `None` if the
    /// certificate is ordered at once.
    pub renewal: Option<i64>,
    /// Orders that failed in a row.
    pub failures: usize,
    /// The last order that failed since a certificate was issued.
    pub last_failure: Option<KeptFailure>,
    /// The time before which no order is made; `None` if it is not after `now`.
    pub next: Option<i64>,
}

/// The record of an order that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFailure {
    /// The time, in seconds since 1970.
    pub at: i64,
    /// The cause in words, with the host that the authority names; `None` if a gateway of 0.1.0 wrote the record.
    pub cause: Option<String>,
}

/// The longest wait for the store's records of orders.
const WITHIN: Duration = Duration::from_secs(2);

/// The store's records of the orders of these identities, at the time `now`, in the order of the identities. If a
/// record cannot be read, the cause is in words. The reading takes two seconds at most.
pub async fn outlooks_in_store(
    identities: &[OrderedIdentity],
    shared: &SharedStorage,
    now: Seconds,
) -> Vec<Result<OrderOutlook, String>> {
    let readings = identities.iter().map(|identity| async move {
        match timeout(WITHIN, in_store(identity, shared, now)).await {
            Ok(outlook) => outlook.map_err(|failure| failure.to_string()),
            Err(_) => Err("the store does not answer".to_owned()),
        }
    });
    join_all(readings).await
}

async fn in_store(
    identity: &OrderedIdentity,
    shared: &SharedStorage,
    now: Seconds,
) -> Result<OrderOutlook, OrderFailure> {
    let vault = Vault::of(&identity.authority, Some(shared))?;
    let kept = vault.read(Part::Certificates, &entry_of(identity)).await?;
    let attempts = vault.read(Part::Attempts, &identity.name).await?;
    Ok(OrderOutlook::of(identity, kept, attempts, now))
}

/// The folder's record of the order of an identity, at the time `now`.
///
/// # Errors
/// If the record cannot be read, or is kept in the store.
pub fn outlook(identity: &OrderedIdentity, now: Seconds) -> io::Result<OrderOutlook> {
    let path = identity.authority.storage.folder();
    let folder = Folder::at(path.ok_or_else(|| io::Error::other("it is in the store"))?);
    let name = &identity.name;
    let kept = folder.read(Part::Certificates, name)?;
    let attempts = folder.read(Part::Attempts, name)?;
    Ok(OrderOutlook::of(identity, kept, attempts, now))
}

/// The reason why a folder's record of the order of an identity is not trusted, in words with the command that fixes
/// it. `None` if the record is trusted, or if only the gateway's own user can tell.
#[must_use]
pub fn refusal(identity: &OrderedIdentity) -> Option<String> {
    let path = identity.authority.storage.folder()?;
    let folder = Folder::at(path);
    let read = |part| folder.read(part, &identity.name).err();
    let error = folder.require_all_safe().err();
    let error = error.or_else(|| read(Part::Certificates));
    let error = error.or_else(|| read(Part::Attempts))?;
    ownership::is_refusal(path, &error).then(|| error.to_string())
}

/// The reason why this process cannot write to a folder of certificates, in words; `None` if it can, or if the storage
/// is not a folder. No file is created.
#[must_use]
pub fn unwritable(storage: &Storage) -> Option<String> {
    ownership::unwritable(storage.folder()?)
}

/// The group whose members may write to a folder of certificates.
#[must_use]
pub fn group_of(storage: &Storage) -> Option<u32> {
    ownership::writing_group(storage.folder()?)
}

impl OrderOutlook {
    /// Reads the stored texts about a certificate and its failures.
    fn of(
        identity: &OrderedIdentity,
        kept: Option<String>,
        attempts: Option<String>,
        now: Seconds,
    ) -> Self {
        let is_there = kept.is_some();
        let kept = kept.and_then(|pem| Bundle::read(&pem));
        let is_damaged = is_there && kept.is_none();
        let certificate = kept.filter(|kept| kept.covers_any(&identity.hosts));
        let attempts = attempts.map(|text| Attempts::read(&text));
        let attempts = attempts.unwrap_or_default();
        let is_same_order = attempts.is_of(&order_text(identity));
        let attempts = as_known_of(identity, attempts);
        let whole = certificate.as_ref();
        let whole = whole.filter(|kept| kept.covers(&identity.hosts) && is_same_order);
        let renewal = whole.map(|kept| {
            let facts = kept.facts();
            schedule::renewal(facts.not_before, facts.not_after, 0)
        });
        Self {
            renewal,
            failures: attempts.failures(),
            last_failure: attempts.last_failure().map(|(at, cause)| KeptFailure {
                at,
                // A gateway of an earlier version may have stored the query of a URL.
                cause: cause.map(|cause| printable_line(&without_queries(cause)).into_owned()),
            }),
            next: Some(attempts.next(now)).filter(|next| *next > now),
            certificate,
            is_damaged,
        }
    }
}

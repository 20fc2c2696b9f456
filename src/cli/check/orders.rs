//! Certificates that are ordered, and the authorities that they are ordered from, in words and for programs.

use super::CheckTask;
use crate::acme::{
    Authority, KeptFailure, OrderOutlook, OrderedIdentity, SharedStorage, Storage, group_of,
    outlook, outlooks_in_store, refusal, unwritable,
};
use crate::cli::runtime;
use crate::clock;
use crate::config::describe::show_instant;
use crate::config::{Compiled, Report};
use crate::store::Backend;
use crate::store::redis::SharedKeys;
use crate::telemetry::shown_url;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The orders of a file, by the names of their identities.
pub(super) struct KnownOrders<'a>(HashMap<&'a str, KnownOrder<'a>>);

/// The order of an identity, and the stored record about it; or the reason why the record cannot be read, in words.
pub(super) struct KnownOrder<'a> {
    order: &'a OrderedIdentity,
    known: Result<OrderOutlook, String>,
}

impl<'a> KnownOrders<'a> {
    /// The orders of a file. Records that are kept in the store are read there, in two seconds at most.
    pub(super) fn of(compiled: &'a Compiled) -> Self {
        let now = i64::try_from(clock::wall().micros() / 1_000_000).unwrap_or(i64::MAX);
        let in_store = |one: &&OrderedIdentity| matches!(one.authority.storage, Storage::Store(_));
        let shared: Vec<OrderedIdentity> =
            compiled.orders.iter().filter(in_store).cloned().collect();
        let mut of_store = ask_store(compiled, &shared, now).into_iter();
        let all = compiled.orders.iter().map(|order| {
            let known = if in_store(&order) {
                let none = || Err("the store was not asked".to_owned());
                of_store.next().unwrap_or_else(none)
            } else {
                outlook(order, now).map_err(|error| error.to_string())
            };
            (&*order.name, KnownOrder { order, known })
        });
        Self(all.collect())
    }

    /// The order of the identity of this name; `None` if its certificate is a file.
    pub(super) fn named(&self, name: &str) -> Option<&KnownOrder<'a>> {
        self.0.get(name)
    }
}

/// Reads the store's records of these orders.
fn ask_store(
    compiled: &Compiled,
    orders: &[OrderedIdentity],
    now: i64,
) -> Vec<Result<OrderOutlook, String>> {
    let store = &compiled.boot.store;
    let (Backend::Redis(target), [_, ..]) = (&store.source, orders) else {
        return Vec::new();
    };
    let Ok(runtime) = runtime() else {
        return Vec::new();
    };
    runtime.block_on(async {
        let shared = SharedStorage::new(SharedKeys::new(target), &store.prefix);
        outlooks_in_store(orders, &shared, now).await
    })
}

/// The report if the stored record of an order would not be trusted. The tasks that show the meaning of a file, or the
/// state of its servers, depend on the record; the tasks that print or compare files do not.
pub(super) fn refused(task: &CheckTask, compiled: &Compiled) -> Option<Report> {
    if !matches!(task, CheckTask::Meaning | CheckTask::Connect) {
        return None;
    }
    let mut reported = HashSet::new();
    let orders = compiled.orders.iter();
    let refused = orders.filter_map(|order| Some((&*order.name, refusal(order)?)));
    let errors: Vec<_> = refused
        .filter(|(_, why)| reported.insert(why.clone()))
        .map(|(name, why)| compiled.untrusted(name, why))
        .collect();
    if errors.is_empty() {
        return None;
    }
    let all = compiled.whole_report().diagnostics.into_iter();
    let all = all.chain(errors).collect();
    Some(Report::new(Arc::clone(&compiled.source), all))
}

/// Notes on folders of certificates that a group may write to, and on folders that this user may not write to.
pub(super) fn notes(compiled: &Compiled) -> Vec<String> {
    let mut notes = Vec::new();
    for authority in authorities_of(compiled) {
        let storage = &authority.storage;
        if let Some(group) = group_of(storage) {
            notes.push(format!(
                "members of group {group} may write to {storage}, and to certificates there until the gateway starts: this is right for the `fsGroup` of a volume, if the gateway is in that group"
            ));
        }
        if let Some(why) = unwritable(storage) {
            notes.push(format!(
                "certificates are kept in {storage}, and {why}: a gateway that runs as this user orders none"
            ));
        }
    }
    // Several authorities may keep certificates in one place.
    let mut seen = HashSet::new();
    notes.retain(|note| seen.insert(note.clone()));
    notes
}

/// The authorities from which identities are ordered, in the order of the identities.
fn authorities_of(compiled: &Compiled) -> Vec<&Authority> {
    let mut seen = HashSet::new();
    let all = compiled.orders.iter().map(|order| &*order.authority);
    all.filter(|authority| seen.insert(&authority.name))
        .collect()
}

/// A line for each authority from which identities are ordered, in the order of the identities.
pub(super) fn authorities(compiled: &Compiled) -> Vec<String> {
    let lines = authorities_of(compiled).into_iter().map(|authority| {
        let kinds = authority.challenges.iter().map(|kind| kind.as_str());
        let kinds: Vec<&str> = kinds.collect();
        let profile = authority.profile.as_ref();
        let profile = profile.map(|profile| format!(", profile {profile}"));
        format!(
            "authority {}: {}{}; verifies hosts by {}; certificates are kept in {}",
            authority.name,
            shown_url(&authority.directory),
            profile.unwrap_or_default(),
            kinds.join(", then "),
            authority.storage,
        )
    });
    lines.collect()
}

impl KnownOrder<'_> {
    /// The words after the hosts: `ordered from public, renewed by ...`.
    pub(super) fn words(&self) -> String {
        let from = &self.order.authority.name;
        let whose = match self.order.authority.storage {
            Storage::Folder(_) => "",
            Storage::Store(_) => " for all gateways",
        };
        let rest = match &self.known {
            Err(error) => format!("its kept files cannot be read: {error}"),
            Ok(known) => known_words(known, &self.order.hosts),
        };
        format!("ordered from {from}{whose}, {rest}")
    }

    /// The state of the order, for programs.
    pub(super) fn json(&self) -> Value {
        let known = self.known.as_ref().ok();
        let at = |time: Option<i64>| time.map(show_instant);
        json!({
            "authority": &*self.order.authority.name,
            "directory": shown_url(&self.order.authority.directory),
            "storage": match self.order.authority.storage {
                Storage::Folder(_) => "folder",
                Storage::Store(_) => "store",
            },
            "unreadable": self.known.as_ref().err(),
            "has_certificate": known.is_some_and(|known| known.certificate.is_some()),
            "renewed_by": at(known.and_then(|known| known.renewal)),
            "failures": known.map_or(0, |known| known.failures),
            "last_failure": known.and_then(|known| known.last_failure.as_ref()).map(|last| {
                json!({ "at": show_instant(last.at), "cause": last.cause })
            }),
            "next_order": at(known.and_then(|known| known.next)),
        })
    }
}

fn known_words(known: &OrderOutlook, hosts: &[String]) -> String {
    let state = match (&known.certificate, known.renewal) {
        (None, _) if known.is_damaged => {
            "the kept certificate is damaged, and a new one is ordered when the gateway runs"
                .to_owned()
        }
        (None, _) => "no certificate has come yet".to_owned(),
        (Some(_), Some(by)) => format!("renewed by {}", show_instant(by)),
        (Some(held), None) => {
            let lacks = hosts
                .iter()
                .filter(|host| !held.facts().names.contains(host));
            let lacks: Vec<&str> = lacks.map(String::as_str).collect();
            match lacks.as_slice() {
                [] => "and anew when the gateway runs".to_owned(),
                lacks => format!(
                    "and anew when the gateway runs: it lacks {}",
                    lacks.join(", ")
                ),
            }
        }
    };
    let failed = match known.failures {
        0 => String::new(),
        1 => ", 1 order has failed".to_owned(),
        many => format!(", {many} orders in a row have failed"),
    };
    let next = known
        .next
        .map(|next| format!(", the next is made at {}", show_instant(next)));
    let last = known.last_failure.as_ref().map(last_words);
    format!(
        "{state}{failed}{}{}",
        next.unwrap_or_default(),
        last.unwrap_or_default()
    )
}

/// The last failure: its cause comes last, since an authority may send any text in it.
fn last_words(last: &KeptFailure) -> String {
    let at = show_instant(last.at);
    match &last.cause {
        Some(cause) => format!("; the last failed at {at}: {cause}"),
        None => format!("; the last failed at {at}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_an_order_is_one_clause() {
        let mut known = OrderOutlook {
            certificate: None,
            is_damaged: false,
            renewal: None,
            failures: 0,
            last_failure: None,
            next: None,
        };
        let hosts = ["a.example".to_owned()];
        assert_eq!(known_words(&known, &hosts), "no certificate has come yet");
        known.is_damaged = true;
        assert!(known_words(&known, &hosts).starts_with("the kept certificate is damaged"));
        known.is_damaged = false;
        known.failures = 2;
        known.next = Some(1_800_000_000);
        assert_eq!(
            known_words(&known, &hosts),
            "no certificate has come yet, 2 orders in a row have failed, the next is made at 2027-01-15T08:00:00Z"
        );
        known.last_failure = Some(KeptFailure {
            at: 1_799_999_940,
            cause: Some("a.example was not found to be ours by http-01: it refuses".into()),
        });
        let described = known_words(&known, &hosts);
        let end = "T08:00:00Z; the last failed at 2027-01-15T07:59:00Z: a.example was not found to be ours by http-01: it refuses";
        assert!(described.ends_with(end), "{described}");
    }
}

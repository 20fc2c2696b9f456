//! The identities that each listener offers.

use super::LoadedIdentity;
use super::written::WrittenIdentity;
use crate::config::document::{Document, ListenEntry, ListenerTls};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::quoted;
use crate::tls::{ClaimedTwice, Offer, ServerIdentity};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// An identity as written, and the same identity as loaded.
type Both<'a, 'w> = (&'a WrittenIdentity<'w>, LoadedIdentity);

/// The identities by their names.
type NamedIdentities<'b, 'a, 'w> = HashMap<&'b str, &'b Both<'a, 'w>>;

/// The offer of each listener, in the order of the listeners.
pub(super) fn offers(
    document: &Document,
    identities: &[Both<'_, '_>],
    found: &mut Findings,
) -> Vec<Option<Offer>> {
    let listeners = document.server.listen.entries().iter();
    let mut reported = HashSet::new();
    let by_name = identities.iter().rev();
    let by_name: NamedIdentities<'_, '_, '_> =
        by_name.map(|both| (both.0.name.as_str(), both)).collect();
    let offers = listeners.filter_map(|entry| {
        let address = entry.value.listens_on()?;
        let Some(tls) = entry.value.tls.at() else {
            return Some(None);
        };
        let offered = offered(&entry.value, tls, identities, &by_name);
        match Offer::new(offered) {
            Ok(offer) => {
                let listener = quoted(&address.value.to_string());
                note_default(&offer, &listener, &tls.span, found);
                Some(Some(offer))
            }
            Err(twice) => {
                let new = twice.into_iter();
                let new: Vec<_> = new
                    .filter(|one| reported.insert((one.name.clone(), one.identities.clone())))
                    .collect();
                for one in new {
                    claimed_twice(&one, &tls.span, &by_name, found);
                }
                Some(None)
            }
        }
    });
    offers.collect()
}

fn offered(
    entry: &ListenEntry,
    tls: &At<ListenerTls>,
    identities: &[Both<'_, '_>],
    by_name: &NamedIdentities<'_, '_, '_>,
) -> Vec<Arc<ServerIdentity>> {
    let named = |name: &str| {
        let found = by_name.get(name);
        found.map(|(_, loaded)| Arc::clone(&loaded.identity))
    };
    match &tls.value {
        ListenerTls::All => {
            let tables = identities.iter();
            let tables = tables.filter(|(written, _)| !written.is_of_listener);
            tables
                .map(|(_, loaded)| Arc::clone(&loaded.identity))
                .collect()
        }
        ListenerTls::Named(names) => {
            let mut seen = HashSet::new();
            let names = names.iter().filter(|at| seen.insert(at.value.as_str()));
            names.filter_map(|at| named(&at.value)).collect()
        }
        ListenerTls::Own(_) => {
            let address = entry.listens_on();
            let addressed = address.and_then(|address| named(&address.value.to_string()));
            addressed.into_iter().collect()
        }
    }
}

/// Notes a listener with several identities, none of which is for clients that send no server name.
fn note_default(offer: &Offer, listener: &str, span: &Span, found: &mut Findings) {
    if offer.identities().len() < 2 || offer.default_identity().is_some() {
        return;
    }
    let message = format!(
        "{listener} refuses clients that name no host, or one that none of its identities is for"
    );
    found
        .warning(Code::NoDefaultIdentity, message)
        .at(span, "none of these is the default")
        .help("write `default = true` in the `[tls.NAME]` that such clients are to get");
}

fn claimed_twice(
    twice: &ClaimedTwice,
    listener: &Span,
    by_name: &NamedIdentities<'_, '_, '_>,
    found: &mut Findings,
) {
    let written = |name: &str| by_name.get(name).map(|(written, _)| *written);
    let [first, second] = &twice.identities;
    let (Some(first), Some(second)) = (written(first), written(second)) else {
        return;
    };
    let Some(host) = &twice.name else {
        let (one, other) = (&first.subject, &second.subject);
        found
            .conflict(format!(
                "{one} and {other} are both the default of one listener"
            ))
            .at(second.place, "the second")
            .and(first.place, "the first")
            .and(listener, "offered here")
            .help("write `default = true` in one of them");
        return;
    };
    let place = |identity: &WrittenIdentity<'_>| {
        let mut hosts = identity.hosts.iter();
        let host = hosts.find(|at| at.value.as_str() == host);
        host.map_or(identity.certificate.span(), |at| &at.span)
            .clone()
    };
    let (one, other) = (&first.subject, &second.subject);
    let message = format!("{one} and {other} are both for `{host}`");
    found
        .error(Code::HostClaimedTwice, message)
        .at(&place(second), "the second")
        .and(&place(first), "the first")
        .and(listener, "offered together here")
        .help("write the `hosts` that each is for, or offer them on listeners of their own");
}

//! The changes of identities, and of the identities that listeners offer.

use super::{Collection, FileChange, Outline, differences, to};
use crate::config::document::TLS;
use crate::config::document::vocabulary::Compare;
use crate::config::presentation::describe::show_instant;
use crate::config::presentation::outline::{IdentityOutline, list};
use crate::listen::listener::Listener;
use std::collections::HashMap;

pub(super) fn identities(old: &Outline, new: &Outline, changes: &mut Vec<FileChange>) {
    let name = |one: &IdentityOutline| one.name.to_string();
    let all = Collection::new("tls", &old.identities, &new.identities, name);
    all.compare(changes, identity);
    let before = old.boot.listen.listeners.iter().rev();
    let before: HashMap<_, &Listener> = before.map(|one| (&one.address, one)).collect();
    for listener in &new.boot.listen.listeners {
        let Some(before) = before.get(&listener.address) else {
            continue;
        };
        if let (Some(old), Some(new)) = (&before.tls, &listener.tls)
            && old != new
        {
            let what = format!("identities {}", to(&list(old), &list(new)));
            changes.push(FileChange::live(
                format!("listener {}", listener.address),
                what,
            ));
        }
    }
}

fn identity(old: &IdentityOutline, new: &IdentityOutline) -> Option<String> {
    let mut parts = differences(&TLS, |compare| match compare {
        Compare::Identity(of) => Some((of(old)?, of(new)?)),
        _ => None,
    });
    if old.order != new.order {
        let source = |order: &Option<String>| order.clone().unwrap_or("a file".to_owned());
        let (old, new) = (source(&old.order), source(&new.order));
        parts.push(format!("certificate {}", to(&old, &new)));
    } else if old.fingerprint != new.fingerprint {
        let end = show_instant(new.not_after);
        parts.push(format!("another certificate, which ends at {end}"));
    }
    if old.client == new.client && old.check != new.check {
        parts.push("the files for the check of clients' certificates have changed".to_owned());
    }
    super::joined(&parts)
}

//! The settings that a new file removes. A file that is written in two steps may be valid before its second part is
//! written, so a file that removes settings is read once more before it comes into force. The check does not consider
//! the meaning of a removed key: nearly all keys restrict somebody, and a key that only permits more causes a wait of
//! half a second as well.

use crate::config::presentation::outline::{IdentityOutline, Outline};
use crate::key::Group;
use crate::limit::Limit;
use ipnet::IpNet;
#[cfg(test)]
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

#[cfg(test)]
thread_local! {
    /// The comparisons on this thread.
    pub(crate) static COMPARED: Cell<usize> = const { Cell::new(0) };
}

/// The first setting of `old` that `new` lacks, in words: a key, a value, or an entry of a list, of a group's files, of a
/// file of customers' numbers, of a file of trusted networks, or of a revocation list. Changed numbers remove nothing.
/// Fewer authorities and fewer keys of tokens are not considered: their removal only means less trust.
#[must_use]
pub fn taken_away(old: &Outline, new: &Outline) -> Option<String> {
    #[cfg(test)]
    COMPARED.set(COMPARED.get() + 1);
    let written = old.written.first_lost(&new.written);
    written
        .or_else(|| of_trust(&old.trust, &new.trust))
        .or_else(|| of_groups(&old.groups, &new.groups))
        .or_else(|| of_limits(&old.limits, &new.limits))
        .or_else(|| of_identities(&old.identities, &new.identities))
}

/// Behind a proxy that is no longer trusted all clients count as one.
fn of_trust(old: &[IpNet], new: &[IpNet]) -> Option<String> {
    let after: HashSet<&IpNet> = new.iter().collect();
    let lost = old.iter().find(|network| !after.contains(network))?;
    Some(format!("{lost} of `server.trust`"))
}

/// A member may have a stricter tier than other clients, and a customer that is gone is refused.
fn of_groups(old: &[Arc<Group>], new: &[Arc<Group>]) -> Option<String> {
    let after: HashMap<&str, &Arc<Group>> = new.iter().map(|one| (&*one.name, one)).collect();
    old.iter().find_map(|before| {
        let after = after.get(&*before.name)?;
        let (_, left) = after.joined_and_left(before);
        if left == 0 && after.has_lost_customers(before) {
            return Some(format!("a customer of group `{}`", before.name));
        }
        (left > 0).then(|| format!("a member of group `{}`", before.name))
    })
}

/// A customer may have stricter numbers than the others.
fn of_limits(old: &[Arc<Limit>], new: &[Arc<Limit>]) -> Option<String> {
    let after: HashMap<&str, &Arc<Limit>> = new.iter().rev().map(|one| (&*one.name, one)).collect();
    old.iter().find_map(|before| {
        let after = after.get(&*before.name)?.customer_numbers.as_ref()?;
        let before_numbers = before.customer_numbers.as_ref()?;
        let is_less = after.lacks_one_of(before_numbers);
        is_less.then(|| format!("own numbers of a customer of limit `{}`", before.name))
    })
}

fn of_identities(old: &[IdentityOutline], new: &[IdentityOutline]) -> Option<String> {
    let after: HashMap<&str, &IdentityOutline> = new.iter().map(|one| (&*one.name, one)).collect();
    old.iter().find_map(|one| {
        let before = one.check.as_ref()?;
        let after = after.get(&*one.name)?.check.as_ref()?;
        (!after.revokes_all_of(before)).then(|| {
            format!(
                "a certificate of the revocation lists of identity `{}`",
                one.name
            )
        })
    })
}

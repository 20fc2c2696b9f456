//! What a new file takes away. A file that is written in two steps may be good without its second half, so such a file is
//! looked at once more before it comes into force. What a lost key meant is not asked: nearly all of them restrict somebody,
//! and a key that only widens waits for half a second as well.

use crate::config::presentation::outline::{IdentityOutline, Outline};
use crate::key::Group;
#[cfg(test)]
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

#[cfg(test)]
thread_local! {
    /// The comparisons on this thread.
    pub(crate) static COMPARED: Cell<usize> = const { Cell::new(0) };
}

/// The first thing that `new` takes away from `old`, in words: a key, a value, or an entry of a list, of a group's file of
/// members, or of a revocation list. Other numbers take nothing away. Fewer authorities and fewer keys of tokens are not
/// looked for: nobody is believed by them any more.
#[must_use]
pub fn taken_away(old: &Outline, new: &Outline) -> Option<String> {
    #[cfg(test)]
    COMPARED.set(COMPARED.get() + 1);
    let written = old.written.first_lost(&new.written);
    written
        .or_else(|| of_groups(&old.groups, &new.groups))
        .or_else(|| of_identities(&old.identities, &new.identities))
}

/// A member may have a stricter tier than others.
fn of_groups(old: &[Arc<Group>], new: &[Arc<Group>]) -> Option<String> {
    let after: HashMap<&str, &Arc<Group>> = new.iter().map(|one| (&*one.name, one)).collect();
    old.iter().find_map(|before| {
        let after = after.get(&*before.name)?;
        let (_, left) = after.joined_and_left(before);
        (left > 0).then(|| format!("a member of group `{}`", before.name))
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

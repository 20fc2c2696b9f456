//! Compares the store's address, and the credentials of connections to the store. Secrets are compared and never shown.

use super::FileChange;
use crate::store::Backend;

/// A new address needs a restart; new credentials for the same address take effect on a reload.
pub(super) fn compare(running: &Backend, new: &Backend, changes: &mut Vec<FileChange>) {
    if let (Backend::Redis(a), Backend::Redis(b)) = (running, new)
        && a.is_same_place(b)
    {
        let presented = [
            ("store.password", a.password != b.password),
            ("store.sentinel", a.place != b.place),
            ("store.tls", a.tls != b.tls),
        ];
        let presented = presented.into_iter().filter(|(_, differs)| *differs);
        changes.extend(
            presented
                .map(|(subject, _)| FileChange::live(subject, "changed; new connections use it")),
        );
    } else if running != new {
        let subjects = address(running, new).into_iter();
        changes.extend(subjects.map(|subject| FileChange::restart(subject, None)));
    }
}

/// The keys whose change means a different store.
fn address(a: &Backend, b: &Backend) -> Vec<&'static str> {
    let (Backend::Redis(a), Backend::Redis(b)) = (a, b) else {
        return vec!["store.url"];
    };
    let others = [
        ("store.url", a.to_string() != b.to_string()),
        ("store.username", a.username != b.username),
        ("store.functions", a.functions != b.functions),
    ];
    let others = others.into_iter().filter(|(_, differs)| *differs);
    let others: Vec<_> = others.map(|(subject, _)| subject).collect();
    if others.is_empty() {
        vec!["store.sentinel"]
    } else {
        others
    }
}

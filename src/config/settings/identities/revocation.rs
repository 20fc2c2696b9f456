//! Revocation lists that refuse clients because of the state of the lists, and not because of their entries.

use super::written::WrittenIdentity;
use crate::clock;
use crate::config::presentation::describe::show_instant;
use crate::config::report::{Code, Details as _, Findings};
use crate::tls::ServerIdentity;

/// Notes lists that have expired or are signed by a key other than their authority's key, and authorities without a
/// list if other authorities have one.
pub(super) fn note_revocation(
    written: &WrittenIdentity<'_>,
    identity: &ServerIdentity,
    found: &mut Findings,
) {
    let (Some(table), Some(check)) = (written.client, identity.client()) else {
        return;
    };
    let now = i64::try_from(clock::wall().micros() / 1_000_000).unwrap_or(i64::MAX);
    let subject = &written.subject;
    for list in check.lists() {
        let (Some(end), true) = (list.next_update, list.has_ended(now)) else {
            continue;
        };
        let Some(file) = table.crl.entries().get(list.file) else {
            continue;
        };
        let message = format!(
            "the revocation list of `{}` for {subject} has ended at {}",
            list.issuer,
            show_instant(end)
        );
        found
            .warning(Code::RevocationList, message)
            .at(&file.span, "all clients of this authority are refused")
            .help("write a new list over the file: it is taken over without a restart");
    }
    for list in check.missigned() {
        let Some(file) = table.crl.entries().get(list.file) else {
            continue;
        };
        let message = format!(
            "the revocation list of `{}` for {subject} is signed by another key than this authority's",
            list.issuer
        );
        found
            .warning(Code::RevocationList, message)
            .at(&file.span, "all clients of this authority are refused")
            .help("write the list that belongs to the certificate in `ca`; if the authority has a new key, name its new certificate in `ca` too");
    }
    for authority in check.unlisted() {
        let message = format!("{subject} has no revocation list of its authority `{authority}`");
        let note = found.warning(Code::RevocationList, message);
        let note = match table.crl.entries() {
            [first, ..] => note.at(&first.span, "all clients of this authority are refused"),
            [] => note.at(written.place, "all clients of this authority are refused"),
        };
        note.help("with any list, each authority needs one: name its file in `crl` too");
    }
}

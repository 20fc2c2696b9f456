//! Claims that limits and groups ask for, where the file does not say whose tokens are believed.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::document::Document;
use crate::config::value::quoted;
use crate::key::KeyPart;

/// A claim is only one when somebody has verified it.
pub(super) fn unverified(document: &Document, found: &mut Vec<Diagnostic>) {
    if document.may_define("jwt", "jwt") {
        return;
    }
    let limits = document.limits.iter().flat_map(|limit| {
        let parts = limit.by.entries().iter();
        parts.map(|at| {
            (
                format!("limit {}", quoted(&limit.name.value)),
                at.value.as_ref(),
                &at.span,
            )
        })
    });
    let groups = document.groups.iter().filter_map(|group| {
        let at = group.by.at()?;
        Some((
            format!("group {}", quoted(&group.name.value)),
            Some(&at.value),
            &at.span,
        ))
    });
    for (user, part, span) in limits.chain(groups) {
        let Some(KeyPart::Jwt { claim, .. }) = part else {
            continue;
        };
        found.push(
            Diagnostic::error(
                Code::UnverifiedClaim,
                format!("{user} asks for the claim {}, which nobody verifies", quoted(claim)),
            )
            .at(span, "anybody can claim anything")
            .help("say whose tokens are believed\n[jwt]\nkeys = \"issuer.pem\"\nalgorithms = [\"RS256\"]"),
        );
    }
}

//! Claims that limits and groups ask for, in a file without `[jwt]`.

use crate::config::diagnostic::{Code, Details as _, Findings};
use crate::config::document::Document;
use crate::config::value::quoted;
use crate::key::KeyPart;

/// A claim counts only in a token that has been verified.
pub(super) fn unverified(document: &Document, found: &mut Findings) {
    if document.may_define("jwt", "jwt") {
        return;
    }
    let limits = document.limits.iter().flat_map(|limit| {
        let user = format!("limit {}", quoted(&limit.name.value));
        let parts = limit.by.entries().iter();
        parts.map(move |at| (user.clone(), at.value.as_ref(), &at.span))
    });
    let groups = document.groups.iter().filter_map(|group| {
        let user = format!("group {}", quoted(&group.name.value));
        let at = group.by.at()?;
        Some((user, Some(&at.value), &at.span))
    });
    for (user, part, span) in limits.chain(groups) {
        let Some(KeyPart::Jwt { claim, .. }) = part else {
            continue;
        };
        found.error(
                Code::UnverifiedClaim,
                format!("{user} asks for the claim {}, which no key verifies", quoted(claim)),
            )
            .at(span, "any client can claim anything")
            .help("name the keys that verify tokens\n[jwt]\nkeys = \"issuer.pem\"\nalgorithms = [\"RS256\"]");
    }
}

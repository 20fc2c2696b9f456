//! Claims that limits and groups use in a file without `[jwt]`.

use crate::config::document::Document;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::quoted;
use crate::key::KeyPart;

/// A claim counts only in a token that has been verified.
pub(super) fn unverified(document: &Document, found: &mut Findings) {
    if document.may_define("jwt", "jwt") {
        return;
    }
    let limits = document.limits.iter().flat_map(|limit| {
        let parts = limit.by.entries().iter();
        parts.map(move |at| (limit.to_string(), at.value.as_ref(), &at.span))
    });
    let groups = document.groups.iter().filter_map(|group| {
        let at = group.by.at()?;
        Some((group.to_string(), Some(&at.value), &at.span))
    });
    for (user, part, span) in limits.chain(groups) {
        let Some(claim) = part.and_then(KeyPart::claim) else {
            continue;
        };
        let claim = quoted(claim);
        let message = format!("{user} asks for the claim {claim}, which no key verifies");
        let help = "name the keys that verify tokens\n[jwt]\nkeys = \"issuer.pem\"\nalgorithms = [\"RS256\"]";
        found
            .error(Code::UnverifiedClaim, message)
            .at(span, "any client can claim anything")
            .help(help);
    }
}

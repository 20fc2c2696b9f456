//! Keys of a limit that say what to do in a case that never comes.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::document::Limit;
use crate::key::{MissingKey, UnknownKey};
use crate::limit::Scope;

/// A status for who lacks the key, where nobody is refused for that.
pub(super) fn needless_status(written: &Limit, found: &mut Vec<Diagnostic>) {
    let name = &written.name.value;
    let (Some(status), Some(missing)) = (written.missing_status.at(), written.missing.at()) else {
        return;
    };
    let refuses_unknown = written.unknown.get() == Some(&UnknownKey::Refuse);
    if missing.value != MissingKey::Refuse && !refuses_unknown {
        found.push(
            Diagnostic::warning(
                Code::NeedlessMissing,
                format!("limit `{name}` never answers that its key is missing"),
            )
            .at(&status.span, "never sent")
            .and(&missing.span, "only `\"refuse\"` answers")
            .help("leave `missing_status` out"),
        );
    }
}

/// What to do without a store that it never asks.
pub(super) fn never_away(written: &Limit, found: &mut Vec<Diagnostic>) {
    let name = &written.name.value;
    let (Some(on_down), Some(scope)) = (written.on_down.at(), written.scope.at()) else {
        return;
    };
    if scope.value == Scope::Gateway {
        found.push(
            Diagnostic::warning(
                Code::Conflict,
                format!("limit `{name}` says what to do without Redis, which it never asks"),
            )
            .at(&on_down.span, "never comes to pass")
            .and(&scope.span, "counted in each gateway, always")
            .help("leave `on_down` out"),
        );
    }
}

//! Shows the keys of a route when two files are compared.

use crate::config::presentation::{ShownValue, list, show, show_time};
use crate::key::{IdentityFields, is_secret};
use crate::route::{Condition, Rule};
use crate::snapshot::changes::Changes;
use crate::snapshot::{AnswerTimeout, StaticReply};
use http::{HeaderName, HeaderValue};
use std::fmt::Display;

/// A value, or `none`.
pub(super) fn show_option(value: Option<&str>) -> Option<ShownValue> {
    show(value.unwrap_or("none"))
}

/// `a.example.com+*.b.example.com`, or `any`.
pub(super) fn any<T: Display>(items: &[T]) -> String {
    match items {
        [] => "any".to_owned(),
        items => list(items),
    }
}

/// Conditions of one kind. The values of conditions on authenticating names are compared but not shown.
pub(super) fn conditions(rule: &Rule, is_kind: fn(&Condition) -> bool) -> Option<ShownValue> {
    let all: Vec<&Condition> = rule.conditions.iter().filter(|one| is_kind(one)).collect();
    let shown = |one: &&Condition| match one.secret_name(is_secret) {
        Some(name) => format!("{name} = \"***\""),
        None => one.to_string(),
    };
    let texts: Vec<String> = all.iter().map(shown).collect();
    Some(ShownValue {
        text: any(&texts),
        whole: Some(format!("{all:?}")),
    })
}

/// The fields that name clients to servers, with their templates.
pub(super) fn identity_fields(identity: Option<&IdentityFields>) -> Option<ShownValue> {
    match identity {
        Some(identity) if !identity.fields.is_empty() => show(list(&identity.fields)),
        _ => show("none"),
    }
}

/// The time within which servers must answer.
pub(super) fn shown_timeout(timeout: AnswerTimeout) -> Option<ShownValue> {
    match timeout {
        AnswerTimeout::Written(time) => show_time(time),
        AnswerTimeout::Unwritten(time) => {
            show_time(time).and_then(|time| show(format!("{} by default", time.text)))
        }
        AnswerTimeout::Idle => show("false"),
    }
}

/// The destination of a redirect.
pub(super) fn shown_redirect(reply: Option<&StaticReply>) -> Option<ShownValue> {
    match reply {
        Some(StaticReply::Redirect { to, status }) => {
            show(format!("{} ({})", to.written(), status.as_u16()))
        }
        _ => show("none"),
    }
}

/// The route's static answer. Its status is shown; its body is not shown, since a body may be long.
pub(super) fn shown_respond(reply: Option<&StaticReply>) -> Option<ShownValue> {
    match reply {
        Some(StaticReply::Respond { status, .. }) => Some(ShownValue {
            text: status.as_u16().to_string(),
            whole: Some(format!("{reply:?}")),
        }),
        _ => show("none"),
    }
}

/// Changes of fields: names are shown, but values may be secrets.
pub(super) fn header_changes(changes: Option<&Changes>) -> Option<ShownValue> {
    let Some(changes) = changes else {
        return show("none");
    };
    let names = |lines: &[(HeaderName, HeaderValue)]| -> Vec<HeaderName> {
        lines.iter().map(|(name, _)| name.clone()).collect()
    };
    let all = [
        ("set", names(&changes.set)),
        ("add", names(&changes.add)),
        ("remove", changes.remove.clone()),
    ];
    let all = all.iter().filter(|(_, names)| !names.is_empty());
    let all: Vec<String> = all
        .map(|(what, names)| format!("{what} {}", list(names)))
        .collect();
    // Their `Debug` form hides the sensitive values.
    let lines = changes.set.iter().chain(&changes.add);
    let values: Vec<&[u8]> = lines.map(|(_, value)| value.as_bytes()).collect();
    Some(ShownValue {
        text: all.join(" and "),
        whole: Some(format!("{changes:?}{values:?}")),
    })
}

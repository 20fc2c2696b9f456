//! The notes on values that mean less than they seem to: credentials that are counted as they come, names in front of
//! members, and braces in fields of answers.

use crate::config::Compiled;
use crate::config::suggest::counted;
use crate::key::KeyPart;
use http::{HeaderName, HeaderValue, header};

/// All these notes.
pub(super) fn list_notes(compiled: &Compiled) -> Vec<String> {
    let mut notes = counted_guesses(compiled);
    notes.extend(named_members(compiled));
    notes.extend(braces(compiled));
    notes
}

/// Limits by a whole credential: every guess at a password or a token is another credential.
fn counted_guesses(compiled: &Compiled) -> Vec<String> {
    let is_credential = |part: &KeyPart| part.field() == Some(&header::AUTHORIZATION);
    let limits = compiled.outline.limits.iter();
    let open = limits.filter(|limit| {
        let by = &limit.by;
        by.parts.iter().any(is_credential)
            && by.unknown.is_none()
            && !by.parts.iter().any(KeyPart::is_by_address)
    });
    let mut names: Vec<String> = open.map(|limit| limit.name.to_string()).collect();
    names.dedup();
    let notes = names.into_iter().map(|name| {
        format!(
            "limit {name} counts by header:authorization: each guess at a password or token has a counter of its own; a limit by ip beside it bounds guesses, and `basic:user` counts the guesses at one user"
        )
    });
    notes.collect()
}

/// Members with a name in front of a digest.
fn named_members(compiled: &Compiled) -> impl Iterator<Item = String> {
    let groups = compiled.outline.named_members.iter();
    groups.map(|lines| {
        let (group, members) = (&lines.group, counted(lines.many, "member"));
        format!(
            "group {group} has {members} with a name in front of `sha256:` (first: {}); each is one literal value, which nobody sends: write `customers` in place of `file` or `members` to give credentials names",
            lines.place
        )
    })
}

/// Fields of answers whose values have braces, as templates of other programs do.
fn braces(compiled: &Compiled) -> Vec<String> {
    let routes = compiled.snapshot.services.iter();
    let notes = routes.filter_map(|service| {
        let changes = service.response_fields.as_ref()?;
        let mut lines = changes.set.iter().chain(&changes.add);
        let (name, _) = lines.find(|(_, value)| has_braces(value))?;
        Some(shown(service.route()?, name))
    });
    notes.collect()
}

fn shown(route: &str, name: &HeaderName) -> String {
    format!(
        "`response_headers` of route {route} are sent as they are: `{name}` has braces, which stand for nothing"
    )
}

/// Is a word in braces, and nothing that looks like JSON?
fn has_braces(value: &HeaderValue) -> bool {
    let text = String::from_utf8_lossy(value.as_bytes());
    let inside = text
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    inside.is_some_and(|(word, _)| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "_.:-$ {".contains(c);
        !word.trim().is_empty() && word.chars().all(is_letter)
    })
}

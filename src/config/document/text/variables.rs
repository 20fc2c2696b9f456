//! `${VAR}` in the texts of the file, never in keys. Variables are filled in from the environment after the file has
//! been parsed; messages about the resulting values show the values of the variables.

mod bare_values;
mod masking;
mod secret;

pub(in crate::config) use bare_values::LoneValues;

use crate::config::document::{ENOUGH, WITHOUT_QUOTES};
use crate::config::input::grant::refusal::unasked;
use crate::config::input::{Source, Span, Spans};
use crate::config::report::{Code, Details as _, Diagnostic, Findings};
use crate::config::secrets::Secrets;
use crate::config::value::quoted;
use secret::is_path;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::env::VarError;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// The texts that contained variables.
#[derive(Debug, Default)]
pub(in crate::config) struct Variables {
    filled: Vec<FilledText>,
    /// Texts with a variable that could not be filled in, which has been noted.
    failed: Vec<Span>,
    /// Variables that are secret because a secret is expected at one place of their use.
    named: HashSet<String>,
    /// The starts of texts that do not count as secret because of a variable's name: paths, numbers, `true` and
    /// `false`.
    no_secrets: HashSet<usize>,
}

/// A text whose variables have been filled in.
#[derive(Debug)]
struct FilledText {
    span: Span,
    /// The text as written.
    template: String,
    used: Vec<VariableUse>,
    /// Is the text, or a part of it, at the place of a secret?
    starred: bool,
}

/// A variable and its value.
#[derive(Debug)]
struct VariableUse {
    name: String,
    gave: String,
    is_default: bool,
}

/// A variable that cannot be filled in, and its place in the text.
#[derive(Debug)]
struct Slip {
    at: Range<usize>,
    code: Code,
    message: String,
    label: String,
    help: String,
}

/// A lookup in the environment.
type Environment<'e> = &'e dyn Fn(&str) -> Result<String, VarError>;

/// Fills in the variables of all texts in `root`.
pub(in crate::config::document) fn fill(
    source: &Source,
    root: &mut DeTable<'_>,
    found: &mut Findings,
) -> Variables {
    fill_from(&|name| source.variable(name), source, root, found)
}

fn fill_from(
    environment: Environment<'_>,
    source: &Source,
    root: &mut DeTable<'_>,
    found: &mut Findings,
) -> Variables {
    let mut variables = Variables::default();
    for (_, value) in root.iter() {
        variables.learn(source, value);
    }
    each_text(root, &mut Vec::new(), &mut |trail, text, span| {
        if is_path(trail) {
            variables.no_secrets.insert(span.start);
        }
        if text.contains('$') && found.len() <= ENOUGH {
            variables.text(environment, source, text, span, found);
        }
    });
    variables
}

/// Calls `look` with each text below `table` and with the keys that lead to the text.
fn each_text<'t>(
    table: &'t mut DeTable<'_>,
    trail: &mut Vec<&'t str>,
    look: &mut impl FnMut(&[&str], &mut DeString<'_>, &Span),
) {
    for (key, value) in table.iter_mut() {
        trail.push(key.get_ref());
        each_text_of(value, trail, look);
        trail.pop();
    }
}

fn each_text_of<'t>(
    value: &'t mut Spanned<DeValue<'_>>,
    trail: &mut Vec<&'t str>,
    look: &mut impl FnMut(&[&str], &mut DeString<'_>, &Span),
) {
    let span = value.span();
    match value.get_mut() {
        DeValue::String(text) => look(trail, text, &span),
        DeValue::Array(items) => {
            let items = items.iter_mut();
            items.for_each(|item| each_text_of(item, trail, look));
        }
        DeValue::Table(table) => each_text(table, trail, look),
        _ => {}
    }
}

impl Variables {
    fn text(
        &mut self,
        environment: Environment<'_>,
        source: &Source,
        text: &mut DeString<'_>,
        span: &Span,
        found: &mut Findings,
    ) {
        // A variable that an included file must not read is not looked up: the report does not reveal whether the
        // variable is set.
        let refused = RefCell::new(Vec::new());
        let guarded = |name: &str| match unasked(source, span, name) {
            None => environment(name),
            Some(refusal) => {
                refused.borrow_mut().push(refusal);
                Err(VarError::NotPresent)
            }
        };
        let expanded = expand(&guarded, text);
        let refused = refused.into_inner();
        if !refused.is_empty() {
            found.extend(refused);
            return self.failed.push(span.clone());
        }
        match expanded {
            Ok((filled, used)) => {
                let template = std::mem::replace(text, Cow::Owned(filled));
                if !used.is_empty() {
                    self.filled.push(FilledText {
                        starred: source.text().get(span.clone())
                            != source.shown().get(span.clone()),
                        span: span.clone(),
                        template: template.into_owned(),
                        used,
                    });
                }
            }
            Err(slips) => {
                let slips = slips.into_iter();
                found.extend(slips.map(|slip| slip.diagnostic(source, text, span)));
                self.failed.push(span.clone());
            }
        }
    }

    /// Does the text at this place contain a variable that could not be filled in?
    pub(in crate::config::document) fn has_failed(&self, span: &Span) -> bool {
        self.failed.contains(span)
    }

    /// Drops mistakes that only follow from a variable that could not be filled in, and adds the values of variables to
    /// the other mistakes. A value that looks like a secret is not shown.
    pub(in crate::config) fn tell(&self, source: &Source, secrets: &Secrets, found: &mut Findings) {
        let is_local = |diagnostic: &Diagnostic| {
            let code = diagnostic.code;
            matches!(
                code,
                Code::UnsetVariable | Code::BadVariable | Code::NotGranted
            )
        };
        let failed = Spans::new(self.failed.iter().map(|span| (span.clone(), ())));
        let filled = self.filled.iter().enumerate();
        let filled = Spans::new(filled.map(|(at, filled)| (filled.span.clone(), at)));
        found.retain(|one| {
            let echo = !is_local(one) && !about(&failed, one).is_empty();
            let from_outside = one.code == Code::SecretInFile
                && about(&filled, one)
                    .iter()
                    .any(|at| self.filled[*at].is_all_of_the_secret(source));
            !echo && !from_outside
        });
        for one in found.iter_mut() {
            for at in about(&filled, one) {
                let filled = &self.filled[at];
                filled.tell(one, self.is_hidden(filled));
            }
            secrets.mask(one);
        }
    }
}

/// The texts that contain the mistake, or that the mistake is about.
fn about<T: Copy + Ord>(texts: &Spans<T>, diagnostic: &Diagnostic) -> Vec<T> {
    let met = diagnostic.labels().flat_map(|label| {
        let at = &label.span;
        let touching = texts.touching(at);
        touching.filter(|(span, _)| at.start < span.end && span.start < at.end)
    });
    let mut met: Vec<T> = met.map(|(_, text)| *text).collect();
    met.sort();
    met.dedup();
    met
}

impl FilledText {
    fn tell(&self, diagnostic: &mut Diagnostic, is_hidden: bool) {
        if is_hidden {
            let names: Vec<String> = self.used.iter().map(VariableUse::spelled).collect();
            diagnostic.message = format!("this is wrong with {} filled in", names.join(" and "));
            diagnostic.help = None;
            for label in diagnostic.labels_mut() {
                label.text.clear();
            }
            if let Some(primary) = &mut diagnostic.primary {
                primary.text = diagnostic.code.about().trim_end_matches('.').to_owned();
            }
        }
        // Advice that repeats the value of the whole text is dropped: at the next start the variable may have another
        // value.
        let is_bare = |help: &String| help.ends_with(WITHOUT_QUOTES);
        if let Some(help) = diagnostic.help.as_mut().filter(|help| is_bare(help)) {
            let one = self.used.first().map(|used| used.name.as_str());
            let one = one.unwrap_or_default();
            *help = format!(
                "a number, `true` or `false` comes from one variable alone: `\"${{{one}}}\"`"
            );
        }
        for used in &self.used {
            let gave = if is_hidden {
                "`***`".to_owned()
            } else {
                quoted(&used.gave)
            };
            let which = if used.is_default { ", its default" } else { "" };
            let statement = format!("{} is {gave}{which}", used.spelled());
            match &mut diagnostic.note {
                Some(note) if note.contains(&statement) => {}
                Some(note) => {
                    note.push('\n');
                    note.push_str(&statement);
                }
                none => *none = Some(statement),
            }
        }
    }

    /// Does the secret come only from variables, with no part of it written in the file?
    fn is_all_of_the_secret(&self, source: &Source) -> bool {
        let written = source.written(&self.span);
        let part = match written.split_once("://") {
            Some((_, rest)) => {
                let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
                user.split_once(':').map_or(user, |(_, password)| password)
            }
            None => written,
        };
        let mut rest = part.trim_matches(['"', '\'']);
        for scheme in ["Bearer ", "Basic "] {
            rest = rest.strip_prefix(scheme).unwrap_or(rest);
        }
        while let Some(behind) = rest.strip_prefix("${") {
            rest = behind.split_once('}').map_or("", |(_, behind)| behind);
        }
        rest.is_empty()
    }
}

impl VariableUse {
    /// The variable as the file writes it, without its default.
    fn spelled(&self) -> String {
        format!("`${{{}}}`", self.name)
    }
}

impl Slip {
    /// The diagnostic at the variable itself, or at the whole text if the text has escapes.
    fn diagnostic(self, source: &Source, text: &str, span: &Span) -> Diagnostic {
        let written = source.written(span);
        let place = match written.find(text) {
            Some(at) => {
                let start = span.start + at;
                start + self.at.start..start + self.at.end
            }
            None => span.clone(),
        };
        Diagnostic::error(self.code, self.message)
            .at(&place, self.label)
            .help(self.help)
    }
}

/// `text` with its variables filled in and `$$` as `$`; a `$` before any other character stays.
fn expand(
    environment: Environment<'_>,
    text: &str,
) -> Result<(String, Vec<VariableUse>), Vec<Slip>> {
    let (mut out, mut used, mut slips) =
        (String::with_capacity(text.len()), Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(dollar) = text[at..].find('$') {
        out.push_str(&text[at..at + dollar]);
        let start = at + dollar;
        let behind = &text[start + 1..];
        let Some(inside) = behind.strip_prefix('{') else {
            out.push('$');
            at = start + 1 + usize::from(behind.starts_with('$'));
            continue;
        };
        let closed = inside.find('}');
        at = closed.map_or(text.len(), |end| start + "${".len() + end + 1);
        let given = match closed {
            Some(end) => given(environment, &inside[..end]),
            None => Err(misspelt("its `}` is missing")),
        };
        match given {
            Ok(one) => {
                out.push_str(&one.gave);
                used.push(one);
            }
            Err(slip) => slips.push(Slip {
                at: start..at,
                ..slip
            }),
        }
    }
    out.push_str(&text[at..]);
    if slips.is_empty() {
        Ok((out, used))
    } else {
        Err(slips)
    }
}

/// The value of `NAME`, `NAME:-default` or `NAME:?message`.
fn given(environment: Environment<'_>, inside: &str) -> Result<VariableUse, Slip> {
    let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let (name, rest) = inside.split_at(end.unwrap_or(inside.len()));
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(misspelt(
            "a name has letters, digits and `_`, and no digit in front",
        ));
    }
    if rest.contains("${") {
        return Err(misspelt("a default has no variables of its own"));
    }
    let used = |gave: String, is_default| VariableUse {
        name: name.to_owned(),
        gave,
        is_default,
    };
    let value = match environment(name) {
        Ok(value) => Some(value),
        Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(_)) => return Err(unset(name, "is not UTF-8 text", "")),
    };
    if rest.is_empty() {
        let value = value.ok_or_else(|| unset(name, "is not set in the environment", ""));
        return value.map(|value| used(value, false));
    }
    let value = value.filter(|value| !value.is_empty());
    match (value, rest.strip_prefix(":-"), rest.strip_prefix(":?")) {
        (Some(value), Some(_), _) | (Some(value), _, Some(_)) => Ok(used(value, false)),
        (None, Some(default), _) => Ok(used(default.to_owned(), true)),
        (None, _, Some(message)) => {
            let why = "is not set in the environment, or empty";
            Err(unset(name, why, message))
        }
        (_, None, None) => Err(misspelt("behind the name stands `}`, `:-` or `:?`")),
    }
}

fn unset(name: &str, why: &str, label: &str) -> Slip {
    Slip {
        at: 0..0,
        code: Code::UnsetVariable,
        message: format!("`{name}` {why}"),
        label: label.to_owned(),
        help: format!(
            "set it where the gateway is started, or write a default: `${{{name}:-...}}`; `check`, `explain` and `simulate` \
             take a unit's variables by `--env-file FILE`"
        ),
    }
}

fn misspelt(label: &str) -> Slip {
    Slip {
        at: 0..0,
        code: Code::BadVariable,
        message: "this is not a variable".to_owned(),
        label: label.to_owned(),
        help:
            "write `${NAME}`, `${NAME:-default}` or `${NAME:?message}`; and `$$` for a `$` itself"
                .to_owned(),
    }
}

#[cfg(test)]
mod tests;

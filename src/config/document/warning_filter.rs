//! `ignore_warnings`: which warnings of a table are meant, so that a check reports them no more.

use super::super::diagnostic::{Code, Diagnostic, Severity};
use super::super::source::{At, Span};
use super::super::span::Spans;
use super::super::suggest::nearest;
use super::super::value::quoted;
use super::{IGNORE_WARNINGS, TABLES, fields};
use std::collections::HashMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What one table, or the file as a whole, ignores.
#[derive(Debug)]
pub(in crate::config) struct WarningFilter {
    /// `[limits.per-ip]`, or `the file`.
    title: String,
    /// What it consists of; nothing of the file, which is everywhere.
    places: Option<Vec<Span>>,
    codes: Vec<At<Code>>,
}

/// Reads all of them; that of the file leaves the tree.
pub(super) fn read(root: &mut DeTable<'_>, found: &mut Vec<Diagnostic>) -> Vec<WarningFilter> {
    let mut all = Vec::new();
    if let Some(value) = root.remove(IGNORE_WARNINGS.name) {
        all.push(WarningFilter {
            title: "the file".to_owned(),
            places: None,
            codes: codes(&value, found),
        });
    }
    for vocabulary in TABLES {
        let Some((key, value)) = root.get_key_value(vocabulary.name) else {
            continue;
        };
        let DeValue::Table(table) = value.get_ref() else {
            continue;
        };
        if !vocabulary.named {
            all.extend(of(vocabulary.title(""), &key.span(), value, found));
            continue;
        }
        for (name, entry) in table {
            let title = vocabulary.title(name.get_ref());
            all.extend(of(title, &name.span(), entry, found));
        }
    }
    all
}

fn of(
    title: String,
    key: &Span,
    value: &Spanned<DeValue<'_>>,
    found: &mut Vec<Diagnostic>,
) -> Option<WarningFilter> {
    let DeValue::Table(table) = value.get_ref() else {
        return None;
    };
    let codes = codes(table.get(IGNORE_WARNINGS.name)?, found);
    let mut places = Vec::new();
    spread(key, value, &mut places);
    Some(WarningFilter {
        title,
        places: Some(places),
        codes,
    })
}

/// Where a table is written: its keys may stand far apart.
fn spread(key: &Span, value: &Spanned<DeValue<'_>>, places: &mut Vec<Span>) {
    places.extend([key.clone(), value.span()]);
    if let DeValue::Table(table) = value.get_ref() {
        for (key, value) in table {
            spread(&key.span(), value, places);
        }
    }
}

fn codes(value: &Spanned<DeValue<'_>>, found: &mut Vec<Diagnostic>) -> Vec<At<Code>> {
    let items: Vec<(&DeValue<'_>, Span)> = match value.get_ref() {
        DeValue::Array(items) => items
            .iter()
            .map(|item| (item.get_ref(), item.span()))
            .collect(),
        single => vec![(single, value.span())],
    };
    let read = items.into_iter().filter_map(|(item, span)| {
        let wrong = match item {
            DeValue::String(text) => match Code::ALL.iter().find(|code| code.as_str() == text) {
                Some(code) => return Some(At::new(*code, span)),
                None => unknown(text, &span),
            },
            other => Diagnostic::error(
                Code::WrongType,
                format!(
                    "`{}` takes {}, not {}",
                    IGNORE_WARNINGS.name,
                    IGNORE_WARNINGS.shape().describe(),
                    fields::describe(other)
                ),
            )
            .at(&span, "")
            .help(format!(
                "for example `{} = {}`",
                IGNORE_WARNINGS.name, IGNORE_WARNINGS.example
            )),
        };
        found.push(wrong);
        None
    });
    read.collect()
}

fn unknown(text: &str, span: &Span) -> Diagnostic {
    let near = nearest(text, Code::ALL.iter().map(|code| code.as_str()));
    let help = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "a warning has its code in brackets: `warning[waits-longer]`".to_owned(),
    };
    Diagnostic::error(
        Code::BadChoice,
        format!("{} is the code of no warning", quoted(text)),
    )
    .at(span, "")
    .help(help)
}

/// Marks what is ignored among `found`, and tells what is not there to be ignored, where `may_tell`: what is wrong may hide
/// a warning.
pub(in crate::config) fn apply(all: &[WarningFilter], found: &mut Vec<Diagnostic>, may_tell: bool) {
    if all.is_empty() {
        return;
    }
    let mut idle = Vec::new();
    let warnings = by_code(found);
    for ignored in all {
        for code in &ignored.codes {
            let met = warnings.get(&code.value).map(|told| ignored.meets(told));
            let met = met.unwrap_or_default();
            // A server that is not asked gives no warning that could be ignored.
            if met.is_empty() && !code.value.is_found_by_asking() {
                idle.push(ignored.idle(code));
            }
            for at in met {
                found[at].severity = Severity::Ignored;
            }
        }
    }
    let has_errors = found.iter().any(|one| one.severity == Severity::Error);
    if may_tell && !has_errors {
        found.extend(idle);
    }
}

/// The warnings of each code by all their places, as positions in `found`; those about the file as a whole have none.
fn by_code(found: &[Diagnostic]) -> HashMap<Code, Spans<usize>> {
    let mut places: HashMap<Code, Vec<(Span, usize)>> = HashMap::new();
    let warnings = found.iter().enumerate();
    for (at, one) in warnings.filter(|(_, one)| one.severity != Severity::Error) {
        let labels = one.primary.iter().chain(&one.others);
        let spans = labels.map(|label| &label.span).chain(&one.concerns);
        let of_code = places.entry(one.code).or_default();
        let before = of_code.len();
        of_code.extend(spans.map(|span| (span.clone(), at)));
        if of_code.len() == before {
            of_code.push((usize::MAX - 1..usize::MAX - 1, at));
        }
    }
    let all = places.into_iter();
    all.map(|(code, places)| (code, Spans::new(places)))
        .collect()
}

impl WarningFilter {
    /// The warnings of which any place is in this table.
    fn meets(&self, told: &Spans<usize>) -> Vec<usize> {
        let Some(places) = &self.places else {
            return told.all().map(|(_, at)| *at).collect();
        };
        let met = places.iter().flat_map(|place| {
            let near = told.near(place);
            near.filter(|(span, _)| place.contains(&span.start) || span.contains(&place.start))
        });
        met.map(|(_, at)| *at).collect()
    }

    fn idle(&self, code: &At<Code>) -> Diagnostic {
        Diagnostic::warning(
            Code::IgnoresNothing,
            format!("nothing in {} warns of `{}`", self.shown(), code.value),
        )
        .at(&code.span, "there is nothing to ignore")
        .help("take it out: it would hide what comes later")
    }

    fn shown(&self) -> String {
        match self.places {
            Some(_) => format!("`{}`", self.title),
            None => self.title.clone(),
        }
    }
}

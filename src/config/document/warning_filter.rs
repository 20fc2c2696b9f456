//! `ignore_warnings`: the warnings of a table that a check does not report.

use super::{IGNORE_WARNINGS, TABLES, one_or_all, type_error};
use crate::config::input::{At, Span, Spans};
use crate::config::report::{Code, Details as _, Diagnostic, Findings, Severity};
use crate::config::value::quoted;
use std::collections::HashMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The warnings that one table ignores, or that the whole file ignores.
#[derive(Debug, Clone)]
pub(in crate::config) struct WarningFilter {
    /// `[limits.per-ip]`, or `the file`.
    title: String,
    /// The places of the table; `None` for the whole file.
    places: Option<Vec<Span>>,
    codes: Vec<At<Code>>,
}

/// Reads every `ignore_warnings`. The top-level `ignore_warnings` is removed from the tree.
pub(super) fn read_filters(root: &mut DeTable<'_>, found: &mut Findings) -> Vec<WarningFilter> {
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
            all.extend(filter_of(vocabulary.title(""), &key.span(), value, found));
            continue;
        }
        for (name, entry) in table {
            let title = vocabulary.title(name.get_ref());
            all.extend(filter_of(title, &name.span(), entry, found));
        }
    }
    all
}

fn filter_of(
    title: String,
    key: &Span,
    value: &Spanned<DeValue<'_>>,
    found: &mut Findings,
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

/// The places of a table, whose keys may be far apart.
fn spread(key: &Span, value: &Spanned<DeValue<'_>>, places: &mut Vec<Span>) {
    places.extend([key.clone(), value.span()]);
    if let DeValue::Table(table) = value.get_ref() {
        for (key, value) in table {
            spread(&key.span(), value, places);
        }
    }
}

fn codes(value: &Spanned<DeValue<'_>>, found: &mut Findings) -> Vec<At<Code>> {
    let read = one_or_all(value).iter().filter_map(|item| {
        let (span, item) = (item.span(), item.get_ref());
        let Some(text) = item.as_str() else {
            found.push(type_error(&IGNORE_WARNINGS, "", item).at(&span, ""));
            return None;
        };
        let code = Code::named(text);
        if code.is_none() {
            let help = match Code::nearest(text) {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => "a warning has its code in brackets: `warning[waits-longer]`".to_owned(),
            };
            let message = format!("{} is the code of no warning", quoted(text));
            found
                .error(Code::BadChoice, message)
                .at(&span, "")
                .help(help);
        }
        Some(At::new(code?, span))
    });
    read.collect()
}

/// Is a finding with this code ignored at `place`? Notes and log lines use this lookup.
pub(in crate::config) fn ignores(all: &[WarningFilter], code: Code, place: &Span) -> bool {
    let reported = Spans::new([(place.clone(), 0)]);
    all.iter().any(|filter| {
        let mut codes = filter.codes.iter();
        codes.any(|at| at.value == code) && !filter.meets(&reported).is_empty()
    })
}

/// Marks the ignored warnings in `found`. If `may_tell` is set, it also reports codes that ignore no warning. After an
/// error these codes are not reported: the error may hide the warning.
pub(in crate::config) fn apply(all: &[WarningFilter], found: &mut Findings, may_tell: bool) {
    if all.is_empty() {
        return;
    }
    let mut idle = Vec::new();
    let warnings = by_code(found);
    for ignored in all {
        for code in &ignored.codes {
            let met = warnings
                .get(&code.value)
                .map(|reported| ignored.meets(reported));
            let met = met.unwrap_or_default();
            // A code of a later stage may still occur; other codes here match no warning.
            if met.is_empty() && !code.value.is_found_later() {
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

/// The warnings of each code by all their places, as positions in `found`. Warnings about the whole file have no place.
fn by_code(found: &[Diagnostic]) -> HashMap<Code, Spans<usize>> {
    let mut places: HashMap<Code, Vec<(Span, usize)>> = HashMap::new();
    let warnings = found.iter().enumerate();
    for (at, one) in warnings.filter(|(_, one)| one.severity != Severity::Error) {
        let spans = one.labels().map(|label| &label.span).chain(&one.concerns);
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
    /// The warnings that have a place in this table.
    fn meets(&self, reported: &Spans<usize>) -> Vec<usize> {
        let Some(places) = &self.places else {
            return reported.all().map(|(_, at)| *at).collect();
        };
        let met = places.iter().flat_map(|place| {
            let touching = reported.touching(place);
            touching.filter(|(span, _)| place.contains(&span.start) || span.contains(&place.start))
        });
        met.map(|(_, at)| *at).collect()
    }

    fn idle(&self, code: &At<Code>) -> Diagnostic {
        let message = format!("nothing in {} warns of `{}`", self.shown(), code.value);
        Diagnostic::warning(Code::IgnoresNothing, message)
            .at(&code.span, "there is nothing to ignore")
            .help("take it out: it would hide later warnings")
    }

    fn shown(&self) -> String {
        match self.places {
            Some(_) => format!("`{}`", self.title),
            None => self.title.clone(),
        }
    }
}

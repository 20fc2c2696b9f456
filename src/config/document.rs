//! The file as it is written: every key with its place, unknown ones refused, values read, nothing decided.
//!
//! Walked by hand rather than deserialized, so that one run finds every mistake and each has its place.

mod fields;
mod limit;
mod server;
mod store;
mod syntax;
mod target;

pub(super) use limit::{Algorithm, Limit, Over};
pub(super) use server::{Admin, Log, Response, Server};
pub(super) use store::{Password, Store};
pub(super) use target::{Route, Upstream};

use super::diagnostic::{Code, Diagnostic};
use super::source::{At, Source, Span};
use super::suggest::{all_of, nearest};
use super::value::quoted;
use super::vocabulary::{self, TABLES};
use fields::Fields;
use toml::de::{DeTable, DeValue};

/// A key of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Given<T> {
    /// Not written.
    #[default]
    No,
    /// Written, and a mistake that has been reported.
    Bad,
    /// Written.
    Yes(At<T>),
}

impl<T> Given<T> {
    /// The value with its place.
    pub(super) fn at(&self) -> Option<&At<T>> {
        match self {
            Self::Yes(at) => Some(at),
            Self::No | Self::Bad => None,
        }
    }

    /// The value.
    pub(super) fn get(&self) -> Option<&T> {
        self.at().map(|at| &at.value)
    }

    /// Is it a mistake that has been reported?
    pub(super) fn is_bad(&self) -> bool {
        matches!(self, Self::Bad)
    }

    /// Is there nothing at all?
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::No)
    }
}

impl<T: Copy> Given<T> {
    /// The value, or what holds without it.
    pub(super) fn or(&self, default: T) -> T {
        self.get().copied().unwrap_or(default)
    }
}

/// A list of names or values; empty where none is written.
pub(super) type List<T> = Given<Vec<At<T>>>;

impl<T> List<T> {
    /// Its entries.
    pub(super) fn entries(&self) -> &[At<T>] {
        self.get().map_or(&[], Vec::as_slice)
    }
}

/// The whole file.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) server: Server,
    pub(super) log: Log,
    pub(super) admin: Option<Admin>,
    pub(super) store: Store,
    pub(super) response: Response,
    pub(super) limits: Vec<Limit>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) routes: Vec<Route>,
    /// Parts of the file could not be read, so what seems absent may be there.
    pub(super) torn: bool,
    /// Nothing at all is written.
    pub(super) empty: bool,
}

/// Reads `source` and adds every mistake of form to `found`.
pub(super) fn read(source: &Source, found: &mut Vec<Diagnostic>) -> Document {
    let (root, errors) = DeTable::parse_recoverable(source.text());
    let mut document = Document {
        torn: syntax::report(source, root.get_ref(), &errors, found),
        empty: root.get_ref().is_empty(),
        ..Document::default()
    };
    for (key, value) in root.get_ref() {
        let (name, span) = (key.get_ref().as_ref(), key.span());
        match TABLES.iter().find(|table| table.name == name) {
            None => found.push(unknown_table(name, &span, value.get_ref())),
            Some(vocabulary) => {
                let value = (value.get_ref(), value.span());
                section(source, &mut document, vocabulary, &span, value, found);
            }
        }
    }
    document
}

/// One table of the top level.
fn section(
    source: &Source,
    document: &mut Document,
    vocabulary: &'static vocabulary::Table,
    key: &Span,
    (value, span): (&DeValue<'_>, Span),
    found: &mut Vec<Diagnostic>,
) {
    let DeValue::Table(table) = value else {
        found.push(not_a_table(vocabulary, vocabulary.name, value, &span));
        return;
    };
    if vocabulary.named {
        for (name, entry) in table {
            let at = At::new(name.get_ref().to_string(), name.span());
            let DeValue::Table(fields) = entry.get_ref() else {
                found.push(misplaced(vocabulary, &at, entry.get_ref()));
                continue;
            };
            check_name(vocabulary, &at, found);
            let place = heading(source, &entry.span(), &at.span);
            let fields = Fields::new(vocabulary, &at.value, place, fields, found);
            match vocabulary.name {
                "limits" => document.limits.push(limit::read(at, fields)),
                "upstreams" => document.upstreams.push(target::upstream(at, fields)),
                _ => document.routes.push(target::route(at, fields)),
            }
        }
        return;
    }
    let place = heading(source, &span, key);
    let fields = Fields::new(vocabulary, vocabulary.name, place, table, found);
    match vocabulary.name {
        "server" => document.server = server::server(fields),
        "log" => document.log = server::log(fields),
        "admin" => document.admin = Some(server::admin(fields)),
        "store" => document.store = store::read(fields),
        _ => document.response = server::response(fields),
    }
}

/// What to point at for a whole table: its header line; its key when it is written inline.
fn heading(source: &Source, value: &Span, key: &Span) -> Span {
    if source
        .text()
        .get(value.clone())
        .is_some_and(|text| text.starts_with('['))
    {
        value.clone()
    } else {
        key.clone()
    }
}

/// Names go into response fields, metrics and Redis keys.
fn check_name(vocabulary: &vocabulary::Table, name: &At<String>, found: &mut Vec<Diagnostic>) {
    let good = (1..=64).contains(&name.value.len())
        && name
            .value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if !good {
        found.push(
            Diagnostic::error(
                Code::BadName,
                format!(
                    "{} cannot be the name of {}",
                    quoted(&name.value),
                    vocabulary.noun
                ),
            )
            .at(
                &name.span,
                "letters, digits, `_` and `-`, at most 64 of them",
            )
            .note("names appear in response fields, metrics and Redis keys"),
        );
    }
}

fn unknown_table(name: &str, span: &Span, value: &DeValue<'_>) -> Diagnostic {
    let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    let what = if matches!(value, DeValue::Table(_)) {
        "table"
    } else {
        "key"
    };
    if ["groups", "include", "defaults"].contains(&name) {
        return Diagnostic::error(
            Code::NotAvailable,
            format!("`{name}` is not available in this version"),
        )
        .at(span, "");
    }
    let owner = TABLES
        .iter()
        .find(|table| what == "key" && table.key(name).is_some());
    let help = match (owner, nearest(name, names.iter().copied())) {
        (Some(owner), _) => format!("`{name}` belongs under `{}`", owner.title("NAME")),
        (_, Some(near)) => format!("did you mean `{near}`?"),
        _ => format!("the tables are {}", all_of(&names)),
    };
    Diagnostic::error(Code::UnknownKey, format!("unknown {what} {}", quoted(name)))
        .at(span, "")
        .help(help)
}

/// `limits = 3`, `limits = []`, `[[limits]]`.
fn not_a_table(
    vocabulary: &vocabulary::Table,
    name: &str,
    value: &DeValue<'_>,
    span: &Span,
) -> Diagnostic {
    Diagnostic::error(
        Code::WrongType,
        format!(
            "{} is a table, not {}",
            quoted(name),
            fields::describe(value)
        ),
    )
    .at(span, "")
    .help(format!(
        "write `{}`, and its keys below it",
        vocabulary.title("NAME")
    ))
}

/// `[limits] rate = ...`: a key where a name belongs.
fn misplaced(vocabulary: &vocabulary::Table, name: &At<String>, value: &DeValue<'_>) -> Diagnostic {
    if vocabulary.key(&name.value).is_none() {
        return not_a_table(vocabulary, &name.value, value, &name.span);
    }
    Diagnostic::error(
        Code::WrongType,
        format!("`{}` stands in `[{}]` itself", name.value, vocabulary.name),
    )
    .at(
        &name.span,
        format!(
            "which {} is this about?",
            vocabulary.name.trim_end_matches('s')
        ),
    )
    .help(format!("give it a name: `{}`", vocabulary.title("NAME")))
}

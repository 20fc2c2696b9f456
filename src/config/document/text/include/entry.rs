//! One entry of `include` as written: a text, or a table with grants and bounds of the files.

use crate::config::document::{
    Fields, INCLUDE, Items, Section as _, Variables, any, empty_list, filled_texts, table, texts,
    written_value,
};
use crate::config::input::files::fence::AllowedPaths;
use crate::config::input::grant::{Grant, GrantedNames};
use crate::config::input::{At, Source, Span};
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::{host, path};
use crate::route::{HostPattern, PathPattern};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

table! {
    /// Included files, and the grants of the entry to them.
    IncludeTable = INCLUDE_ENTRY, "include", "an entry of `include`";

    /// The files, written as in an entry of `include` that is a text.
    files: Items<String> = filled_texts(any, empty_list("leave the entry out for no files")), Required, "\"team-a/*.toml\"";

    /// Hosts that the files' routes may be for, written as in a route. Each route has a `host`, which is one of these
    /// hosts or below one of them.
    hosts: Items<HostPattern> = filled_texts(host, empty_list("leave it out for any host")), Words("any host"), "[\"a.example.com\"]";

    /// Paths that the files' routes may be for, written as in a route. Each route's `path` takes only requests that one
    /// of these paths would take.
    paths: Items<PathPattern> = filled_texts(path, empty_list("leave it out for any path")), Words("any path"), "[\"/a/{*rest}\"]";

    /// Files that the included files may read outside their own folder: for `{ file = "..." }`, a group's `file`, or
    /// the `body` of a limit. They are paths from the folder of this file on, with patterns. The place to which a path
    /// leads through all links counts. A link counts by its own name if it leads to a place in the folder with which
    /// the pattern begins.
    secrets: Items<String> = texts(any), Words("none"), "[\"secrets.d/team-a-*\"]";

    /// Names of the variables that the included files may read, as `${NAME}` or `{ env = "NAME" }`, with patterns.
    variables: Items<String> = texts(any), Words("none"), "[\"TEAM_A_*\"]";

    /// Names of the limits of `[defaults]` that the files' routes may drop with `"!NAME"`, with patterns.
    drops: Items<String> = texts(any), Words("none"), "[\"per-ip\"]";

    /// Names of the upstreams of other files that the files' routes may lead to, with patterns, and sockets (`unix:/path`)
    /// outside their own folders that the files' upstreams may have, also with patterns. The place to which a path of a
    /// socket leads through all links counts.
    upstreams: Items<String> = texts(any), Words("none"), "[\"orders\", \"unix:/run/team-a/*.sock\"]";
}

/// Files to include, and their grant.
pub(super) struct IncludeEntry {
    pub(super) files: Vec<At<String>>,
    pub(super) grant: Arc<Grant>,
}

/// Every entry that can be read.
pub(super) fn all_entries(
    source: &Source,
    value: &Spanned<DeValue<'_>>,
    variables: &Variables,
    found: &mut Findings,
) -> Vec<IncludeEntry> {
    let one = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(_) if variables.has_failed(&item.span()) => None,
        DeValue::String(text) => Some(plain(source, At::new(text.to_string(), item.span()))),
        DeValue::Table(table) => Some(with_grant(source, table, item.span(), variables, found)),
        other => {
            let wrong = written_value::type_error(&INCLUDE, "", other);
            found.push(wrong.at(&item.span(), ""));
            None
        }
    };
    written_value::one_or_all(value)
        .iter()
        .filter_map(one)
        .collect()
}

/// A text grants nothing.
fn plain(source: &Source, file: At<String>) -> IncludeEntry {
    let grant = Grant {
        span: file.span.clone(),
        written: vec![("files", vec![source.written(&file.span).to_owned()])],
        ..Grant::default()
    };
    IncludeEntry {
        files: vec![file],
        grant: Arc::new(grant),
    }
}

fn with_grant(
    source: &Source,
    table: &DeTable<'_>,
    span: Span,
    variables: &Variables,
    found: &mut Findings,
) -> IncludeEntry {
    let name = At::new(INCLUDE.name.to_owned(), span.clone());
    let mut fields = Fields::new(&INCLUDE_ENTRY, name, span.clone(), table, found);
    let IncludeTable {
        files,
        hosts,
        paths,
        secrets,
        variables: variable_names,
        drops,
        upstreams,
    } = IncludeTable::read(&mut fields);
    let mut allowed = |at: &At<String>, path: &str| {
        let read = AllowedPaths::read(&source.resolve_path(at.span.start, path));
        read.map_err(|why| {
            fields
                .error(Code::BadPattern, "this is no pattern of files")
                .at(&at.span, why);
        })
        .ok()
    };
    let secrets = secrets.entries().iter();
    let secrets = secrets.filter_map(|at| allowed(at, &at.value)).collect();
    let (mut names, mut sockets) = (Vec::new(), Vec::new());
    for at in upstreams.entries() {
        match socket_path(&at.value) {
            Some(path) => sockets.extend(allowed(at, path)),
            None => names.push(at.clone()),
        }
    }
    let grant = Grant {
        span,
        written: written(source, table),
        hosts: (!hosts.is_absent()).then(|| hosts.values()),
        paths: (!paths.is_absent()).then(|| paths.values()),
        secrets,
        variables: GrantedNames::new(variable_names.entries().to_vec()),
        drops: GrantedNames::new(drops.entries().to_vec()),
        upstreams: GrantedNames::new(names),
        sockets,
    };
    let files = files.entries().iter();
    let files = files.filter(|file| !variables.has_failed(&file.span));
    IncludeEntry {
        files: files.cloned().collect(),
        grant: Arc::new(grant),
    }
}

/// The path of a socket, if the entry is a socket.
fn socket_path(text: &str) -> Option<&str> {
    let path = text.strip_prefix("unix:")?;
    Some(path.strip_prefix("//").unwrap_or(path))
}

/// The keys of an entry with their values as written in the file.
fn written(source: &Source, table: &DeTable<'_>) -> Vec<(&'static str, Vec<String>)> {
    let known = INCLUDE_ENTRY.keys.iter();
    let present = known.filter_map(|key| Some((key.name, table.get(key.name)?)));
    present
        .map(|(name, value)| {
            let items = written_value::one_or_all(value).iter();
            let items = items.map(|item| source.written(&item.span()).to_owned());
            (name, items.collect())
        })
        .collect()
}

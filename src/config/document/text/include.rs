//! `include`: other files with limits, groups, upstreams and routes. Their texts are appended to the main file's text
//! in the source; their tables are merged into its tree.

mod entry;

pub(in crate::config::document) use entry::INCLUDE_ENTRY;

use super::{syntax, variables};
use crate::config::MOST_BYTES;
use crate::config::document::{
    Document, IGNORE_WARNINGS, INCLUDE, TABLES, Variables, table_named, unknown_table, vocabulary,
};
use crate::config::input::files::fence::real;
use crate::config::input::files::glob;
use crate::config::input::grant::Grant;
use crate::config::input::{At, Files, Source, Span};
use crate::config::report::{Code, Details as _, Findings, suggest};
use entry::IncludeEntry;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// The most files that can be included, and the most bytes of all files together.
const MOST_FILES: usize = 1_000;
const MOST_TOGETHER: usize = 16 * 1024 * 1024;

/// A key and its value.
pub(in crate::config::document) type TopEntry<'a> = (Spanned<DeString<'a>>, Spanned<DeValue<'a>>);

/// Reads the files that `source` includes, and appends their texts to the main file's text.
pub(in crate::config) fn gather(source: &mut Source, files: &mut Files, found: &mut Findings) {
    if !source.file().contains(INCLUDE.name) {
        return;
    }
    let main = real(Path::new(source.name()));
    let mut reader = IncludeReader {
        seen: HashMap::from([(main.clone(), None)]),
        main,
        bytes: 0,
        source,
        files,
        found,
    };
    let listed = entries(reader.source);
    let all = listed
        .iter()
        .flat_map(|listed| listed.files.iter().map(|file| (file, &listed.grant)));
    for (file, grant) in all {
        let before = reader.found.len();
        if glob::is_pattern(&file.value) {
            reader.pattern(file, grant);
        } else {
            reader.file(file, grant);
        }
        let new = &reader.found[before..];
        if new.iter().any(|one| one.code == Code::Unreadable) {
            reader.source.tear();
        }
    }
}

/// The entries that can be read; mistakes are reported when the whole tree is read.
fn entries(source: &Source) -> Vec<IncludeEntry> {
    let (root, _) = DeTable::parse_recoverable(source.file());
    let mut only = DeTable::new();
    if let Some((key, value)) = root.into_inner().remove_entry(INCLUDE.name) {
        only.insert(key, value);
    }
    let untold = &mut Findings::default();
    let variables = variables::fill(source, &mut only, untold);
    match only.get(INCLUDE.name) {
        Some(value) => entry::all_entries(source, value, &variables, untold),
        None => Vec::new(),
    }
}

/// The way in which an entry names a file: by its path or by a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundBy {
    Pattern,
    Path,
}

struct IncludeReader<'g> {
    source: &'g mut Source,
    files: &'g mut Files,
    found: &'g mut Findings,
    /// The path of the main file.
    main: PathBuf,
    /// The paths of the files that have been included, with the main file, and the grant of each file.
    seen: HashMap<PathBuf, Option<Arc<Grant>>>,
    bytes: usize,
}

impl IncludeReader<'_> {
    fn pattern(&mut self, entry: &At<String>, grant: &Arc<Grant>) {
        if let Err(why) = glob::check_pattern(&entry.value) {
            return self.wrong(entry, Code::BadPattern, "this is no pattern of files", why);
        }
        let path = self.source.resolve_path(entry.span.start, &entry.value);
        let mut matched = match self.files.matching(&path) {
            Ok(matched) => matched,
            Err(error) => {
                let message = format!("cannot look for `{}`: {error}", entry.value);
                return self.wrong(entry, Code::Unreadable, &message, "");
            }
        };
        matched.retain(|path| real(path) != self.main);
        if matched.is_empty() {
            let message = format!("no file is called `{}`", entry.value);
            self.found
                .warning(Code::MatchesNothing, message)
                .at(&entry.span, "nothing is included")
                .help("a relative path begins in the folder of this file; a file that matches later is included then");
        }
        for path in matched {
            if is_described(&path, &entry.value) {
                self.take(&path, entry, grant, FoundBy::Pattern);
            } else {
                self.disguised(&path, entry);
            }
        }
    }

    /// Reports a link whose target has a name that the pattern does not match: messages that show the text could reveal
    /// a file of any kind.
    fn disguised(&mut self, path: &Path, entry: &At<String>) {
        let (path, pattern) = (path.display(), &entry.value);
        let message = format!("`{path}` leads to a file that `{pattern}` does not describe");
        self.wrong(entry, Code::NotGranted, &message, "it is not included");
    }

    fn file(&mut self, entry: &At<String>, grant: &Arc<Grant>) {
        let path = self.source.resolve_path(entry.span.start, &entry.value);
        if path.is_dir() {
            // A file may later replace the folder.
            let _ = self.files.read(&path, MOST_BYTES);
            let folder = entry.value.trim_end_matches('/');
            self.found
                .error(Code::Unreadable, format!("`{}` is a folder", entry.value))
                .at(&entry.span, "")
                .help(format!("write `\"{folder}/*.toml\"` for the files in it"));
            return;
        }
        self.take(&path, entry, grant, FoundBy::Path);
    }

    /// Includes one file. Two patterns may find the same file; writing one path twice is a mistake.
    fn take(&mut self, path: &Path, entry: &At<String>, grant: &Arc<Grant>, by: FoundBy) {
        let name = path.display().to_string();
        let place = real(path);
        if let Some(first) = self.seen.get(&place) {
            let differs = first.as_ref().filter(|first| {
                !(Arc::ptr_eq(first, grant) || first.is_plain() && grant.is_plain())
            });
            if let Some(first) = differs {
                two_entries(&name, &grant.span, &first.span, self.found);
            } else if by == FoundBy::Path {
                let message = match first {
                    None => "the file includes itself".to_owned(),
                    Some(_) => format!("`{name}` is included twice"),
                };
                self.wrong(entry, Code::Duplicate, &message, "");
            }
            return;
        }
        self.seen.insert(place, Some(Arc::clone(grant)));
        if self.seen.len() > MOST_FILES + 1 {
            if self.seen.len() == MOST_FILES + 2 {
                let message = format!("more than {MOST_FILES} files are included");
                self.wrong(entry, Code::Unreadable, &message, "one too many");
            }
            return;
        }
        let text = match self.files.read(path, MOST_BYTES).map(String::from_utf8) {
            Ok(Ok(text)) if text.contains('\0') => Err("it is not text".to_owned()),
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(format!(
                "it is not UTF-8 text, from byte {} on",
                error.utf8_error().valid_up_to() + 1
            )),
            Err(error) => Err(error.to_string()),
        };
        match text {
            Ok(text) if self.bytes + text.len() > MOST_TOGETHER => {
                let most = MOST_TOGETHER / 1024 / 1024;
                let message = format!("included files have more than {most} MiB together");
                self.wrong(entry, Code::Unreadable, &message, "");
            }
            Ok(text) => {
                self.bytes += text.len();
                self.source.include(name, &text, Arc::clone(grant));
            }
            Err(why) => {
                let message = format!("cannot include `{name}`: {why}");
                self.wrong(entry, Code::Unreadable, &message, "");
            }
        }
    }

    fn wrong(&mut self, entry: &At<String>, code: Code, message: &str, label: &str) {
        self.found.error(code, message).at(&entry.span, label);
    }
}

/// Does the last step of `pattern` match the name of the link's target file?
fn is_described(path: &Path, pattern: &str) -> bool {
    let place = real(path);
    let name = place.file_name().and_then(|name| name.to_str());
    let last = pattern.rsplit('/').next().unwrap_or(pattern);
    name.is_some_and(|name| glob::matches(last, name))
}

/// Two entries that give one file different grants are an error: the order of entries does not decide.
fn two_entries(name: &str, second: &Span, first: &Span, found: &mut Findings) {
    let message = format!(
        "two entries of `{}` include `{name}`, with different permissions",
        INCLUDE.name
    );
    found
        .conflict(message)
        .at(second, "by this one")
        .and(first, "and by this one")
        .help(
            "change the entries so that only one of them finds it; keep a team's files in a folder of their own",
        );
}

/// Merges the tables of the included files into the tree of the file, and returns the keys that belong to no known
/// table.
pub(in crate::config::document) fn merge<'s>(
    source: &'s Source,
    root: &mut DeTable<'s>,
    document: &mut Document,
    found: &mut Findings,
) -> Vec<TopEntry<'s>> {
    if source.is_torn() {
        let named = TABLES.iter().filter(|table| table.is_included());
        document.lost.extend(named.map(|table| (table.name, None)));
    }
    let mut strays = Vec::new();
    for (start, text) in source.included() {
        let (tree, errors) = DeTable::parse_recoverable(text);
        let mut slips = Findings::default();
        let torn = syntax::report(text, tree.get_ref(), &errors, &mut slips);
        let torn = torn.into_iter().map(|span| moved(span, start));
        document.torn.extend(torn);
        found.extend(slips.into_inner().into_iter().map(|slip| slip.moved(start)));
        for (key, value) in shifted(tree.into_inner(), start) {
            let name = key.get_ref().as_ref();
            match table_named(name) {
                Some(table) if table.is_included() => {
                    join(table, root, (key, value), document, found)
                }
                None if ![INCLUDE.name, IGNORE_WARNINGS.name].contains(&name) => {
                    strays.push((key, value));
                }
                _ => only_in_main(source, name, &key.span(), found),
            }
        }
    }
    strays
}

/// Merges one table of an included file into the tree.
fn join<'s>(
    vocabulary: &'static vocabulary::Table,
    root: &mut DeTable<'s>,
    (key, value): TopEntry<'s>,
    document: &mut Document,
    found: &mut Findings,
) {
    let Some(there) = root.get_mut(vocabulary.name) else {
        root.insert(key, value);
        return;
    };
    let (span, value) = (value.span(), value.into_inner());
    let DeValue::Table(entries) = value else {
        let name = vocabulary.name;
        document.lost.insert((name, None));
        return unknown_table::note_other_type(vocabulary, name, &value, &span, found);
    };
    // The main file's mistake has been reported, and the names of the included table are defined nowhere.
    let DeValue::Table(there) = there.get_mut() else {
        return;
    };
    for (name, entry) in entries {
        match there.get_key_value(name.get_ref().as_ref()) {
            Some((first, _)) => {
                let title = vocabulary.title(name.get_ref());
                let message = format!("`{title}` is written in two files");
                found
                    .error(Code::Duplicate, message)
                    .at(&name.span(), "the second time")
                    .and(&first.span(), "the first time")
                    .help(
                        "a table may be written in one file only: rename one of the two, or remove it",
                    );
            }
            None => {
                there.insert(name, entry);
            }
        }
    }
}

fn only_in_main(source: &Source, name: &str, span: &Span, found: &mut Findings) {
    let named = TABLES.iter().filter(|table| table.is_included());
    let named: Vec<String> = named.map(|table| table.title("NAME")).collect();
    let named = suggest::all_of(&named);
    let main = source.name();
    let message = format!("`{name}` is in an included file");
    found
        .error(Code::OnlyInMain, message)
        .at(span, "")
        .help(format!(
            "it belongs in {main}; an included file has {named}"
        ));
}

/// Removes `include` from the tree, and reports its mistakes.
pub(in crate::config::document) fn read_includes(
    source: &Source,
    root: &mut DeTable<'_>,
    variables: &Variables,
    found: &mut Findings,
) {
    if let Some(value) = root.remove(INCLUDE.name) {
        entry::all_entries(source, &value, variables, found);
    }
}

fn moved(span: Span, by: usize) -> Span {
    span.start + by..span.end + by
}

/// A tree with its places moved by `by`.
fn shifted(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    table
        .into_iter()
        .map(|(key, value)| {
            let at = moved(key.span(), by);
            (Spanned::new(at, key.into_inner()), shifted_value(value, by))
        })
        .collect()
}

fn shifted_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let at = moved(value.span(), by);
    let inner = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(shifted(table, by)),
        DeValue::Array(mut items) => {
            for item in items.iter_mut() {
                let old = std::mem::replace(item, Spanned::new(0..0, DeValue::Boolean(false)));
                *item = shifted_value(old, by);
            }
            DeValue::Array(items)
        }
        other => other,
    };
    Spanned::new(at, inner)
}

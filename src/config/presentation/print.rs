//! The resolved file: includes are merged, variables are filled in, defaults are written out, and stars replace
//! secrets. The result is itself a valid file.

mod toml;

use super::outline::Outline;
use crate::config::document::vocabulary::{Default, Table, ValueShape};
use crate::config::document::{IGNORE_WARNINGS, TABLES};
use crate::config::input::{EnvironmentFiles, Files, Source};
use crate::config::report::{Caret, Report};
use crate::config::secrets::{Numbering, SecretLocation, redaction};
use crate::config::{Compiled, document, load_in, parse, value};
use crate::limit::{Limit, Mode};
use crate::store;
use crate::telemetry::{shown_url, without_queries};
use ::toml::de::{DeTable, DeValue};
use sha2::{Digest as _, Sha256};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;

/// One line of the result.
struct PrintedLine {
    text: String,
    /// The line is a default that the file does not write.
    added: bool,
}

/// The file at `path` with the variables of `environment`, resolved; the second result is the compiled file.
///
/// # Errors
/// If the file has mistakes: the report of them.
pub fn print(path: &Path, environment: &EnvironmentFiles) -> Result<(String, Compiled), Report> {
    let compiled = load_in(path, environment)?;
    Ok((printed(&compiled.source, &compiled.outline), compiled))
}

/// A file without mistakes, resolved.
#[must_use]
pub fn printed(source: &Source, outline: &Outline) -> String {
    let mut series = Numbering::default();
    let alone = OnceCell::new();
    let (root, whole) = document::tree(source, &alone, &mut series);
    let mut limits: HashMap<&str, Vec<&Limit>> = HashMap::new();
    for limit in &outline.limits {
        limits.entry(&limit.name).or_default().push(limit);
    }
    let mut writer = Printer {
        outline,
        limits,
        source,
        lines: Vec::new(),
        whole,
        files: Files::default(),
        series,
    };
    let included = source.included().count();
    writer.line(format!(
        "# {} as it is understood{}; values that are not written are marked as default",
        source.name(),
        match included {
            0 => String::new(),
            1 => ", 1 included file merged".to_owned(),
            many => format!(", {many} included files merged"),
        }
    ));
    if let Some(value) = root.get(IGNORE_WARNINGS.name) {
        let value = toml::value(value.get_ref());
        writer.line(format!("{} = {value}", IGNORE_WARNINGS.name));
    }
    for table in TABLES {
        writer.table(table, &root);
    }
    let lines = without_conflicts(std::mem::take(&mut writer.lines));
    text_of(&lines)
}

fn text_of(lines: &[PrintedLine]) -> String {
    let lines = lines.iter().map(|line| {
        let mark = if line.added { " # default" } else { "" };
        format!("{}{mark}\n", line.text)
    });
    lines.collect()
}

/// The lines without the defaults that a check refuses: some defaults are valid only together with other values.
fn without_conflicts(mut lines: Vec<PrintedLine>) -> Vec<PrintedLine> {
    loop {
        let text = text_of(&lines);
        let report = match parse("resolved", &text) {
            Ok(compiled) => compiled.report(),
            Err(report) => report,
        };
        let added = |label: &Caret| {
            let line = report.source.position(label.span.start).line - 1;
            lines.get(line).filter(|line| line.added).map(|_| line)
        };
        let wrong: BTreeSet<usize> = report
            .diagnostics
            .iter()
            .flat_map(|one| match one.primary.as_ref().and_then(added) {
                Some(line) => vec![line],
                None => one.others.iter().filter_map(added).collect(),
            })
            .collect();
        if wrong.is_empty() {
            return lines;
        }
        let kept = lines.into_iter().enumerate();
        let kept = kept.filter(|(number, _)| !wrong.contains(number));
        lines = kept.map(|(_, line)| line).collect();
    }
}

struct Printer<'w> {
    outline: &'w Outline,
    /// The compiled limits of each name.
    limits: HashMap<&'w str, Vec<&'w Limit>>,
    source: &'w Source,
    lines: Vec<PrintedLine>,
    /// The texts that have stars, in their form without stars.
    whole: HashMap<usize, String>,
    /// The files from which secrets are read.
    files: Files,
    /// The secrets so far: different secrets get different stars.
    series: Numbering,
}

impl Printer<'_> {
    fn line(&mut self, text: String) {
        self.lines.push(PrintedLine { text, added: false });
    }

    fn table(&mut self, vocabulary: &'static Table, root: &DeTable<'_>) {
        let written = match root.get(vocabulary.name).map(|value| value.get_ref()) {
            Some(DeValue::Table(table)) => Some(table),
            _ => None,
        };
        if vocabulary.named {
            for (name, entry) in written.into_iter().flatten() {
                if let DeValue::Table(fields) = entry.get_ref() {
                    let title = format!("[{}.{}]", vocabulary.name, toml::key(name.get_ref()));
                    self.section(vocabulary, &title, name.get_ref(), Some(fields));
                }
            }
            return;
        }
        // Without its table there is no admin listener, and no token is trusted.
        if written.is_some() || !["admin", "jwt"].contains(&vocabulary.name) {
            let title = format!("[{}]", vocabulary.name);
            self.section(vocabulary, &title, vocabulary.name, written);
        }
    }

    fn section(
        &mut self,
        vocabulary: &'static Table,
        title: &str,
        name: &str,
        fields: Option<&DeTable<'_>>,
    ) {
        let before = self.lines.len();
        self.line(String::new());
        self.line(title.to_owned());
        for (key, value) in fields.into_iter().flatten() {
            let (key, span) = (key.get_ref().as_ref(), value.span());
            let value = match value.get_ref() {
                members if key == "members" && fields.is_some_and(document::are_keys) => {
                    digests(members)
                }
                DeValue::Table(names) if key == "customers" => {
                    let shows_keys = fields.is_some_and(document::are_keys);
                    let entries = names.iter().map(|(name, members)| {
                        let members = match members.get_ref() {
                            members if shows_keys => digests(members),
                            members => toml::value(members),
                        };
                        format!("{} = {members}", toml::key(name.get_ref()))
                    });
                    format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
                }
                value => self.shown(vocabulary, key, value, span.start),
            };
            self.line(format!("{} = {value}", toml::key(key)));
        }
        let absent = |key: &str| fields.is_none_or(|fields| !fields.contains_key(key));
        for key in vocabulary.keys.iter().filter(|key| absent(key.name)) {
            let value = match key.default {
                Default::Value(value) => Some(value.to_owned()),
                Default::Computed(_, of) => self.limit(name).and_then(of),
                Default::Compiled(_, of) => Some(of(self.outline)),
                Default::Required | Default::Unless(_) | Default::Words(_) => None,
            };
            if let Some(value) = value {
                let text = format!("{} = {value}", key.name);
                self.lines.push(PrintedLine { text, added: true });
            }
        }
        if self.lines.len() == before + 2 && fields.is_none() {
            self.lines.truncate(before);
        }
    }

    /// The compiled limit from which defaults are computed. `None` for a limit with tiers, numbers of customers or a
    /// candidate: a printed default would also apply to these, whose own numbers have other defaults.
    fn limit(&self, name: &str) -> Option<&Limit> {
        let all = self.limits.get(name)?;
        let has_candidate = all.iter().any(|one| one.mode == Mode::Candidate);
        let limit = all.first().filter(|_| !has_candidate)?;
        let is_alone = limit.tiers.is_empty() && limit.customer_numbers.is_none();
        is_alone.then_some(limit)
    }

    /// The printable form of a value. The queries of URLs may contain secrets.
    fn shown(
        &mut self,
        vocabulary: &Table,
        key: &str,
        value: &DeValue<'_>,
        offset: usize,
    ) -> String {
        if key == "jwks" {
            // A list may contain files and URLs.
            return each(value, &|text| {
                if text.contains("://") {
                    shown_url(text).into_owned()
                } else {
                    self.absolute(text, offset)
                }
            });
        }
        let text = self.shown_whole(vocabulary, key, value, offset);
        if key == "directory" {
            return without_queries(&text).into_owned();
        }
        text
    }

    fn shown_whole(
        &mut self,
        vocabulary: &Table,
        key: &str,
        value: &DeValue<'_>,
        offset: usize,
    ) -> String {
        let shape = vocabulary.key(key).map(|key| key.shape());
        match (shape, value) {
            (Some(ValueShape::UserName), value) => self.user(value, offset),
            (Some(ValueShape::Secret), value) => self.starred(value, offset),
            (Some(shape @ (ValueShape::Lines | ValueShape::Conditions)), DeValue::Table(table)) => {
                self.lines_of(table, shape)
            }
            (Some(ValueShape::Inner(inner)), DeValue::Table(table)) => self.inside(inner, table),
            (Some(ValueShape::FolderOr(word)), DeValue::String(text)) if text == word => {
                toml::value(value)
            }
            (Some(ValueShape::File | ValueShape::Files | ValueShape::FolderOr(_)), value) => {
                self.paths(value, offset)
            }
            (Some(ValueShape::KeyFiles(inner)), value) => {
                self.entries(inner, value, &|this, path| this.paths(path, offset))
            }
            (Some(ValueShape::Servers(inner) | ValueShape::Networks(inner)), value) => {
                self.entries(inner, value, &|_, place| toml::value(place))
            }
            (Some(ValueShape::Listeners(inner)), value) => {
                self.entries(inner, value, &|this, address| {
                    this.listening(address, offset)
                })
            }
            (Some(ValueShape::ListenAddress | ValueShape::ListenAddresses), value) => {
                self.listening(value, offset)
            }
            (Some(ValueShape::Named(inner)), DeValue::Table(table)) => self.named(inner, table),
            (
                Some(
                    ValueShape::Authorities(inner)
                    | ValueShape::ListenerTls(inner)
                    | ValueShape::TextOrInner(inner)
                    | ValueShape::OffOrInner(inner),
                ),
                DeValue::Table(table),
            ) => self.inside(inner, table),
            (Some(ValueShape::Authorities(_)), value) => self.paths(value, offset),
            (Some(ValueShape::ErrorBody), DeValue::String(text)) => {
                let path = text.strip_prefix("file:");
                let path = path.map(|path| format!("file:{}", self.absolute(path, offset)));
                toml::toml_text(&path.unwrap_or_else(|| text.to_string()))
            }
            (Some(ValueShape::StoreUrl), DeValue::String(text)) => {
                toml::toml_text(&self.without_password(text))
            }
            (_, value) => toml::value(value),
        }
    }

    /// Shows a single entry or a list of entries, each a table or a value that `plain` shows.
    fn entries(
        &mut self,
        table: &Table,
        value: &DeValue<'_>,
        plain: &dyn Fn(&Self, &DeValue<'_>) -> String,
    ) -> String {
        match value {
            DeValue::Table(inner) => self.inside(table, inner),
            DeValue::Array(items) => {
                let items = items.iter();
                let items = items.map(|item| self.entries(table, item.get_ref(), plain));
                format!("[{}]", items.collect::<Vec<_>>().join(", "))
            }
            value => plain(self, value),
        }
    }

    /// Tables by their names, on one line.
    fn named(&mut self, vocabulary: &Table, tables: &DeTable<'_>) -> String {
        let entries: Vec<String> = tables
            .iter()
            .map(|(name, value)| {
                let shown = match value.get_ref() {
                    DeValue::Table(inner) => self.inside(vocabulary, inner),
                    other => toml::value(other),
                };
                format!("{} = {shown}", toml::key(name.get_ref()))
            })
            .collect();
        toml::inline(&entries)
    }

    /// Addresses to listen on; the paths of Unix sockets become absolute.
    fn listening(&self, value: &DeValue<'_>, offset: usize) -> String {
        each(value, &|text| match text.strip_prefix("unix:") {
            Some(path) => format!("unix:{}", self.absolute(path, offset)),
            None => text.to_owned(),
        })
    }

    /// A path as an absolute path.
    fn absolute(&self, path: &str, offset: usize) -> String {
        let path = self.source.resolve_path(offset, path);
        let path = std::path::absolute(&path).unwrap_or(path);
        path.display().to_string()
    }

    /// A table inside another, on one line.
    fn inside(&mut self, vocabulary: &Table, table: &DeTable<'_>) -> String {
        let entries: Vec<String> = table
            .iter()
            .map(|(key, value)| {
                let key = key.get_ref().as_ref();
                let shown = self.shown(vocabulary, key, value.get_ref(), value.span().start);
                format!("{} = {shown}", toml::key(key))
            })
            .collect();
        toml::inline(&entries)
    }

    /// A user name is never secret.
    fn user(&self, value: &DeValue<'_>, offset: usize) -> String {
        let file = match value {
            DeValue::Table(table) => table.get("file"),
            _ => None,
        };
        match file {
            Some(path) => format!("{{ file = {} }}", self.paths(path.get_ref(), offset)),
            None => toml::value(value),
        }
    }

    /// One path or several paths, as absolute paths.
    fn paths(&self, value: &DeValue<'_>, offset: usize) -> String {
        each(value, &|text| self.absolute(text, offset))
    }

    /// Names with values, some of which are secret; values from the environment that the gateway sends may be secret
    /// too.
    fn lines_of(&mut self, table: &DeTable<'_>, shape: ValueShape) -> String {
        let is_sent = matches!(shape, ValueShape::Lines);
        let lines = table.iter().map(|(name, value)| {
            let name = name.get_ref().as_ref();
            let written = self.source.written(&value.span());
            let is_given = is_sent && written.contains("${");
            let at = value.span().start;
            let value = match value.get_ref() {
                value @ DeValue::String(_) if is_given => self.starred(value, at),
                value @ DeValue::Table(table) if SecretLocation::of(table).is_some() => {
                    self.starred(value, at)
                }
                value @ DeValue::String(_) if redaction::is_secret(name) => self.starred(value, at),
                value => toml::value(value),
            };
            format!("{} = {value}", toml::key(name))
        });
        toml::inline(&lines.collect::<Vec<_>>())
    }

    /// The address of a store with stars for its password.
    fn without_password(&mut self, url: &str) -> String {
        let secret = match value::store(url) {
            Ok(store::Backend::Redis(target)) => target.password,
            _ => None,
        };
        match (secret, url.split_once("://"), url.rfind('@')) {
            (Some(secret), Some((scheme, rest)), Some(at)) => {
                let user = &rest[..at - scheme.len() - "://".len()];
                let name = user.split_once(':').map_or("", |(name, _)| name);
                let stars = self.series.stars(secret.expose());
                format!("{scheme}://{name}:{stars}{}", &url[at..])
            }
            _ => url.to_owned(),
        }
    }

    /// The stars for the value at this byte. One secret has the same number of stars everywhere.
    fn starred(&mut self, value: &DeValue<'_>, offset: usize) -> String {
        let fetched = match value {
            DeValue::Table(table) => SecretLocation::of(table),
            _ => None,
        };
        let fetched = fetched.and_then(|place| {
            let read = place.read(self.source, offset, &mut self.files);
            read.ok()
        });
        let secret = match value {
            DeValue::String(text) => {
                let whole = self.whole.get(&offset);
                whole.map_or_else(|| text.to_string(), String::clone)
            }
            other => fetched.unwrap_or_else(|| toml::value(other)),
        };
        toml::toml_text(&self.series.stars(&secret))
    }
}

/// Members as printed: by their digests, which a file can contain in place of the members.
fn digests(members: &DeValue<'_>) -> String {
    const MARK: &str = "sha256:";
    each(members, &|text| match text.get(..MARK.len()) {
        Some(mark) if mark.eq_ignore_ascii_case(MARK) => text.to_owned(),
        _ => {
            let mut out = MARK.to_owned();
            for byte in Sha256::digest(text.trim()) {
                // Writing into a string cannot fail.
                let _ = write!(out, "{byte:02x}");
            }
            out
        }
    })
}

/// Changes a text, or each text of a list.
fn each(value: &DeValue<'_>, change: &dyn Fn(&str) -> String) -> String {
    match value {
        DeValue::String(text) => toml::toml_text(&change(text)),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| each(item.get_ref(), change));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        other => toml::value(other),
    }
}

#[cfg(test)]
mod tests;

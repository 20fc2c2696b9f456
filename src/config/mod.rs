//! The file gateway.toml, from its text to the compiled configuration: read, held against the rules, compiled. Every
//! mistake is in one report.
//!
//! ```text
//! text        source       with line and column for every byte
//!  → Document document     as written: places kept, unknown keys refused, nothing decided
//!  → checked  validate     names resolve, numbers can be computed with, nothing contradicts
//!  → Compiled compile      Boot (read once) and Snapshot (swapped by a reload)
//! ```

mod asked_store;
mod authorities;
mod boot;
mod compile;
pub mod describe;
pub mod diagnostic;
pub mod diff;
mod document;
mod environment;
mod error_bodies;
pub mod files;
#[doc(hidden)]
pub mod fuzz;
mod grant;
mod groups;
mod identities;
mod identity_writers;
pub mod jwt;
pub mod leases;
mod limits;
pub mod masking;
pub mod outline;
pub mod pages;
mod print;
pub mod probe_request;
mod quick_start;
mod redaction;
pub mod render;
pub mod report;
mod secret;
mod set;
mod side_files;
pub mod source;
mod span;
mod store;
pub mod suggest;
mod upstreams;
mod validate;
mod value;
pub mod vocabulary;
mod written;

#[cfg(test)]
mod complexity;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod generated;

pub use diagnostic::{Code, Diagnostic, Severity};
pub use environment::EnvironmentFiles;
pub use files::Files;
pub use identities::{Identities, LoadedIdentity};
pub use jwt::PublishedKeys;
pub use outline::Boot;
pub use print::print;
pub use quick_start::QuickStart;
pub use report::Report;
pub use set::Set;

use crate::acme::OrderedIdentity;
use crate::snapshot::Snapshot;
use crate::tls::Offer;
use diagnostic::{Details as _, Findings};
use diff::Outline;
use side_files::SideFiles;
use source::{Source, Span};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file larger than this is not a configuration.
pub const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// A file without errors, ready to run.
#[derive(Debug)]
pub struct Compiled {
    /// The settings that are read once, at start.
    pub boot: Boot,
    /// The part that a reload swaps. Its generation is 0 until the gateway numbers the snapshot.
    pub snapshot: Snapshot,
    /// The identities towards clients.
    pub identities: Arc<Identities>,
    /// What each listener offers, in the order of [`Boot`]'s listeners; none of a plain one.
    pub offers: Vec<Option<Offer>>,
    /// The certificates to order.
    pub orders: Arc<[OrderedIdentity]>,
    /// The keys of tokens that are read from URLs.
    pub key_sets: Vec<PublishedKeys>,
    /// Warnings about settings that may not have the intended effect.
    pub warnings: Vec<Diagnostic>,
    /// Warnings that the file ignores.
    pub ignored: Vec<Diagnostic>,
    /// The text, for showing the warnings.
    pub source: Arc<Source>,
    /// The files that the configuration was read from.
    pub files: Files,
    /// The configuration in a form that can be compared.
    pub outline: Arc<Outline>,
    /// Where limits, upstreams and routes are defined, by table and name: a byte of the text.
    places: HashMap<(&'static str, String), usize>,
    /// Are counters in a Redis, as far as the file states it?
    shared: bool,
    /// The place of the store's address.
    store_at: Option<Span>,
    /// The warnings that `ignore_warnings` names.
    ignoring: Vec<document::WarningFilter>,
}

impl Compiled {
    /// The warnings as a report.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new(Arc::clone(&self.source), self.warnings.clone())
    }

    /// The warnings as a report, with those that are ignored.
    #[must_use]
    pub fn whole_report(&self) -> Report {
        let all = self.warnings.iter().chain(&self.ignored);
        Report::new(Arc::clone(&self.source), all.cloned().collect())
    }

    /// Are counters in a Redis? The answer is known for a replay's file as well, unless a variable gives the address.
    #[must_use]
    pub fn asks_redis(&self) -> bool {
        self.shared
    }

    /// A text about the file with stars for the file's secrets.
    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        self.boot.secrets.hide(text).into_owned()
    }

    /// The error that nothing is believed of what is kept of the orders of an identity.
    #[must_use]
    pub fn unbelieved(&self, identity: &str, why: String) -> Diagnostic {
        let error = Diagnostic::error(Code::CertificateUnreadable, why);
        match self.places.get(&("tls", identity.to_owned())) {
            Some(at) => error.at(
                &(*at..at + identity.len()),
                "nothing that is kept of its orders is believed",
            ),
            None => error,
        }
    }

    /// The place of the definition of this name in `limits`, `upstreams`, `routes` or `tls`: `gateway.toml:12`.
    #[must_use]
    pub fn place(&self, table: &'static str, name: &str) -> Option<String> {
        let at = *self.places.get(&(table, name.to_owned()))?;
        let line = self.source.position(at).line;
        Some(format!("{}:{line}", self.source.place(at)))
    }
}

/// Reads and compiles the file at `path`.
///
/// # Errors
/// The mistakes of the file.
pub fn load(path: &Path) -> Result<Compiled, Report> {
    load_in(path, &EnvironmentFiles::default())
}

/// Reads and compiles the file at `path` with the variables of `environment`.
///
/// # Errors
/// The mistakes of the file.
pub fn load_in(path: &Path, environment: &EnvironmentFiles) -> Result<Compiled, Report> {
    load_beside(path, environment, None)
}

/// Reads and compiles the file at `path` for a reload: identities of `before` stay where their files are broken.
///
/// # Errors
/// The mistakes of the file.
pub fn reload(path: &Path, before: &Identities) -> Result<Compiled, Report> {
    load_beside(path, &EnvironmentFiles::default(), Some(before))
}

fn load_beside(
    path: &Path,
    environment: &EnvironmentFiles,
    before: Option<&Identities>,
) -> Result<Compiled, Report> {
    let mut files = Files::default();
    let (name, text) = read(path, &mut files)?;
    let source = Source::new(name, text).in_environment(environment);
    compile(source, files, before)
}

/// The name and the text of the file at `path`.
fn read(path: &Path, files: &mut Files) -> Result<(String, String), Report> {
    let name = path.display().to_string();
    let read = files
        .read(path, MOST_BYTES)
        .map_err(|error| unreadable(path, &error))
        .and_then(|bytes| text(&name, bytes));
    match read {
        Ok(text) => Ok((name, text)),
        Err(report) => Err(report.from_files(std::mem::take(files))),
    }
}

fn text(name: &str, bytes: Vec<u8>) -> Result<String, Report> {
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        let diagnostic = Diagnostic::error(Code::Unreadable, "the file is not UTF-8 text")
            .at(&(good..good), "the first byte that is not")
            .help("save it with the encoding UTF-8");
        Report::new(Arc::new(Source::new(name, text)), vec![diagnostic])
    })
}

/// The report on a file that cannot be read.
#[must_use]
pub fn unreadable(path: &Path, error: &io::Error) -> Report {
    let name = path.display().to_string();
    let diagnostic = Diagnostic::error(Code::Unreadable, format!("cannot read {name}: {error}"));
    Report::new(Arc::new(Source::new(name, "")), vec![diagnostic])
}

/// Compiles `text`. Messages show `name`, and relative paths in the text start in the folder of `name`.
///
/// # Errors
/// The mistakes of the file.
pub fn parse(name: &str, text: &str) -> Result<Compiled, Report> {
    let files = Files::with_content(Path::new(name), text.as_bytes());
    compile(Source::new(name, text), files, None)
}

/// Reads and compiles the file at `path` for a replay: with the variables of `environment`, with `sets` in place of the
/// file's values, and without its `[store]`, which may need secrets that are not on this machine.
///
/// # Errors
/// The mistakes of the file and of `sets`.
pub fn load_for_replay(
    path: &Path,
    environment: &EnvironmentFiles,
    sets: &[Set],
) -> Result<Compiled, Report> {
    let mut files = Files::default();
    let (name, text) = read(path, &mut files)?;
    let source = Source::with_sets(&name, text, sets).without_store();
    compile(source.in_environment(environment), files, None)
}

/// The store that `url` names, given with `--store`.
///
/// # Errors
/// The mistake in `url`, which is shown as it was given.
pub fn store(url: &str) -> Result<crate::store::Backend, Report> {
    let front = "--store ";
    value::store(url).map_err(|wrong| {
        let shown = format!("{front}{url}");
        let mistake = wrong.at(&(front.len()..shown.len()));
        Report::new(Arc::new(Source::new("command line", shown)), vec![mistake])
    })
}

fn compile(
    mut source: Source,
    mut files: Files,
    before: Option<&Identities>,
) -> Result<Compiled, Report> {
    let mut found = Findings::default();
    document::gather(&mut source, &mut files, &mut found);
    let source = Arc::new(source);
    if let Some(at) = source.text().find('\0') {
        let binary = Diagnostic::error(Code::Unreadable, "the file is not text")
            .at(&(at..at), "a zero byte stands here");
        return Err(Report::new(source, vec![binary]).from_files(files));
    }
    let beside = &mut SideFiles {
        source: &source,
        files: &mut files,
        found: &mut found,
    };
    let document = document::read(beside);
    let groups = groups::read(&document, beside);
    let jwt = jwt::read(&document, beside);
    let checked = validate::check(&document, &groups, &source, beside.found);
    let authorities = authorities::read(&document, beside);
    let boot = boot::read(&document, &authorities, beside);
    let errors = error_bodies::read(&document, beside);
    let upstreams = upstreams::read(&document, beside);
    let identities = identities::read(&document, &authorities, before, beside);
    found.retain(|diagnostic| !document.is_echo(&source, diagnostic));
    document.variables.tell(&source, &boot.secrets, &mut found);
    document::ignore(&document.ignored, &mut found, !source.is_without_store());
    let mut report = Report::new(Arc::clone(&source), found.into_inner()).from_files(files);
    if report.errors() > 0 {
        return Err(report);
    }
    let all = std::mem::take(&mut report.diagnostics);
    let (warnings, ignored) = all
        .into_iter()
        .partition(|one| one.severity == Severity::Warning);
    report.diagnostics = warnings;
    let compilation = compile::Compilation {
        document: &document,
        checked,
        boot,
        errors,
        groups,
        jwt,
        identities,
        upstreams,
        report,
    };
    let compiled = compilation.compile();
    Ok(Compiled {
        ignored,
        ignoring: document.ignored,
        ..compiled
    })
}

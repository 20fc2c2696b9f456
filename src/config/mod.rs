//! The file gateway.toml, from its text to the compiled configuration: the file is read, checked against the rules, and
//! compiled. One report contains every mistake.
//!
//! In: the text of gateway.toml. Out: `Boot` (read once) and `Snapshot` (replaced by a reload), or a report of every
//! mistake.
//!
//! ```text
//! input                  what is read: texts with places, files, variables, flags
//! document               the file as it is written: places kept, unknown keys refused, nothing decided
//! value                  values as people write them
//! secrets                places of secrets, and stars in their place
//! validate               rules across tables
//! settings               tables as written → the settings and values of the rooms
//! compile                a document without errors → `Boot` and `Snapshot`
//! report                 all mistakes, in the order of the file, and the forms in which they are shown
//! presentation           what a file means, in words and numbers; what a new file changes; the file as it is understood
//! admin_place            where commands find a gateway by its file
//! generated              pages made from the declarations of keys and codes
//! generated/reference    docs/configuration.md
//! generated/one_client   docs/hardening.md: what one client may cost at most
//! generated/schema       the JSON Schema for editors
//! fixtures               a test: files that are good, files that are not
//! complexity             a test: the work grows with a file's length and no faster
//! complexity/lists       a file for each list
//! fuzz                   the entry of the fuzzer
//! ```

mod admin_place;
mod compile;
mod document;
#[doc(hidden)]
pub mod fuzz;
mod input;
mod presentation;
pub mod report;
mod secrets;
mod settings;
mod validate;
mod value;

#[cfg(test)]
mod complexity;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod generated;

pub use admin_place::{AdminPlace, TokenPlace, admin_place};
pub use document::vocabulary;
pub use input::{files, source};
pub use presentation::{describe, diff, leases, outline};
pub use report::{Report, diagnostic, pages, render, suggest};
pub use secrets::masking;
pub use settings::jwt;
pub use validate::probe_request;

pub use input::environment::EnvironmentFiles;
pub use input::files::Files;
pub use input::quick_start::QuickStart;
pub use input::set::Set;
pub use presentation::outline::Boot;
pub use presentation::print::{print, printed};
pub use report::diagnostic::{Code, Diagnostic, Severity};
pub use settings::groups::ShownCredentials;
pub use settings::identities::{Identities, LoadedIdentity};
pub use settings::jwt::PublishedKeys;

use crate::acme::OrderedIdentity;
use crate::key::Group;
use crate::snapshot::Snapshot;
use crate::tls::Offer;
use input::side_files::SideFiles;
use input::source::{Source, Span};
use presentation::diff::Outline;
use report::diagnostic::{Details as _, Findings};
use settings::groups::{CustomerFile, line_of};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The smallest good file, as messages show it.
const SMALLEST: &str = "the smallest file is\n\
    [upstreams.api]\n\
    servers = \"http://127.0.0.1:3000\"\n\
    \n\
    [routes.api]\n\
    upstream = \"api\"";

/// A file larger than this is not a configuration.
pub const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// A file without errors, ready to run.
#[derive(Debug)]
pub struct Compiled {
    /// The settings that are read once, at start.
    pub boot: Boot,
    /// The part that a reload replaces, which a reload then numbers.
    pub snapshot: Snapshot,
    /// The identities that listeners show to clients.
    pub identities: Arc<Identities>,
    /// The offer of each listener, in the order of [`Boot`]'s listeners; `None` for a listener without TLS.
    pub offers: Vec<Option<Offer>>,
    /// The certificates to order.
    pub orders: Arc<[OrderedIdentity]>,
    /// The keys of tokens that are read from URLs.
    pub key_sets: Vec<PublishedKeys>,
    /// Warnings about settings that may not have the intended effect.
    pub warnings: Vec<Diagnostic>,
    /// Warnings that the file ignores.
    pub ignored: Vec<Diagnostic>,
    /// The text for messages about the warnings.
    pub source: Arc<Source>,
    /// The files that the configuration was read from.
    pub files: Files,
    /// The configuration in a form that can be compared.
    pub outline: Arc<Outline>,
    /// The places where limits, upstreams and routes are defined.
    pub places: Arc<Places>,
    /// The files with names of customers.
    customer_files: Vec<CustomerFile>,
    /// Are counters in a Redis, if the file states it?
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

    /// The name of a customer that is nearest to a misspelt one.
    #[must_use]
    pub fn nearest_customer(&self, name: &str) -> Option<&str> {
        let all = self.snapshot.customers.as_deref()?;
        report::nearest(name, all.names())
    }

    /// The place that names a customer in `group`: the line with a credential of the request, or else the first line of
    /// the name, `pro-keys.txt:17`; for a list of the file itself the place of the group.
    #[must_use]
    pub fn customer_place(
        &self,
        group: &Group,
        name: &str,
        shown: &ShownCredentials,
    ) -> Option<String> {
        let line = line_of(&self.customer_files, group, name, shown);
        line.or_else(|| self.place("groups", &group.name))
    }

    /// The warnings as a report that includes the ignored warnings.
    #[must_use]
    pub fn whole_report(&self) -> Report {
        let all = self.warnings.iter().chain(&self.ignored);
        Report::new(Arc::clone(&self.source), all.cloned().collect())
    }

    /// Are counters in a Redis? The answer is also known for the file of a replay, unless a variable gives the address.
    #[must_use]
    pub fn asks_redis(&self) -> bool {
        self.shared
    }

    /// Replaces the file's secrets by stars in a text about the file.
    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        self.boot.secrets.hide(text).into_owned()
    }

    /// The error about stored ACME orders of an identity that cannot be trusted.
    #[must_use]
    pub fn untrusted(&self, identity: &str, why: String) -> Diagnostic {
        let error = Diagnostic::error(Code::CertificateUnreadable, why);
        match self.places.at.get(&("tls", identity.to_owned())) {
            Some(at) => error.at(
                &(*at..at + identity.len()),
                "nothing that `storage` has of its orders is trusted",
            ),
            None => error,
        }
    }

    /// The place at which this name is defined in `limits`, `upstreams`, `routes` or `tls`: `gateway.toml:12`.
    #[must_use]
    pub fn place(&self, table: &'static str, name: &str) -> Option<String> {
        self.places.of(table, name)
    }
}

/// The places where names are defined.
#[derive(Debug)]
pub struct Places {
    source: Arc<Source>,
    /// By table and name: a byte of the text.
    at: HashMap<(&'static str, String), usize>,
}

impl Places {
    /// The place at which this name is defined in `limits`, `upstreams`, `routes` or `tls`: `gateway.toml:12`.
    #[must_use]
    pub fn of(&self, table: &'static str, name: &str) -> Option<String> {
        let at = *self.at.get(&(table, name.to_owned()))?;
        let line = self.source.position(at).line;
        Some(format!("{}:{line}", self.source.place(at)))
    }

    /// The text with the places.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }
}

/// Reads and compiles the file at `path`.
///
/// # Errors
/// If the file has mistakes: the report of them.
pub fn load(path: &Path) -> Result<Compiled, Report> {
    load_in(path, &EnvironmentFiles::default())
}

/// Reads and compiles the file at `path` with the variables of `environment`.
///
/// # Errors
/// If the file has mistakes: the report of them.
pub fn load_in(path: &Path, environment: &EnvironmentFiles) -> Result<Compiled, Report> {
    load_after(path, environment, None)
}

/// Reads and compiles the file at `path` for a reload: identities of `before` stay if their files are broken.
///
/// # Errors
/// If the file has mistakes: the report of them.
pub fn reload(path: &Path, before: &Identities) -> Result<Compiled, Report> {
    load_after(path, &EnvironmentFiles::default(), Some(before))
}

fn load_after(
    path: &Path,
    environment: &EnvironmentFiles,
    before: Option<&Identities>,
) -> Result<Compiled, Report> {
    let mut files = Files::default();
    let (name, text) = read_file(path, &mut files)?;
    let source = Source::new(name, text).in_environment(environment);
    compile(source, files, before)
}

/// The name and the text of the file at `path`.
fn read_file(path: &Path, files: &mut Files) -> Result<(String, String), Report> {
    let name = path.display().to_string();
    let read = files
        .read(path, MOST_BYTES)
        .map_err(|error| unreadable(path, &error))
        .and_then(|bytes| decode_text(&name, bytes));
    match read {
        Ok(text) => Ok((name, text)),
        Err(report) => Err(report.from_files(std::mem::take(files))),
    }
}

fn decode_text(name: &str, bytes: Vec<u8>) -> Result<String, Report> {
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
/// If the text has mistakes: the report of them.
pub fn parse(name: &str, text: &str) -> Result<Compiled, Report> {
    let files = Files::with_content(Path::new(name), text.as_bytes());
    compile(Source::new(name, text), files, None)
}

/// Reads and compiles the file at `path` for a replay: with the variables of `environment`, with `sets` in place of the
/// file's values, and without its `[store]`, since `[store]` may need secrets that this machine lacks.
///
/// # Errors
/// If the file or `sets` have mistakes: the report of them.
pub fn load_for_replay(
    path: &Path,
    environment: &EnvironmentFiles,
    sets: &[Set],
) -> Result<Compiled, Report> {
    let mut files = Files::default();
    let (name, text) = read_file(path, &mut files)?;
    let source = Source::with_sets(&name, text, sets).without_store();
    compile(source.in_environment(environment), files, None)
}

/// The store at `url`, the value of `--store`.
///
/// # Errors
/// If `url` has a mistake: the report, which shows `url` as given.
pub fn store(url: &str) -> Result<crate::store::Backend, Report> {
    let front = "--store ";
    value::with_valid_offers(url, value::store).map_err(|wrong| {
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
            .at(&(at..at), "this is a zero byte");
        return Err(Report::new(source, vec![binary]).from_files(files));
    }
    let side_files = &mut SideFiles {
        source: &source,
        files: &mut files,
        found: &mut found,
    };
    let document = document::read_document(side_files);
    let numbers = settings::number_files::read_number_files(&document, side_files);
    let groups = settings::groups::read_groups(&document, &numbers, side_files);
    let trust = settings::trusted_networks::read_trust(&document, side_files);
    let jwt = settings::jwt::read_tokens(&document, side_files);
    let found_so = &mut *side_files.found;
    let checked = validate::check_document(&document, &groups, &numbers, &source, found_so);
    let authorities = settings::authorities::read_authorities(&document, side_files);
    let admin = settings::boot::admin::read_admin(&document, side_files);
    let boot = settings::boot::read_boot(&document, &authorities, admin, side_files);
    let errors = settings::error_bodies::read_error_bodies(&document, side_files);
    let upstreams = settings::upstreams::read_upstreams(&document, side_files);
    let identities =
        settings::identities::read_identities(&document, &authorities, before, side_files);
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
        trust,
        groups,
        jwt,
        identities,
        upstreams,
        report,
        ignored,
    };
    Ok(compilation.compile())
}

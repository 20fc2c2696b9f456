//! The file as written: every key has its place, unknown keys are refused, values are read, and no rule across keys is
//! applied.
//!
//! The tree is walked by hand and not deserialized, so that one run finds every mistake with its place.
//!
//! In: the tree of a text. Out: a document. A key is declared once, in the source file of its table: `diff`, `print`,
//! the reference and the schema read the same declarations.
//!
//! ```text
//! text            the text before its tables are read: other files, variables, secrets
//! vocabulary      the declaration of a key: name, form, default, meaning, example
//! table           `table!`: a table of the file, a block for each key
//! form            the forms of values: reader, message, schema
//! words           types whose values are words of the file
//! foreign_words   words of other gateways, each with what serves its purpose
//! fields          the keys of one table, each read once by name and type
//! fields/times    those of them that are times
//! setting         the value of one key, with its place
//! written_value   what a written value is called in messages
//! unknown_table   unknown tables, and the name that was meant
//! misplaced       keys in a table that does not have them
//! tables          the tables, a block for each of their keys
//! warning_filter  `ignore_warnings`
//! ```

mod fields;
mod foreign_words;
mod form;
mod misplaced;
mod setting;
mod table;
mod tables;
mod text;
mod unknown_table;
pub mod vocabulary;
mod warning_filter;
mod words;
mod written_value;

pub(super) use setting::{Items, List, Setting};
pub(super) use tables::acme::{AcmeTable, IN_STORE};
pub(super) use tables::admin::Admin;
pub(super) use tables::group::{CustomerList, GROUPS, GroupTable, are_keys};
pub(super) use tables::jwt::{JWT, Jwt, KeyFile};
pub(super) use tables::limit::{
    Algorithm, AnchorWord, CostSource, Exempt, LIMITS, Limit, Over, RateEntry, RefundCause, Tier,
};
pub(super) use tables::listen::{ListenEntry, ListenerTls, OwnIdentity, ProxyProtocol};
pub(super) use tables::route::{ClientCert, ROUTES, Route};
pub(super) use tables::server::{Defaults, Log, ResponseTable, ServerTable, TrustEntry};
pub(super) use tables::store::{SecretSource, Store, StoreTls};
pub(super) use tables::tls::{ClientTable, TLS, TlsTable};
pub(super) use tables::upstream::{ServerEntry, UPSTREAMS, Upstream, UpstreamTls};
pub(super) use text::include::gather;
pub(super) use text::variables::{LoneValues, Variables};
pub(super) use warning_filter::{WarningFilter, apply as ignore, ignores};
pub(super) use words::Words;

use super::input::{At, SideFiles, Source, Span};
use super::presentation::written::Written;
use super::report::{Code, Diagnostic, Findings};
use super::secrets::Numbering;
use fields::{Fields, WITHOUT_QUOTES, Zero};
use foreign_words::ForeignName;
use form::{
    Form, any, as_written, bytes_in_a_second, count, custom, empty_list, entry_table, filled_list,
    filled_texts, filled_word_list, flag, inner_table, number, text_as, text_form, texts, texts_as,
    time, time_or_off, time_within, units, whole, word, word_list,
};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use table::{Section, table};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use vocabulary::Default::Words as InWords;
use vocabulary::{Compare, Emptiness, Key, Table, ValueShape};
use words::words;
use written_value::{describe, one_or_all, type_error};

/// Every table, in the order of the reference.
pub(super) static TABLES: [&Table; 13] = [
    &tables::server::SERVER,
    &tables::tls::TLS,
    &tables::acme::ACME,
    &tables::server::LOG,
    &tables::admin::ADMIN,
    &tables::store::STORE,
    &tables::server::RESPONSE,
    &tables::server::DEFAULTS,
    &tables::jwt::JWT,
    &tables::group::GROUPS,
    &tables::limit::LIMITS,
    &tables::upstream::UPSTREAMS,
    &tables::route::ROUTES,
];

/// The table with this name.
fn table_named(name: &str) -> Option<&'static Table> {
    let mut tables = TABLES.into_iter();
    tables.find(|table| table.name == name)
}

/// The one key that every table and the top level have.
pub(super) static IGNORE_WARNINGS: Key = Key {
    name: "ignore_warnings",
    shape: || ValueShape::Texts,
    default: InWords("none"),
    about: "Codes of warnings to ignore: those about the table with this key, at the top those about the whole file. `check` lists the ignored warnings and reports a code that does not occur. `--deny-warnings` does not fail on ignored warnings. Errors cannot be ignored.",
    example: "[\"waits-longer\"]",
    compare: Compare::Within,
};

/// The one key that belongs to no table.
pub(super) static INCLUDE: Key = Key {
    name: "include",
    shape: || ValueShape::Include(&text::include::INCLUDE_ENTRY),
    default: InWords("none"),
    about: "Files with further `[limits.NAME]`, `[groups.NAME]`, `[upstreams.NAME]` and `[routes.NAME]`. Their tables come after the tables of this file: groups of this file come first, then groups of the included files in their order. Relative paths begin in the folder of this file. `*`, `?`, `[a-z]` and `**` are patterns; files of a pattern come in the order of their names. An entry that is a text grants its files nothing more. An entry that is a table states further grants, and bounds on hosts and paths.",
    example: "[\"routes.d/*.toml\"]",
    compare: Compare::Within,
};

/// The whole file.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) server: ServerTable,
    pub(super) identities: Vec<TlsTable>,
    pub(super) authorities: Vec<AcmeTable>,
    pub(super) log: Log,
    pub(super) admin: Option<Admin>,
    pub(super) store: Store,
    pub(super) response: ResponseTable,
    pub(super) defaults: Defaults,
    pub(super) jwt: Option<Jwt>,
    pub(super) groups: Vec<GroupTable>,
    pub(super) limits: Vec<Limit>,
    pub(super) upstreams: Vec<Upstream>,
    /// The position of each upstream in the list, by its name.
    positions: HashMap<String, usize>,
    pub(super) routes: Vec<Route>,
    /// Parts of the file that could not be read. A key that seems absent may be in one of these parts.
    pub(super) torn: Vec<Span>,
    /// Names whose definition has a mistake, by table; the mistake has been noted. An entry without a name stands for
    /// the whole table.
    pub(super) lost: HashSet<(&'static str, Option<String>)>,
    /// The variables in the texts of the file, and their values.
    pub(super) variables: Variables,
    /// The secrets that were fetched from files and variables.
    pub(super) fetched: Vec<String>,
    /// The warnings that are ignored.
    pub(super) ignored: Vec<WarningFilter>,
    /// The file is empty.
    pub(super) empty: bool,
    /// The kind of place in which the counters are.
    pub(super) counted: CounterStore,
    /// The written keys and values, independent of their meaning.
    pub(super) written: Arc<Written>,
}

/// The kind of place in which counters are, if the file states the kind without variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum CounterStore {
    /// Counters are in the process.
    #[default]
    Memory,
    /// Counters are in a Redis.
    Redis,
    /// A variable gives the store's address.
    Unknown,
}

impl CounterStore {
    fn of(root: &DeTable<'_>) -> Self {
        let store = root.get("store");
        let url = store.and_then(|store| store.get_ref().get("url"));
        match url.and_then(|url| url.get_ref().as_str()) {
            Some(url) if url.contains("${") => Self::Unknown,
            Some(url) if !url.starts_with("memory:") => Self::Redis,
            _ => Self::Memory,
        }
    }
}

impl Document {
    /// The names of all limits that apply to a route's requests: the route's limits, the defaults that the route does
    /// not drop, and its upstream's limits.
    pub(super) fn limits_of<'a>(
        &'a self,
        route: &'a Route,
    ) -> impl Iterator<Item = &'a At<String>> {
        let written_limits = route.limits.entries();
        let dropped = written_limits
            .iter()
            .filter_map(|at| at.value.strip_prefix('!'));
        let dropped: HashSet<&str> = dropped.collect();
        let drops = move |name: &str| dropped.contains(name);
        let upstream = self.upstream_of(route);
        let theirs = upstream.map_or(&[][..], |upstream| upstream.limits.entries());
        let kept = written_limits
            .iter()
            .filter(|at| !at.value.starts_with('!'));
        let defaults = self.defaults.limits.entries().iter();
        kept.chain(defaults.filter(move |at| !drops(&at.value)))
            .chain(theirs)
    }

    /// The upstream that a route leads to.
    pub(super) fn upstream_of(&self, route: &Route) -> Option<&Upstream> {
        self.upstream_named(route.upstream.get()?)
    }

    /// The upstream with this name.
    pub(super) fn upstream_named(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.get(*self.positions.get(name)?)
    }

    /// Is this mistake only a consequence of an unreadable part that has been reported?
    pub(super) fn is_echo(&self, source: &Source, diagnostic: &Diagnostic) -> bool {
        if self.torn.is_empty() || matches!(diagnostic.code, Code::Syntax | Code::Duplicate) {
            return false;
        }
        let Some(start) = diagnostic.start() else {
            return false;
        };
        let body = match diagnostic.code {
            Code::MissingKey | Code::MissingChoice => {
                let text = &source.text()[..source.end(start)];
                start..text::syntax::next_table(text, start)
            }
            _ => start..start,
        };
        let mut torn = self.torn.iter();
        torn.any(|torn| torn.contains(&start) || body.contains(&torn.start))
    }

    /// Can an unreadable part define `name` of `table`? If so, the missing definition is not reported as a second
    /// mistake.
    pub(super) fn may_define(&self, table: &'static str, name: &str) -> bool {
        self.lost.contains(&(table, None)) || self.lost.contains(&(table, Some(name.to_owned())))
    }
}

/// After this many mistakes the rest of the file is not checked: each mistake takes time, and users fix the first
/// mistakes first.
const ENOUGH: usize = 1_000;

/// Reads the source and adds every mistake of form to the findings.
pub(super) fn read_document(side_files: &mut SideFiles<'_>) -> Document {
    let (source, found) = (side_files.source, &mut *side_files.found);
    let set_documents = text::set_values::documents(source);
    let (root, errors) = DeTable::parse_recoverable(source.file());
    let torn = text::syntax::report(source.file(), root.get_ref(), &errors, found);
    let mut root = root.into_inner();
    let mut document = Document {
        torn,
        ..Document::default()
    };
    let strays = text::include::merge(source, &mut root, &mut document, found);
    text::set_values::apply(source, &set_documents, &mut root, found);
    document.counted = CounterStore::of(&root);
    let store = source.is_without_store().then(|| root.remove("store"));
    document.variables = text::variables::fill(source, &mut root, found);
    if let Some(store) = store.flatten() {
        document.variables.learn(source, &store);
    }
    let alone = document.variables.lone_values();
    let mut root = root;
    document.variables.bare(&mut root, &alone);
    document.written = Arc::new(Written::of(&root));
    document.fetched = text::secrets::fetch(&mut root, side_files);
    let found = &mut *side_files.found;
    document.empty = root.is_empty();
    text::include::read_includes(source, &mut root, &document.variables, found);
    document.ignored = warning_filter::read_filters(&mut root, found);
    let mut reader = TopReader {
        source,
        document: &mut document,
        found,
    };
    let strays = strays.iter().map(|(key, value)| (key, value));
    for (key, value) in root.iter().chain(strays) {
        if reader.found.len() > ENOUGH {
            break;
        }
        reader.key(key, value);
    }
    for (at, upstream) in document.upstreams.iter().enumerate() {
        let name = upstream.name.value.clone();
        document.positions.entry(name).or_insert(at);
    }
    document
}

/// The tree of a source without errors: all its files are merged, variables are filled in, and stars replace the values
/// of variables that gave secrets. The second result maps the places of texts with stars to the same texts without
/// stars. `alone` stores the numbers, `true` and `false` that variables gave.
pub(super) fn tree<'s>(
    source: &'s Source,
    alone: &'s OnceCell<LoneValues>,
    series: &mut Numbering,
) -> (DeTable<'s>, HashMap<usize, String>) {
    let (root, _) = DeTable::parse_recoverable(source.file());
    let (mut root, found) = (root.into_inner(), &mut Findings::default());
    text::include::merge(source, &mut root, &mut Document::default(), found);
    let mut variables = text::variables::fill(source, &mut root, found);
    let alone = alone.get_or_init(|| variables.lone_values());
    variables.bare(&mut root, alone);
    let whole = variables.star(&mut root, series);
    (root, whole)
}

/// The reader of the top level.
struct TopReader<'r> {
    source: &'r Source,
    document: &'r mut Document,
    found: &'r mut Findings,
}

impl TopReader<'_> {
    /// One key of the top level.
    fn key(&mut self, key: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) {
        let (name, span) = (key.get_ref(), key.span());
        if let Some(vocabulary) = table_named(name) {
            return self.section(vocabulary, &span, value);
        }
        let foreign = ForeignName::find(None, name);
        let foreign = foreign.as_ref();
        let meant = unknown_table::meant(name, value.get_ref(), foreign);
        unknown_table::note_unknown(name, &span, value.get_ref(), meant, foreign, self.found);
        match (meant, foreign) {
            (Some(meant), _) => self.misnamed(meant, &span, value),
            (None, Some(foreign)) if value.get_ref().is_table() => {
                let lost = foreign.tables().into_iter().map(|table| (table, None));
                self.document.lost.extend(lost);
            }
            _ => {}
        }
    }

    /// Reads a table with a misspelt name. This run reports mistakes inside the table as well, and the table's names
    /// count as defined.
    fn misnamed(&mut self, meant: &'static Table, key: &Span, value: &Spanned<DeValue<'_>>) {
        if !value.get_ref().is_table() {
            self.document.lost.insert((meant.name, None));
            return;
        }
        let mut included = Document::default();
        let mut reader = TopReader {
            source: self.source,
            document: &mut included,
            found: self.found,
        };
        reader.section(meant, key, value);
        self.document.lost.extend(included.lost);
        self.document.identities.extend(included.identities);
        self.document.authorities.extend(included.authorities);
        self.document.groups.extend(included.groups);
        self.document.limits.extend(included.limits);
        self.document.upstreams.extend(included.upstreams);
        self.document.routes.extend(included.routes);
    }

    /// One table.
    fn section(&mut self, vocabulary: &'static Table, key: &Span, value: &Spanned<DeValue<'_>>) {
        let (name, span, document) = (vocabulary.name, value.span(), &mut *self.document);
        let DeValue::Table(table) = value.get_ref() else {
            document.lost.insert((name, None));
            let value = value.get_ref();
            return unknown_table::note_other_type(vocabulary, name, value, &span, self.found);
        };
        if vocabulary.named {
            return self.entries(vocabulary, table);
        }
        let place = heading(self.source, &span, key);
        let title = At::new(name.to_owned(), key.clone());
        let fields = &mut Fields::new(vocabulary, title, place, table, self.found);
        match name {
            "server" => document.server = ServerTable::read(fields),
            "log" => document.log = Log::read(fields),
            "admin" => document.admin = Some(<Admin as Section>::read(fields)),
            "store" => document.store = Store::read(fields),
            "jwt" => document.jwt = Some(Jwt::read(fields)),
            "defaults" => document.defaults = Defaults::read(fields),
            _ => document.response = ResponseTable::read(fields),
        }
    }

    /// The named tables inside one table, as in `[limits.NAME]`.
    fn entries(&mut self, vocabulary: &'static Table, table: &DeTable<'_>) {
        let (document, found) = (&mut *self.document, &mut *self.found);
        let mut nameless = false;
        for (name, entry) in table {
            if found.len() > ENOUGH {
                break;
            }
            let at = At::new(name.get_ref().to_string(), name.span());
            let DeValue::Table(fields) = entry.get_ref() else {
                let is_key = vocabulary.key(&at.value).is_some();
                // These are the keys of a table without a name. All these keys together are one mistake.
                if !is_key || !std::mem::replace(&mut nameless, true) {
                    unknown_table::note_misplaced(vocabulary, &at, entry.get_ref(), found);
                }
                let name = (!is_key).then_some(at.value);
                document.lost.insert((vocabulary.name, name));
                continue;
            };
            if unknown_table::note_dotted(vocabulary, &at, fields, found) {
                let inner = fields.keys();
                let dotted = inner.map(|inner| format!("{}.{}", at.value, inner.get_ref()));
                let names = dotted.chain([at.value.clone()]);
                let lost = names.map(|name| (vocabulary.name, Some(name)));
                document.lost.extend(lost);
                continue;
            }
            unknown_table::check_name(vocabulary, &at, found);
            let place = heading(self.source, &entry.span(), &at.span);
            let mut fields = Fields::new(vocabulary, at, place, fields, found);
            match vocabulary.name {
                "tls" => document.identities.push(TlsTable::read(&mut fields)),
                "acme" => document.authorities.push(AcmeTable::read(&mut fields)),
                "groups" => document.groups.push(tables::group::read_group(fields)),
                "limits" => document.limits.push(tables::limit::read_limit(fields)),
                "upstreams" => document.upstreams.push(Upstream::read(&mut fields)),
                _ => document.routes.push(tables::route::read_route(fields)),
            }
        }
    }
}

/// The place that a message about a whole table points at: the header line, or the key of an inline table.
fn heading(source: &Source, value: &Span, key: &Span) -> Span {
    let is_header = source.written(value).starts_with('[');
    if is_header { value } else { key }.clone()
}

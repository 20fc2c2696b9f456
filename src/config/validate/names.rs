//! Names: every name that is used is defined, and every name that is defined is used.

use crate::config::document::{Document, List};
use crate::config::input::{At, Source, Span};
use crate::config::report::{Code, Details as _, Diagnostic, Findings, all_of, nearest};
use crate::config::value::{in_list, quoted};
use crate::key::KeyPart;
use crate::route::PathPattern;
use std::collections::{HashMap, HashSet};

/// The number of mistakes after which the text is not searched any more: each search takes time.
const ENOUGH: usize = 100;

/// The document and the text from which it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct WholeFile<'a> {
    pub(super) document: &'a Document,
    pub(super) source: &'a Source,
}

/// The names of one table: the defined names, and the used names.
pub(super) struct NameIndex<'a> {
    table: &'static str,
    code: Code,
    defined: Vec<&'a At<String>>,
    known: HashSet<&'a str>,
    used: HashSet<&'a str>,
}

impl<'a> NameIndex<'a> {
    pub(super) fn new(
        table: &'static str,
        code: Code,
        defined: impl Iterator<Item = &'a At<String>>,
    ) -> Self {
        let defined: Vec<_> = defined.collect();
        Self {
            table,
            code,
            known: defined.iter().map(|name| name.value.as_str()).collect(),
            defined,
            used: HashSet::new(),
        }
    }

    /// Notes that `name` is used. `user` is the beginning of the message: `route `a` is held to limit`.
    pub(super) fn used(
        &mut self,
        user: &str,
        name: &'a At<String>,
        file: WholeFile<'_>,
        found: &mut Findings,
    ) {
        self.used.insert(&name.value);
        let WholeFile { document, source } = file;
        let is_defined = self.known.contains(name.value.as_str())
            || document.may_define(self.table, &name.value)
            || (!document.torn.is_empty()
                && (found.len() > ENOUGH || stands_bare(source.text(), &name.value)));
        if is_defined {
            return;
        }
        let suggestion = nearest_definition(name, &self.defined, found);
        self.used
            .extend(suggestion.map(|suggestion| suggestion.value.as_str()));
        self.used.extend(parts(&name.value));
        self.undefined(user, name, suggestion, found);
    }

    fn undefined(
        &self,
        user: &str,
        name: &At<String>,
        suggestion: Option<&At<String>>,
        found: &mut Findings,
    ) {
        const MOST: usize = 8;
        let (table, shown) = (self.table, quoted(&name.value));
        let message = format!("{user} {shown}, which does not exist");
        let label = format!("there is no `[{table}.{}]`", shown.trim_matches('`'));
        let error = found.error(self.code, message).at(&name.span, label);
        let several: Vec<&str> = parts(&name.value).collect();
        if several.len() > 1 && table == "limits" {
            error.help(in_list(&several));
            return;
        }
        if let Some(suggestion) = suggestion {
            let shown = quoted(&suggestion.value);
            error
                .and(&suggestion.span, format!("{shown} is defined here"))
                .help(format!("did you mean {shown}?"));
            return;
        }
        let names = self.defined.iter().take(MOST);
        let names: Vec<&str> = names.map(|name| name.value.as_str()).collect();
        let more = if self.defined.len() > MOST {
            " and more"
        } else {
            ""
        };
        error.help(match names.as_slice() {
            [] => format!("define it: `[{table}.{}]`", name.value.escape_debug()),
            [only] => format!("there is only {}", quoted(only)),
            names => format!("there are {}{more}", all_of(names)),
        });
    }

    pub(super) fn is_used(&self, name: &At<String>) -> bool {
        self.used.contains(name.value.as_str())
    }
}

/// Notes names that are used but not defined, and names that are defined but not used.
pub(super) fn check_names(file: WholeFile<'_>, found: &mut Findings) {
    let document = file.document;
    let names = document.limits.iter().map(|limit| &limit.name);
    let mut limits = NameIndex::new("limits", Code::UnknownLimit, names);
    let names = document.upstreams.iter().map(|upstream| &upstream.name);
    let mut upstreams = NameIndex::new("upstreams", Code::UnknownUpstream, names);
    let mut is_unread = !document.torn.is_empty() || !document.lost.is_empty();
    let defaults = document.defaults.limits.entries().iter();
    let defaults: HashSet<&str> = defaults.map(|at| at.value.as_str()).collect();
    for list in LimitList::all(document) {
        is_unread |= list.limits.is_bad();
        held_and_dropped(&list, found);
        let user = format!("{} is held to limit", list.subject());
        for name in list.limits.entries() {
            match name.value.strip_prefix('!') {
                Some(dropped) if list.may_drop(dropped, &defaults) => {}
                Some(dropped) => list.drops(document, dropped, &name.span, found),
                None => limits.used(&user, name, file, found),
            }
        }
    }
    for route in &document.routes {
        let is_answered = !(route.redirect.is_absent() && route.respond.is_absent());
        is_unread |= route.upstream.is_bad() || (route.upstream.is_absent() && !is_answered);
        if let Some(name) = route.upstream.at() {
            let user = format!("{route} sends requests to upstream");
            upstreams.used(&user, name, file, found);
        }
    }
    if !is_unread && !document.routes.is_empty() {
        unused(document, &limits, &upstreams, found);
    }
}

/// A list of limits, and the table that has it.
struct LimitList<'a> {
    owner: ListOwner,
    title: String,
    limits: &'a List<String>,
}

#[derive(PartialEq, Eq)]
enum ListOwner {
    Route,
    Upstream,
    Defaults,
}

impl<'a> LimitList<'a> {
    fn all(document: &'a Document) -> impl Iterator<Item = Self> {
        let routes = document.routes.iter().map(|route| Self {
            owner: ListOwner::Route,
            title: route.to_string(),
            limits: &route.limits,
        });
        let upstreams = document.upstreams.iter().map(|upstream| Self {
            owner: ListOwner::Upstream,
            title: upstream.to_string(),
            limits: &upstream.limits,
        });
        let defaults = Self {
            owner: ListOwner::Defaults,
            title: "`[defaults]`".to_owned(),
            limits: &document.defaults.limits,
        };
        routes.chain(upstreams).chain([defaults])
    }

    /// The subject of "is held to limit".
    fn subject(&self) -> &str {
        match self.owner {
            ListOwner::Defaults => "every request",
            ListOwner::Route | ListOwner::Upstream => &self.title,
        }
    }

    /// Does `"!NAME"` drop one of the `defaults` here?
    fn may_drop(&self, name: &str, defaults: &HashSet<&str>) -> bool {
        self.owner == ListOwner::Route && defaults.contains(name)
    }

    /// `"!NAME"` in the limits of a route drops a default; in any other place, and for any other name, it drops
    /// nothing.
    fn drops(&self, document: &Document, dropped: &str, span: &Span, found: &mut Findings) {
        let title = &self.title;
        if self.owner != ListOwner::Route {
            found
                .conflict(format!("{title} has no limits of `[defaults]` to drop"))
                .at(span, "only a route drops a limit of `[defaults]`")
                .help("leave it out");
            return;
        }
        let defaults = document.defaults.limits.entries().iter();
        let names: Vec<&str> = defaults.map(|at| at.value.as_str()).take(ENOUGH).collect();
        let dropped = quoted(dropped);
        let message = format!("{title} drops limit {dropped}, which `[defaults]` does not have");
        found
            .error(Code::UnknownLimit, message)
            .at(span, "nothing to drop")
            .help(match names.as_slice() {
                [] => "there are no `[defaults]` limits: leave it out".to_owned(),
                names => format!("the defaults are {}", all_of(names)),
            });
    }
}

/// Notes a list that names a limit and drops the same limit.
fn held_and_dropped(list: &LimitList<'_>, found: &mut Findings) {
    if list.owner == ListOwner::Defaults {
        return;
    }
    let entries = list.limits.entries().iter();
    let (dropped, held): (Vec<_>, Vec<_>) = entries.partition(|at| at.value.starts_with('!'));
    if dropped.is_empty() {
        return;
    }
    let held: HashMap<&str, &At<String>> = held
        .into_iter()
        .rev()
        .map(|at| (at.value.as_str(), at))
        .collect();
    for dropped in dropped {
        let name = dropped.value.strip_prefix('!').unwrap_or_default();
        if let Some(held) = held.get(name) {
            let (title, name) = (&list.title, quoted(name));
            found
                .conflict(format!("{title} has limit {name} and also drops it"))
                .at(&dropped.span, "dropped")
                .and(&held.span, "and named")
                .help("keep the one that is meant");
        }
    }
}

fn unused(
    document: &Document,
    limits: &NameIndex<'_>,
    upstreams: &NameIndex<'_>,
    found: &mut Findings,
) {
    for limit in &document.limits {
        if !limits.is_used(&limit.name) {
            let list = format!("`limits = [\"{}\"]`", limit.name.value);
            found
                .warning(Code::UnusedLimit, format!("{limit} limits nothing"))
                .at(&limit.place, "no route and no upstream names it")
                .help(format!("add it to the `limits` of a route: {list}"));
        }
    }
    for upstream in &document.upstreams {
        if !upstreams.is_used(&upstream.name) {
            found
                .warning(Code::UnusedUpstream, format!("{upstream} gets no requests"))
                .at(&upstream.place, "no route leads here");
        }
    }
}

/// The names in a text that may contain several names.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ']).filter(|part| !part.is_empty())
}

/// Does the text contain `name` outside quotes, as a definition would? An unreadable part of the file may define the
/// name.
fn stands_bare(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let quote = |c: char| c == '"' || c == '\'';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        let whole = !before.is_some_and(part) && !after.is_some_and(part);
        whole && !(before.is_some_and(quote) && after.is_some_and(quote))
    })
}

/// The definition that was probably meant.
fn nearest_definition<'a>(
    name: &At<String>,
    defined: &[&'a At<String>],
    found: &[Diagnostic],
) -> Option<&'a At<String>> {
    if found.len() > ENOUGH {
        return None;
    }
    let names = defined.iter().map(|defined| defined.value.as_str());
    let suggestion = nearest(&name.value, names)?;
    let mut defined = defined.iter().copied();
    defined.find(|defined| defined.value == suggestion)
}

/// A request is granted one number, which two limits with `partial` would contradict.
pub(super) fn one_partial(document: &Document, found: &mut Findings) {
    let limits = document.limits.iter();
    let partial = limits.filter(|limit| limit.partial() && limit.mode().decides());
    let partial: HashSet<&str> = partial.map(|limit| limit.name.value.as_str()).collect();
    for route in &document.routes {
        let named = document.limits_of(route);
        let mut named = named.filter(|name| partial.contains(name.value.as_str()));
        let Some(first) = named.next() else { continue };
        if let Some(second) = named.find(|name| name.value != first.value) {
            found
                .conflict(format!("{route} has two limits that grant what is left"))
                .at(&second.span, "the second")
                .and(&first.span, "the first")
                .help("leave `partial` out of one of them");
        }
    }
}

/// A limit that counts by a parameter of the path can apply only to routes whose path has the parameter.
pub(super) fn parameters(document: &Document, found: &mut Findings) {
    let mut wanted: HashMap<&str, Vec<(&str, &Span)>> = HashMap::new();
    for limit in &document.limits {
        let parts = limit.by.at().map_or(&[][..], |by| &by.value[..]);
        for part in parts {
            if let Some(name) = part.value.as_ref().and_then(KeyPart::parameter) {
                let wanted = wanted.entry(&limit.name.value).or_default();
                wanted.push((name, &part.span));
            }
        }
    }
    if wanted.is_empty() {
        return;
    }
    for route in &document.routes {
        if route.path.is_bad() {
            continue;
        }
        let path = route.path.get();
        let has = |name: &str| path.map_or(name == "rest", |path| path.has(name));
        let mut seen = HashSet::new();
        for limit in document
            .limits_of(route)
            .filter(|limit| seen.insert(&limit.value))
        {
            let names = wanted.get(limit.value.as_str()).into_iter().flatten();
            for (name, span) in names.filter(|(name, _)| !has(name)) {
                let place = route.path.span().unwrap_or(&route.place);
                let limit = quoted(&limit.value);
                let message = format!(
                    "limit {limit} counts by `path:{name}`, but the path of {route} has no `{{{name}}}`"
                );
                found
                    .error(Code::UnknownParameter, message)
                    .at(place, format!("no `{{{name}}}`"))
                    .and(span, "counted by here")
                    .help(has_instead(path));
            }
        }
    }
}

pub(super) fn has_instead(path: Option<&PathPattern>) -> String {
    let names: Vec<&str> = path.into_iter().flat_map(PathPattern::parameters).collect();
    match names.as_slice() {
        [] => "name a segment of the path: `path = \"/orders/{id}\"`, or leave the limit out of this route".into(),
        names => format!("the path has {}", all_of(names)),
    }
}

/// Clients recognise limits by their names, so the names must differ.
pub(super) fn public(document: &Document, found: &mut Findings) {
    // Names that clients see: names of limits without a public name, and the first use of each public name.
    let mut plain: HashMap<&str, &Span> = HashMap::new();
    for limit in &document.limits {
        if limit.public_name.at().is_none() {
            plain.entry(&limit.name.value).or_insert(&limit.name.span);
        }
    }
    let mut earlier: HashMap<&str, &Span> = HashMap::new();
    for limit in &document.limits {
        let Some(public) = limit.public_name.at() else {
            continue;
        };
        let name = public.value.as_str();
        let taken = plain.get(name).or_else(|| earlier.get(name)).copied();
        earlier.entry(name).or_insert(&public.span);
        if let Some(taken) = taken {
            let message = format!("two limits have the public name {}", quoted(&public.value));
            found
                .error(Code::Duplicate, message)
                .at(&public.span, "the name is taken")
                .and(taken, "by this limit");
        }
    }
}

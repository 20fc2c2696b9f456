//! Every name that is used is defined, and the other way round.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::document::{Document, List};
use super::super::source::{At, Source, Span};
use super::super::suggest::{all_of, nearest};
use super::super::value::{in_list, quoted};
use crate::key::KeyPart;
use crate::route::PathPattern;
use std::collections::{HashMap, HashSet};

/// After so many mistakes no more text is searched: nobody reads more, and each takes time.
const ENOUGH: usize = 100;

/// The names of one table: those that are defined, and those that are used.
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

    /// `name` is used; `user` says by whom and what for.
    pub(super) fn used(
        &mut self,
        user: &str,
        name: &'a At<String>,
        (document, source): (&Document, &Source),
        found: &mut Vec<Diagnostic>,
    ) {
        self.used.insert(&name.value);
        let defined = self.known.contains(name.value.as_str())
            || document.may_define(self.table, &name.value)
            || (!document.torn.is_empty()
                && (found.len() > ENOUGH || stands_bare(source.text(), &name.value)));
        if defined {
            return;
        }
        let near = near(name, &self.defined, found);
        self.used.extend(near.map(|near| near.value.as_str()));
        self.used.extend(parts(&name.value));
        found.push(undefined(
            self.code,
            user,
            self.table,
            name,
            near,
            &self.defined,
        ));
    }

    pub(super) fn is_used(&self, name: &At<String>) -> bool {
        self.used.contains(name.value.as_str())
    }
}

/// Notes what is named and not defined, and what is defined and not named.
pub(super) fn check(document: &Document, source: &Source, found: &mut Vec<Diagnostic>) {
    let place = (document, source);
    let mut limits = NameIndex::new(
        "limits",
        Code::UnknownLimit,
        document.limits.iter().map(|limit| &limit.name),
    );
    let mut upstreams = NameIndex::new(
        "upstreams",
        Code::UnknownUpstream,
        document.upstreams.iter().map(|upstream| &upstream.name),
    );
    let mut unread = !document.torn.is_empty() || !document.lost.is_empty();
    let routes = document
        .routes
        .iter()
        .map(|route| ("route", &route.name, &route.limits));
    let targets = document
        .upstreams
        .iter()
        .map(|upstream| ("upstream", &upstream.name, &upstream.limits));
    for (noun, user, list) in routes.chain(targets) {
        unread |= list.is_bad();
        let title = format!("{noun} {}", quoted(&user.value));
        held_and_dropped(list, &title, found);
        let user = format!("{title} is held to limit");
        for name in list.entries() {
            match name.value.strip_prefix('!') {
                Some(dropped) => drops(document, noun == "route", &title, (dropped, name), found),
                None => limits.used(&user, name, place, found),
            }
        }
    }
    unread |= document.defaults.limits.is_bad();
    for name in document.defaults.limits.entries() {
        match name.value.strip_prefix('!') {
            Some(dropped) => drops(document, false, "`[defaults]`", (dropped, name), found),
            None => limits.used("every request is held to limit", name, place, found),
        }
    }
    for route in &document.routes {
        let is_answered = !(route.redirect.is_absent() && route.respond.is_absent());
        unread |= route.upstream.is_bad() || (route.upstream.is_absent() && !is_answered);
        let user = format!(
            "route {} sends requests to upstream",
            quoted(&route.name.value)
        );
        if let Some(name) = route.upstream.at() {
            upstreams.used(&user, name, place, found);
        }
    }
    if !unread && !document.routes.is_empty() {
        unused(document, &limits, &upstreams, found);
    }
}

/// One list that names a limit and drops it.
fn held_and_dropped(list: &List<String>, title: &str, found: &mut Vec<Diagnostic>) {
    for dropped in list.entries() {
        let Some(name) = dropped.value.strip_prefix('!') else {
            continue;
        };
        let mut others = list.entries().iter();
        if let Some(held) = others.find(|at| at.value == name) {
            let message = format!("{title} is held to limit {} and drops it", quoted(name));
            found.push(
                Diagnostic::error(Code::Conflict, message)
                    .at(&dropped.span, "dropped")
                    .and(&held.span, "and named")
                    .help("keep the one that is meant"),
            );
        }
    }
}

/// `"!NAME"` in the limits of a route drops a default; anywhere else, and for any other name, it drops nothing.
fn drops(
    document: &Document,
    may: bool,
    title: &str,
    (dropped, at): (&str, &At<String>),
    found: &mut Vec<Diagnostic>,
) {
    let defaults = document.defaults.limits.entries();
    if may && defaults.iter().any(|at| at.value == dropped) {
        return;
    }
    if !may {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!("{title} has no limits of others to drop"),
            )
            .at(&at.span, "only a route drops one of `[defaults]`")
            .help("leave it out"),
        );
        return;
    }
    let names: Vec<&str> = defaults.iter().map(|at| at.value.as_str()).collect();
    found.push(
        Diagnostic::error(
            Code::UnknownLimit,
            format!(
                "{title} drops limit {}, which `[defaults]` does not have",
                quoted(dropped)
            ),
        )
        .at(&at.span, "nothing to drop")
        .help(match names.as_slice() {
            [] => "there are no `[defaults]` limits: leave it out".to_owned(),
            names => format!("the defaults are {}", all_of(names)),
        }),
    );
}

fn unused(
    document: &Document,
    limits: &NameIndex<'_>,
    upstreams: &NameIndex<'_>,
    found: &mut Vec<Diagnostic>,
) {
    let warning = |code, message: String, place: &Span, label| {
        Diagnostic::warning(code, message).at(place, label)
    };
    for limit in &document.limits {
        if !limits.is_used(&limit.name) {
            let message = format!("limit {} limits nothing", quoted(&limit.name.value));
            let label = "no route and no upstream names it";
            found.push(
                warning(Code::UnusedLimit, message, &limit.place, label).help(format!(
                    "add it to the `limits` of a route: `limits = [\"{}\"]`",
                    limit.name.value
                )),
            );
        }
    }
    for upstream in &document.upstreams {
        if !upstreams.is_used(&upstream.name) {
            let message = format!("upstream {} gets no requests", quoted(&upstream.name.value));
            let label = "no route leads here";
            found.push(warning(
                Code::UnusedUpstream,
                message,
                &upstream.place,
                label,
            ));
        }
    }
}

/// The names in a text that may hold several.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ']).filter(|part| !part.is_empty())
}

/// Does the text have `name` anywhere outside quotes, as a definition would? In a file of which parts could not be read
/// it may be defined there.
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
fn near<'a>(
    name: &At<String>,
    defined: &[&'a At<String>],
    found: &[Diagnostic],
) -> Option<&'a At<String>> {
    if found.len() > ENOUGH {
        return None;
    }
    let near = nearest(
        &name.value,
        defined.iter().map(|defined| defined.value.as_str()),
    )?;
    defined
        .iter()
        .find(|defined| defined.value == near)
        .copied()
}

fn undefined(
    code: Code,
    user: &str,
    table: &str,
    name: &At<String>,
    near: Option<&At<String>>,
    defined: &[&At<String>],
) -> Diagnostic {
    const MOST: usize = 8;
    let diagnostic = Diagnostic::error(
        code,
        format!("{user} {}, which does not exist", quoted(&name.value)),
    )
    .at(
        &name.span,
        format!(
            "there is no `[{table}.{}]`",
            quoted(&name.value).trim_matches('`')
        ),
    );
    let several: Vec<&str> = parts(&name.value).collect();
    match near {
        _ if several.len() > 1 && table == "limits" => diagnostic.help(in_list(&several)),
        Some(near) => diagnostic
            .and(
                &near.span,
                format!("{} is defined here", quoted(&near.value)),
            )
            .help(format!("did you mean {}?", quoted(&near.value))),
        None if defined.is_empty() => diagnostic.help(format!(
            "define it: `[{table}.{}]`",
            name.value.escape_debug()
        )),
        None => {
            let names: Vec<&str> = defined
                .iter()
                .take(MOST)
                .map(|name| name.value.as_str())
                .collect();
            let more = if defined.len() > MOST {
                " and more"
            } else {
                ""
            };
            diagnostic.help(match names.as_slice() {
                [only] => format!("there is only {}", quoted(only)),
                names => format!("there are {}{more}", all_of(names)),
            })
        }
    }
}

/// A request is granted one number: two limits of it that grant what is left would each mean another.
pub(super) fn one_partial(document: &Document, found: &mut Vec<Diagnostic>) {
    let partial: HashSet<&str> = document
        .limits
        .iter()
        .filter(|limit| limit.partial() && limit.mode().decides())
        .map(|limit| limit.name.value.as_str())
        .collect();
    for route in &document.routes {
        let mut named = document.limits_of(route);
        let mut named = named
            .by_ref()
            .filter(|name| partial.contains(name.value.as_str()));
        let Some(first) = named.next() else { continue };
        let Some(second) = named.find(|name| name.value != first.value) else {
            continue;
        };
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!(
                    "route {} has two limits that grant what is left",
                    quoted(&route.name.value)
                ),
            )
            .at(&second.span, "the second")
            .and(&first.span, "the first")
            .help("leave `partial` out of one of them"),
        );
    }
}

/// A limit that counts by a parameter of the path holds for routes whose path has it.
pub(super) fn parameters(document: &Document, found: &mut Vec<Diagnostic>) {
    let mut wanted: HashMap<&str, Vec<(&str, &Span)>> = HashMap::new();
    for limit in &document.limits {
        let parts = limit.by.at().map_or(&[][..], |by| &by.value[..]);
        for part in parts {
            if let Some(KeyPart::Path(name)) = &part.value {
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
                let place = route.path.at().map_or(&route.place, |at| &at.span);
                found.push(
                    Diagnostic::error(
                        Code::UnknownParameter,
                        format!(
                            "limit {} counts by `path:{name}`, but the path of route {} has no `{{{name}}}`",
                            quoted(&limit.value),
                            quoted(&route.name.value),
                        ),
                    )
                    .at(place, format!("no `{{{name}}}`"))
                    .and(span, "counted by here")
                    .help(has_instead(path)),
                );
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

/// Clients tell limits apart by their names.
pub(super) fn public(document: &Document, found: &mut Vec<Diagnostic>) {
    // By what clients see: who has no other name, and the first of those who have.
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
            let message = format!(
                "clients could not tell two limits called {} apart",
                quoted(&public.value)
            );
            found.push(
                Diagnostic::error(Code::Duplicate, message)
                    .at(&public.span, "the name is taken")
                    .and(taken, "by this one"),
            );
        }
    }
}

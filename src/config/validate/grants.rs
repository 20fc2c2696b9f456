//! Grants: included files claim and drop only what their entries of `include` let them.

use super::super::diagnostic::{Code, Details as _, Diagnostic, Findings};
use super::super::document::{Document, Route};
use super::super::grant::Grant;
use super::super::source::{At, Source, Span};
use super::super::suggest::all_of;
use super::super::value::quoted;
use super::routes::any_path;

/// Holds every route of an included file against its entry.
pub(super) fn check(document: &Document, source: &Source, found: &mut Findings) {
    for route in &document.routes {
        hosts(route, source, found);
        path(route, source, found);
        for dropped in route.limits.entries() {
            drops(route, dropped, source, found);
        }
    }
    for grant in source.grants() {
        nothing_to_drop(grant, document, found);
    }
}

/// The grant of the included file that has `span`, and the file's name. A value that `--set` replaced is the operator's.
fn bounded<'s>(source: &'s Source, span: &Span) -> Option<(&'s Grant, String)> {
    let grant = source.grant(span.start)?;
    Some((grant, source.place(span.start)))
}

fn hosts(route: &Route, source: &Source, found: &mut Findings) {
    let name = quoted(&route.name.value);
    if route.host.is_absent() {
        let bounds = bounded(source, &route.name.span);
        let Some((grant, file, bounds)) =
            bounds.and_then(|(grant, file)| Some((grant, file, grant.hosts.as_ref()?)))
        else {
            return;
        };
        let hosts: Vec<String> = bounds.iter().map(ToString::to_string).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let refused = Diagnostic::error(
            Code::NotGranted,
            format!("{file} may not have route {name} for every host"),
        )
        .at(&route.place, "it says no `host`")
        .note(format!("its routes may be for {}", all_of(&hosts)));
        let instead = grant.without("hosts");
        found.push(grant.shown(refused, source, &instead).help(in_route(
            "host",
            &hosts,
            &grant.help(source, &instead),
        )));
        return;
    }
    for host in route.host.entries() {
        let Some((grant, file)) = bounded(source, &host.span) else {
            continue;
        };
        let Some(bounds) = &grant.hosts else { continue };
        if bounds.iter().any(|bound| host.value.is_within(bound)) {
            continue;
        }
        let refused = Diagnostic::error(
            Code::NotGranted,
            format!(
                "{file} may not have route {name} for the host `{}`",
                host.value
            ),
        )
        .at(&host.span, "not among its `hosts`");
        let instead = grant.with("hosts", &host.value.to_string());
        found.push(grant.shown(refused, source, &instead));
    }
}

fn in_route(key: &str, values: &[&str], otherwise: &str) -> String {
    let value = values.first().copied().unwrap_or_default();
    format!("write `{key} = \"{value}\"` in the route; {otherwise}")
}

fn path(route: &Route, source: &Source, found: &mut Findings) {
    if route.path.is_bad() {
        return;
    }
    let any = any_path();
    let (path, span) = match route.path.at() {
        Some(At { value, span }) => (value, span),
        None => (&any, &route.place),
    };
    let Some((grant, file)) = bounded(source, span) else {
        return;
    };
    let Some(bounds) = &grant.paths else { return };
    if bounds.iter().any(|bound| path.is_within(bound)) {
        return;
    }
    let in_its_case = path.clone().in_its_case();
    if bounds.iter().any(|bound| in_its_case.is_within(bound)) {
        let message = format!(
            "{file} may not have route {} for `{path}` in any case",
            quoted(&route.name.value)
        );
        let refused = Diagnostic::error(Code::NotGranted, message)
            .at(span, "in another case it is not within its `paths`")
            .and(&grant.span, "the entry of `include` that it comes from")
            .help("leave out `path_case`");
        return found.push(refused);
    }
    let refused = Diagnostic::error(
        Code::NotGranted,
        format!(
            "{file} may not have route {} for the path `{path}`",
            quoted(&route.name.value)
        ),
    )
    .at(span, "not within its `paths`");
    let instead = grant.with("paths", &path.to_string());
    let refused = grant.shown(refused, source, &instead);
    found.push(if route.path.is_absent() {
        let paths: Vec<String> = bounds.iter().map(ToString::to_string).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let help = in_route("path", &paths, &grant.help(source, &instead));
        refused.help(help)
    } else {
        refused
    });
}

fn drops(route: &Route, dropped: &At<String>, source: &Source, found: &mut Findings) {
    let Some(name) = dropped.value.strip_prefix('!') else {
        return;
    };
    let Some((grant, file)) = bounded(source, &dropped.span) else {
        return;
    };
    if grant.drops(name) {
        return;
    }
    let refused = Diagnostic::error(
        Code::NotGranted,
        format!(
            "{file} may not drop limit {} for route {}",
            quoted(name),
            quoted(&route.name.value)
        ),
    )
    .at(
        &dropped.span,
        "a limit of `[defaults]` holds for every team",
    );
    found.push(grant.shown(refused, source, &grant.with("drops", name)));
}

/// An entry that lets its files drop limits that `[defaults]` does not have.
fn nothing_to_drop(grant: &Grant, document: &Document, found: &mut Findings) {
    let defaults = document.defaults.limits.entries();
    for name in &grant.drops {
        let is_one = |at: &At<String>| super::super::files::glob::matches(&name.value, &at.value);
        if defaults.iter().any(is_one) || document.defaults.limits.is_bad() {
            continue;
        }
        let message = format!(
            "`drops` names limit {}, which `[defaults]` does not have",
            quoted(&name.value)
        );
        found
            .error(Code::UnknownLimit, message)
            .at(&name.span, "nothing to drop")
            .help("leave it out");
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::value::{host, path};

    #[test]
    fn a_bound_holds_what_it_would_match() {
        for (one, bound, expected) in [
            ("a.test", "a.test", true),
            ("A.test", "a.test.", true),
            ("x.a.test", "a.test", false),
            ("x.a.test", "*.a.test", true),
            ("a.test", "*.a.test", false),
            ("xa.test", "*.a.test", false),
            ("*.x.a.test", "*.a.test", true),
            ("*.a.test", "*.a.test", true),
            ("*.test", "*.a.test", false),
            ("*.a.test", "a.test", false),
        ] {
            let (host_of, bound_of) = (host(one).unwrap(), host(bound).unwrap());
            assert_eq!(host_of.is_within(&bound_of), expected, "{one} in {bound}");
        }
        for (one, bound, expected) in [
            ("/a", "/a/{*rest}", true),
            ("/a/", "/a", true),
            ("/a/{id}/x", "/a/{*rest}", true),
            ("/a/{*all}", "/a/{*rest}", true),
            ("/ab", "/a/{*rest}", false),
            ("/{*rest}", "/a/{*rest}", false),
            ("/{a}/x", "/a/{*rest}", false),
            ("/a/b", "/a/{x}", true),
            ("/a/{x}", "/a/b", false),
            ("/a/{*rest}", "/a/{x}", false),
            ("/a/b/c", "/a/{x}", false),
            ("/a", "/a/{x}", false),
            ("/A/x", "/a/{*rest}", false),
            ("/%61/x", "/a/{*rest}", true),
            ("/", "/{*rest}", true),
        ] {
            let (path_of, bound_of) = (path(one).unwrap(), path(bound).unwrap());
            assert_eq!(path_of.is_within(&bound_of), expected, "{one} in {bound}");
        }
    }

    #[test]
    fn an_entry_is_written_as_it_would_have_to_be() {
        let grant = super::Grant {
            written: vec![
                ("files", vec!["\"a/*.toml\"".into()]),
                ("hosts", vec!["'a.test'".into()]),
            ],
            ..super::Grant::default()
        };
        assert_eq!(
            grant.with("hosts", "b.test"),
            "{ files = \"a/*.toml\", hosts = ['a.test', \"b.test\"] }"
        );
        assert_eq!(
            grant.with("secrets", "a$b"),
            "{ files = \"a/*.toml\", hosts = ['a.test'], secrets = [\"a$$b\"] }"
        );
        assert_eq!(grant.without("hosts"), "{ files = \"a/*.toml\" }");
    }
}

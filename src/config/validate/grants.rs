//! Grants: included files can claim hosts and paths, and drop limits, only if their entries of `include` allow it.

pub(super) mod granted_upstreams;

use super::routes::any_path;
use crate::config::document::{Document, Route};
use crate::config::input::grant::Grant;
use crate::config::input::{At, Source};
use crate::config::report::{Code, Details as _, Findings, all_of};
use crate::config::value::quoted;
use std::fmt::Display;

/// Checks every route of an included file against its entry. A value from `--set` belongs to the operator.
pub(super) fn check_grants(document: &Document, source: &Source, found: &mut Findings) {
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

fn hosts(route: &Route, source: &Source, found: &mut Findings) {
    if route.host.is_absent() {
        let grant = source.grant(route.name.span.start);
        let Some((grant, bounds)) = grant.and_then(|grant| Some((grant, grant.hosts.as_ref()?)))
        else {
            return;
        };
        let what = format!("have {route} for every host");
        let instead = grant.without("hosts");
        let refusal = grant.refusal(source, &route.place, &what, &instead);
        let help = in_route("host", bounds, &grant.help(source, &instead));
        found.push(
            refusal
                .at(&route.place, "it says no `host`")
                .note(format!("its routes may be for {}", all_of(bounds)))
                .help(help),
        );
        return;
    }
    for At { value: host, span } in route.host.entries() {
        let Some(grant) = source.grant(span.start) else {
            continue;
        };
        let Some(bounds) = &grant.hosts else { continue };
        if !bounds.iter().any(|bound| host.is_within(bound)) {
            let what = format!("have {route} for the host `{host}`");
            let instead = grant.with("hosts", &host.to_string());
            let refusal = grant.refusal(source, span, &what, &instead);
            found.push(refusal.at(span, "not among its `hosts`"));
        }
    }
}

fn in_route<T: Display>(key: &str, values: &[T], otherwise: &str) -> String {
    let value = values.first().map(T::to_string).unwrap_or_default();
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
    let grant = source.grant(span.start);
    let Some((grant, bounds)) = grant.and_then(|grant| Some((grant, grant.paths.as_ref()?))) else {
        return;
    };
    if bounds.iter().any(|bound| path.is_within(bound)) {
        return;
    }
    let instead = grant.with("paths", &path.to_string());
    let in_its_case = path.clone().in_its_case();
    found.push(if bounds.iter().any(|bound| in_its_case.is_within(bound)) {
        let what = format!("have {route} for `{path}` in any case");
        let refusal = grant.refusal(source, span, &what, &instead);
        let label = "in another case it is not within its `paths`";
        refusal.at(span, label).help("leave out `path_case`")
    } else {
        let what = format!("have {route} for the path `{path}`");
        let refusal = grant.refusal(source, span, &what, &instead);
        let in_route = in_route("path", bounds, &grant.help(source, &instead));
        refusal
            .at(span, "not within its `paths`")
            .help_if(route.path.is_absent().then_some(in_route))
    });
}

fn drops(route: &Route, dropped: &At<String>, source: &Source, found: &mut Findings) {
    let Some(name) = dropped.value.strip_prefix('!') else {
        return;
    };
    let grant = source.grant(dropped.span.start);
    if let Some(grant) = grant.filter(|grant| !grant.drops(name)) {
        let what = format!("drop limit {} for {route}", quoted(name));
        let instead = grant.with("drops", name);
        let refusal = grant.refusal(source, &dropped.span, &what, &instead);
        let label = "a limit of `[defaults]` applies to every team";
        found.push(refusal.at(&dropped.span, label));
    }
}

/// Notes an entry that grants `drops` of limits which `[defaults]` does not have.
fn nothing_to_drop(grant: &Grant, document: &Document, found: &mut Findings) {
    if document.defaults.limits.is_bad() {
        return;
    }
    let defaults = document.defaults.limits.entries().iter();
    let defaults = defaults.map(|at| at.value.as_str()).collect();
    for name in grant.drops.without_effect(&defaults) {
        let limit = quoted(&name.value);
        let message = format!("`drops` names limit {limit}, which `[defaults]` does not have");
        found
            .error(Code::UnknownLimit, message)
            .at(&name.span, "nothing to drop")
            .help("leave it out");
    }
}

#[cfg(test)]
mod tests {
    use crate::config::value::host;
    use crate::config::value::path;

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

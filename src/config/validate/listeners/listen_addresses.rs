//! Two listeners for one address, which the system gives to only one of them; and upstreams that lead to a listener of
//! the gateway itself.

mod place;

use crate::config::document::{Admin, Document, Upstream};
use crate::config::input::{At, Source};
use crate::config::report::{Code, Details as _, Findings};
use crate::config::validate::quoted;
use place::{EarlierListeners, ListeningPlace, Reached, is_same, overlap};

/// Compares all listeners with each other and with upstreams.
pub(in crate::config::validate) fn check_listen_addresses(
    document: &Document,
    source: &Source,
    found: &mut Findings,
) {
    let listeners = listeners(document, source);
    let mut before = EarlierListeners::default();
    for second in &listeners {
        if let Some(first) = before.takes(second) {
            twice(first, second, found);
        }
        before.add(second);
    }
    if let Some(table) = &document.admin
        && !table.listen.is_bad()
    {
        let places = admin_places(table, source);
        let mut before = EarlierListeners::default();
        for admin in &places {
            if let Some(first) = before.takes(admin) {
                twice(first, admin, found);
            }
            before.add(admin);
            // Only within `[server]` can the two sockets of one port coexist.
            let is_taken = |one: &&ListeningPlace| overlap(&one.address, &admin.address);
            if let Some(taken) = listeners.iter().find(is_taken) {
                taken_from_admin(taken, admin, found);
            }
        }
    }
    let reached = Reached::of(&listeners);
    for upstream in &document.upstreams {
        leads_back(upstream, &reached, found);
    }
}

/// The listeners of `[server]`.
fn listeners(document: &Document, source: &Source) -> Vec<ListeningPlace> {
    let listen = &document.server.listen;
    if listen.is_absent() {
        let default = document.server.listen().into_iter();
        let addresses = default.filter_map(|entry| Some(entry.value.listens_on()?.value.clone()));
        return addresses.map(ListeningPlace::by_default).collect();
    }
    let written = listen.entries().iter();
    let written = written.filter_map(|entry| entry.value.listens_on());
    written.map(|at| ListeningPlace::at(at, source)).collect()
}

/// The addresses of the admin listener.
fn admin_places(table: &Admin, source: &Source) -> Vec<ListeningPlace> {
    if table.listen.is_absent() {
        let default = table.listen().into_iter();
        return default
            .map(|at| ListeningPlace::by_default(at.value))
            .collect();
    }
    let written = table.listen.entries().iter();
    written.map(|at| ListeningPlace::at(at, source)).collect()
}

fn twice(first: &ListeningPlace, second: &ListeningPlace, found: &mut Findings) {
    let (Some(here), Some(there)) = (&second.span, &first.span) else {
        return;
    };
    if is_same(&first.address, &second.address) {
        let message = format!("`listen` has {} twice", second.written);
        found
            .error(Code::Duplicate, message)
            .at(here, "the second time")
            .and(there, "the first time");
        return;
    }
    let (one, other) = (&first.written, &second.written);
    found
        .conflict(format!(
            "two listeners are on one address: {one} and {other}"
        ))
        .at(here, "the system gives a port of an address to one of them")
        .and(there, "has it too")
        .help("give one of them another port, or leave it out");
}

fn taken_from_admin(taken: &ListeningPlace, admin: &ListeningPlace, found: &mut Findings) {
    let Some(place) = admin.span.as_ref().or(taken.span.as_ref()) else {
        return;
    };
    let other = taken.span.as_ref().filter(|span| *span != place);
    let message = if is_same(&taken.address, &admin.address) {
        format!(
            "the admin listener and the server are both to listen on {}",
            admin.written
        )
    } else {
        format!(
            "the admin listener is to listen on {}, which the server has with {}",
            admin.written, taken.written
        )
    };
    let label = if taken.span.is_none() {
        "the default of `listen` in `[server]`"
    } else {
        ""
    };
    found
        .error(Code::AdminOverlapsServer, message)
        .at(place, label)
        .help("give `[admin]` an address of its own")
        .and_if(other, "taken here");
}

/// Warns of servers that are a listener of this gateway: a request would come back to the gateway.
fn leads_back(upstream: &Upstream, listeners: &Reached<'_>, found: &mut Findings) {
    let servers = upstream.servers.entries().iter();
    for At { value, span } in servers.filter_map(|entry| entry.value.url.at()) {
        let Some(listener) = listeners.by(value) else {
            continue;
        };
        let shown = quoted(&listener.written.to_string());
        let message = format!("{upstream} leads back to this gateway");
        found
            .warning(Code::Conflict, message)
            .at(span, format!("its own listener {shown}"))
            .about(&upstream.name.span)
            .help("name the server that is to answer: a request that comes back is answered 508")
            .and_if(listener.span.as_ref(), "it listens here");
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    /// The codes and messages about a file with these lines.
    fn check_addresses(server: &str, admin: &str, servers: &str) -> Vec<String> {
        let text = format!(
            "[server]\nlisten = {server}\n{admin}\n[upstreams.u]\nservers = {servers}\n[routes.r]\nupstream = \"u\"\n"
        );
        let report = match parse("gateway.toml", &text) {
            Ok(compiled) => compiled.report(),
            Err(report) => report,
        };
        let all = report.diagnostics.iter();
        all.map(|one| format!("{}: {}", one.code, one.message))
            .collect()
    }

    #[test]
    fn two_sockets_on_one_address_are_an_error() {
        let none: [&str; 0] = [];
        for (server, expected) in [
            ("[\":81\", \"[::]:81\"]", ""),
            ("[\":81\", \"[::1]:81\"]", ""),
            ("[\"127.0.0.1:81\", \"127.0.0.2:81\"]", ""),
            ("[\"127.0.0.1:81\", \"[::1]:81\"]", ""),
            ("[\"127.0.0.1:0\", \":0\"]", ""),
            ("[\":81\", \":82\"]", ""),
            (
                "[\":81\", \"127.0.0.1:81\"]",
                "conflict: two listeners are on one address: :81 and 127.0.0.1:81",
            ),
            (
                "[\"127.0.0.1:81\", \"0.0.0.0:81\"]",
                "conflict: two listeners are on one address: 127.0.0.1:81 and 0.0.0.0:81",
            ),
            (
                "[\"[::]:81\", \"[::1]:81\"]",
                "conflict: two listeners are on one address: [::]:81 and [::1]:81",
            ),
            (
                "[\"[::]:81\", \"127.0.0.1:81\"]",
                "conflict: two listeners are on one address: [::]:81 and 127.0.0.1:81",
            ),
            (
                "[\":81\", \"0.0.0.0:81\"]",
                "duplicate: `listen` has 0.0.0.0:81 twice",
            ),
            (
                "[\"unix:a\", \"unix:a\"]",
                "duplicate: `listen` has unix:a twice",
            ),
            (
                "[\"unix:/tmp/../tmp/a.s\", \"unix:/tmp/a.s\"]",
                "duplicate: `listen` has unix:/tmp/a.s twice",
            ),
            (
                "[\"unix:/none/./b/../a.s\", \"unix:/none/a.s\"]",
                "duplicate: `listen` has unix:/none/a.s twice",
            ),
            (
                "[\"systemd:a\", \"systemd:a\"]",
                "duplicate: `listen` has systemd:a twice",
            ),
        ] {
            let findings = check_addresses(server, "", "\"a:1\"");
            if expected.is_empty() {
                assert_eq!(findings, none, "{server}");
            } else {
                assert_eq!(findings, [expected], "{server}");
            }
        }
        for (server, admin, expected) in [
            (
                "\":81\"",
                "127.0.0.1:81",
                "admin-overlaps-server: the admin listener is to listen on 127.0.0.1:81, which the server has with :81",
            ),
            ("\":81\"", "[::1]:81", ""),
            (
                "\":9090\"",
                "",
                "admin-overlaps-server: the admin listener is to listen on 127.0.0.1:9090, which the server has with :9090",
            ),
            (
                "\"[::]:81\"",
                "0.0.0.0:81",
                "admin-overlaps-server: the admin listener is to listen on 0.0.0.0:81, which the server has with [::]:81",
            ),
            (
                "\":81\"",
                "[::]:81",
                "admin-overlaps-server: the admin listener is to listen on [::]:81, which the server has with :81",
            ),
            (
                "\"unix:a\"",
                "unix:a",
                "admin-overlaps-server: the admin listener and the server are both to listen on unix:a",
            ),
        ] {
            let listen = if admin.is_empty() {
                String::new()
            } else {
                format!("listen = \"{admin}\"")
            };
            let findings = check_addresses(server, &format!("[admin]\n{listen}"), "\"a:1\"");
            let findings: Vec<_> = findings
                .iter()
                .filter(|one| !one.starts_with("open-admin"))
                .collect();
            if expected.is_empty() {
                assert!(findings.is_empty(), "{server} {admin}: {findings:?}");
            } else {
                assert_eq!(findings, [expected], "{server} {admin}");
            }
        }
    }

    #[test]
    fn an_upstream_that_is_the_gateway_is_told() {
        let back = "conflict: upstream `u` leads back to this gateway";
        for (listen, server, leads) in [
            ("\":81\"", "127.0.0.1:81", true),
            ("\":81\"", "http://localhost:81", true),
            ("\":81\"", "http://[::1]:81", true),
            ("\":81\"", "https://127.0.0.9:81", true),
            ("\"[::]:81\"", "127.0.0.1:81", true),
            ("\"0.0.0.0:81\"", "http://[::1]:81", false),
            ("\"127.0.0.1:81\"", "h2c://127.0.0.1:81", true),
            ("\"127.0.0.1:81\"", "127.0.0.2:81", false),
            ("\"10.1.0.5:81\"", "10.1.0.5:81", true),
            ("\":81\"", "10.1.0.5:81", false),
            ("\":81\"", "127.0.0.1:82", false),
            ("\":80\"", "http://127.0.0.1", true),
            ("\":0\"", "127.0.0.1:81", false),
            ("\"unix:/run/a\"", "unix:/run/a", true),
            ("\"unix:/run/a\"", "unix:/run/b", false),
        ] {
            let findings = check_addresses(listen, "", &format!("\"{server}\""));
            let expected: &[&str] = if leads { &[back] } else { &[] };
            assert_eq!(findings, expected, "{listen} {server}");
        }
    }
}

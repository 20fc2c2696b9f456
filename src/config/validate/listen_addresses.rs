//! Two sockets for one address, which the system gives to one of them alone; and upstreams that lead to a listener of the
//! gateway itself.

use super::super::boot::placed;
use super::super::diagnostic::{Code, Details as _, Findings};
use super::super::document::{Document, Upstream};
use super::super::source::{At, Source, Span};
use super::quoted;
use crate::listen::listener::ListenAddress;
use crate::upstream::ServerUrl;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

/// A listener of the gateway.
struct ListeningPlace {
    /// As the file writes it.
    written: ListenAddress,
    /// With the path of a Unix socket from the root, by no detour and no link: so one file has one path.
    address: ListenAddress,
    /// Where the file has it; nothing for a default.
    span: Option<Span>,
}

impl ListeningPlace {
    fn at(written: &At<ListenAddress>, source: &Source) -> Self {
        Self {
            address: found_on_disk(placed(&written.value, &written.span, source)),
            written: written.value.clone(),
            span: Some(written.span.clone()),
        }
    }

    fn by_default(address: ListenAddress) -> Self {
        Self {
            written: address.clone(),
            address,
            span: None,
        }
    }
}

/// The address, with the one path of a Unix socket that leads to its file.
fn found_on_disk(address: ListenAddress) -> ListenAddress {
    match address {
        ListenAddress::Unix(path) => ListenAddress::Unix(straight(&path).into()),
        address => address,
    }
}

/// The path of a file by the folders that there are. Where its folder is not there yet, `.` and `..` are resolved as
/// they stand.
fn straight(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    if let (Some(folder), Some(name)) = (folder, path.file_name()) {
        return folder.join(name);
    }
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                resolved.pop();
            }
            part => resolved.push(part),
        }
    }
    resolved
}

/// Holds all listeners against each other, and upstreams against them.
pub(super) fn check(document: &Document, source: &Source, found: &mut Findings) {
    let listeners = listeners(document, source);
    for (position, second) in listeners.iter().enumerate() {
        let mut before = listeners[..position].iter();
        if let Some(first) = before.find(|first| is_taken_by(first, second)) {
            twice(first, second, found);
        }
    }
    if let Some(table) = &document.admin
        && !table.listen.is_bad()
    {
        let admin = match table.listen.at() {
            Some(at) => ListeningPlace::at(at, source),
            None => ListeningPlace::by_default(table.listen()),
        };
        // Both sockets of one port are left alone by each other only within `[server]`.
        let is_taken = |one: &&ListeningPlace| overlap(&one.address, &admin.address);
        if let Some(taken) = listeners.iter().find(is_taken) {
            taken_from_admin(taken, &admin, found);
        }
    }
    for upstream in &document.upstreams {
        leads_back(upstream, &listeners, found);
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

/// Can `second` not be had beside `first`? An address that is written twice is a slip even where each might have a port
/// of its own.
fn is_taken_by(first: &ListeningPlace, second: &ListeningPlace) -> bool {
    let are_all = |one: &ListenAddress| {
        let address = one.socket_address();
        address.is_some_and(|address| address.ip().is_unspecified())
    };
    let (one, other) = (&first.address, &second.address);
    is_same(one, other)
        // `:8080` and `[::]:8080` share what there is.
        || overlap(one, other) && !(are_all(one) && are_all(other) && is_ipv4(one) != is_ipv4(other))
}

fn is_same(one: &ListenAddress, other: &ListenAddress) -> bool {
    one.clone().in_ipv4() == other.clone().in_ipv4()
}

fn is_ipv4(address: &ListenAddress) -> bool {
    let address = address.socket_address();
    address.is_some_and(|address| address.is_ipv4())
}

/// Have the two an address in common? Every address (`:8080`) counts as those of IPv4: it leaves those of IPv6 to any
/// other listener.
fn overlap(one: &ListenAddress, other: &ListenAddress) -> bool {
    let (Some(one), Some(other)) = (one.socket_address(), other.socket_address()) else {
        return one == other;
    };
    if one.port() != other.port() || one.port() == 0 {
        return false;
    }
    let (one, other) = (one.ip().to_canonical(), other.ip().to_canonical());
    // `[::]` has the addresses of IPv4 too.
    let has = |all: IpAddr, any: IpAddr| all.is_unspecified() && (all.is_ipv6() || any.is_ipv4());
    one == other || has(one, other) || has(other, one)
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
        .conflict(message)
        .at(place, label)
        .help("give `[admin]` an address of its own")
        .and_if(other, "taken here");
}

/// Warns of servers that are a listener of this gateway: a request would come back to it.
fn leads_back(upstream: &Upstream, listeners: &[ListeningPlace], found: &mut Findings) {
    let servers = upstream.servers.entries().iter();
    for At { value, span } in servers.filter_map(|entry| entry.value.url.at()) {
        let mut own = listeners.iter();
        let Some(own) = own.find(|listener| is_reached_by(&listener.address, value)) else {
            continue;
        };
        let shown = quoted(&own.written.to_string());
        found
            .warning(
                Code::Conflict,
                format!("{upstream} leads back to this gateway"),
            )
            .at(span, format!("its own listener {shown}"))
            .about(&upstream.name.span)
            .help("name the server that is to answer: a request that comes back is answered 508")
            .and_if(own.span.as_ref(), "it listens here");
    }
}

/// Does a connection to `server` arrive at the listener on `address`, as far as the file tells?
fn is_reached_by(address: &ListenAddress, server: &ServerUrl) -> bool {
    let (host, port) = match server {
        ServerUrl::Http { host, port }
        | ServerUrl::Https { host, port }
        | ServerUrl::H2c { host, port } => (host, *port),
        ServerUrl::Unix(path) => {
            return matches!(address, ListenAddress::Unix(own) if **own == *straight(Path::new(&**path)));
        }
        ServerUrl::Demo => return false,
    };
    let Some(own) = address.socket_address().filter(|own| own.port() == port) else {
        return false;
    };
    let is_local_name = host.as_ref() == "localhost" || host.ends_with(".localhost");
    let own = own.ip().to_canonical();
    match host.parse::<IpAddr>().map(|host| host.to_canonical()) {
        // A connection to no address in particular leads to this machine.
        Ok(host) if host.is_loopback() || host.is_unspecified() => {
            let is_all = matches!(address, ListenAddress::EveryAddress(_))
                || own.is_unspecified() && (own.is_ipv6() || host.is_ipv4());
            is_all || own == host || host.is_unspecified() && own.is_loopback()
        }
        Ok(host) => own == host,
        Err(_) => is_local_name && (own.is_unspecified() || own.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    /// The codes and messages about a file with these lines.
    fn told(server: &str, admin: &str, servers: &str) -> Vec<String> {
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
            let told = told(server, "", "\"a:1\"");
            if expected.is_empty() {
                assert_eq!(told, none, "{server}");
            } else {
                assert_eq!(told, [expected], "{server}");
            }
        }
        for (server, admin, expected) in [
            (
                "\":81\"",
                "127.0.0.1:81",
                "conflict: the admin listener is to listen on 127.0.0.1:81, which the server has with :81",
            ),
            ("\":81\"", "[::1]:81", ""),
            (
                "\":9090\"",
                "",
                "conflict: the admin listener is to listen on 127.0.0.1:9090, which the server has with :9090",
            ),
            (
                "\"[::]:81\"",
                "0.0.0.0:81",
                "conflict: the admin listener is to listen on 0.0.0.0:81, which the server has with [::]:81",
            ),
            (
                "\":81\"",
                "[::]:81",
                "conflict: the admin listener is to listen on [::]:81, which the server has with :81",
            ),
            (
                "\"unix:a\"",
                "unix:a",
                "conflict: the admin listener and the server are both to listen on unix:a",
            ),
        ] {
            let listen = if admin.is_empty() {
                String::new()
            } else {
                format!("listen = \"{admin}\"")
            };
            let told = told(server, &format!("[admin]\n{listen}"), "\"a:1\"");
            let told: Vec<_> = told
                .iter()
                .filter(|one| !one.starts_with("open-admin"))
                .collect();
            if expected.is_empty() {
                assert!(told.is_empty(), "{server} {admin}: {told:?}");
            } else {
                assert_eq!(told, [expected], "{server} {admin}");
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
            let told = told(listen, "", &format!("\"{server}\""));
            let expected: &[&str] = if leads { &[back] } else { &[] };
            assert_eq!(told, expected, "{listen} {server}");
        }
    }
}

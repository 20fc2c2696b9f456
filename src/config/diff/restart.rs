//! Settings that are read once: what differs from what the process runs with, and what it still does.

use super::{Change, list, time};
use crate::config::Boot;
use crate::store::Backend;
use crate::telemetry::{AccessFormat, Level};

/// What the running process cannot take over. A secret is compared and never shown.
pub(super) fn compare(running: &Boot, new: &Boot, changes: &mut Vec<Change>) {
    let mut push = |subject: &str, now: Option<String>| {
        changes.push(Change {
            subject: subject.into(),
            what: match now {
                Some(now) => format!("changed, needs a restart; still {now}"),
                None => "changed, needs a restart".into(),
            },
            restart: true,
        });
    };
    let (a, b) = (&running.listen, &new.listen);
    if a.addresses != b.addresses {
        push("server.listen", Some(list(&a.addresses)));
    }
    if running.workers != new.workers {
        push("server.workers", Some(running.workers.to_string()));
    }
    for (subject, a, b) in [
        ("server.drain", running.drain, new.drain),
        ("server.first_byte", a.first_byte, b.first_byte),
        ("server.head", a.head, b.head),
        ("server.idle", a.idle, b.idle),
        ("store.timeout", running.store.timeout, new.store.timeout),
    ] {
        if a != b {
            push(subject, Some(time(a)));
        }
    }
    if a.min_rate != b.min_rate {
        push("server.min_rate", Some(format!("{}B/s", a.min_rate)));
    }
    if a.max_connections != b.max_connections {
        push(
            "server.max_connections",
            Some(a.max_connections.to_string()),
        );
    }
    if a.max_connections_per_client != b.max_connections_per_client {
        let still = a.max_connections_per_client;
        push(
            "server.max_connections_per_client",
            Some(still.map_or_else(
                || "a tenth of max_connections".to_owned(),
                |most| most.to_string(),
            )),
        );
    }
    if running.admin != new.admin {
        let still = running
            .admin
            .map_or("off".into(), |admin| admin.listen.to_string());
        push("admin.listen", Some(still));
    }
    let (a, b) = (&running.store, &new.store);
    if a.source != b.source && !same_place(&a.source, &b.source) {
        for subject in elsewhere(&a.source, &b.source) {
            push(subject, None);
        }
    }
    if a.on_down != b.on_down {
        push(
            "store.on_down",
            Some(format!("{:?}", a.on_down).to_lowercase()),
        );
    }
    if a.prefix != b.prefix {
        push("store.prefix", Some(a.prefix.to_string()));
    }
    if a.max_keys != b.max_keys {
        push("store.max_keys", Some(a.max_keys.to_string()));
    }
    let (a, b) = (running.log, new.log);
    if a.access != b.access {
        push("log.access", Some(access(a.access).into()));
    }
    if a.level != b.level {
        push("log.level", Some(level(a.level).into()));
    }
}

fn access(format: AccessFormat) -> &'static str {
    match format {
        AccessFormat::Json => "json",
        AccessFormat::Short => "short",
        AccessFormat::Combined => "combined",
        AccessFormat::Off => "off",
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// What makes it another place: the address, unless it is only how that is used.
fn elsewhere(a: &Backend, b: &Backend) -> Vec<&'static str> {
    let (Backend::Redis(a), Backend::Redis(b)) = (a, b) else {
        return vec!["store.url"];
    };
    let others = [
        ("store.url", a.to_string() != b.to_string()),
        ("store.username", a.username != b.username),
        ("store.functions", a.functions != b.functions),
    ];
    let others = others.into_iter().filter(|(_, differs)| *differs);
    let others: Vec<_> = others.map(|(subject, _)| subject).collect();
    match others.is_empty() {
        true => vec!["store.sentinel"],
        false => others,
    }
}

/// Is it the same Redis and user, whatever is presented to it?
fn same_place(a: &Backend, b: &Backend) -> bool {
    match (a, b) {
        (Backend::Redis(a), Backend::Redis(b)) => a.is_same_place(b),
        _ => false,
    }
}

/// What is presented to the store and is to be another: taken over without a restart.
pub(super) fn secrets(running: &Boot, new: &Boot) -> Vec<Change> {
    let (Backend::Redis(a), Backend::Redis(b)) = (&running.store.source, &new.store.source) else {
        return Vec::new();
    };
    if !a.is_same_place(b) {
        return Vec::new();
    }
    let changed = [
        ("store.password", a.password != b.password),
        ("store.sentinel", a.place != b.place),
        ("store.tls", a.tls != b.tls),
    ];
    let changed = changed.into_iter().filter(|(_, changed)| *changed);
    changed
        .map(|(subject, _)| Change {
            subject: subject.into(),
            what: "changed; connections made from now on present it".into(),
            restart: false,
        })
        .collect()
}

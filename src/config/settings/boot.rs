//! Boot: the settings that are read once, at start. A reload can only report that such a setting has changed.

pub(in crate::config) mod admin;

use super::authorities::Authorities;
use crate::config::document::{Document, ListenEntry, ListenerTls};
use crate::config::input::{SideFiles, Source, Span};
use crate::config::presentation::Boot;
use crate::config::secrets::{Secrets, query_of};
use crate::listen::keep_alive::KeepAlive;
use crate::listen::listener::{ListenAddress, Listener};
use crate::{listen, store, telemetry};
use admin::ReadAdmin;
use std::io::{self, IsTerminal};
use std::sync::Arc;

/// Combines the settings; secrets are read from their places.
pub(in crate::config) fn read_boot(
    document: &Document,
    authorities: &Authorities,
    admin: ReadAdmin,
    side_files: &mut SideFiles<'_>,
) -> Boot {
    let source = side_files.source;
    let (server, log) = (&document.server, &document.log);
    let listeners = match server.listen.written() {
        Some(written) => written.clone(),
        None => server.listen(),
    };
    let listeners = listeners
        .iter()
        .filter_map(|entry| listener(&entry.value, document, source));
    let terminal = || {
        if io::stdout().is_terminal() {
            telemetry::AccessFormat::Short
        } else {
            telemetry::AccessFormat::Json
        }
    };
    let store = super::store::read_store(document, side_files);
    Boot {
        secrets: Arc::new(secrets(document, authorities, &store, admin.secrets)),
        listen: listen::ListenSettings {
            listeners: listeners.collect(),
            handshake: server.handshake(),
            first_byte: server.first_byte(),
            head: server.head(),
            idle: server.idle(),
            keep_alive: KeepAlive::new(server.kept_alive()),
            min_rate: server.min_rate(),
            max_connections: server.max_connections() as usize,
            max_connections_per_client: server
                .max_connections_per_client
                .get()
                .map(|most| *most as usize),
        },
        workers: server.workers() as usize,
        drain: server.drain(),
        drain_delay: server.drain_delay(),
        admin: admin.settings,
        store,
        log: telemetry::LogSettings {
            access: log.access.get().copied().unwrap_or_else(terminal),
            level: log.level(),
        },
    }
}

/// A listener, with the names of its identities. The name of an identity that belongs to one listener is the listener's
/// address.
fn listener(entry: &ListenEntry, document: &Document, source: &Source) -> Option<Listener> {
    let written = entry.listens_on()?;
    let address = &written.value;
    let names: Option<Vec<Arc<str>>> = entry.tls.get().map(|tls| match tls {
        ListenerTls::All => {
            let tables = document.identities.iter();
            tables
                .map(|table| table.name.value.as_str().into())
                .collect()
        }
        ListenerTls::Named(names) => names.iter().map(|at| at.value.as_str().into()).collect(),
        // Metrics have used this name since the time when an address without a host meant only IPv4.
        ListenerTls::Own(_) => vec![address.clone().in_ipv4().to_string().into()],
    });
    Some(Listener {
        tls: names.map(Into::into),
        redirects: entry.redirect.get().is_some(),
        mode: entry.mode(),
        proxies: entry.proxies(&document.server.translators()),
        address: placed(address, &written.span, source),
    })
}

/// The values of the file's secret variables, and the secrets that were read from files and variables.
fn secrets(
    document: &Document,
    authorities: &Authorities,
    store: &store::StoreSettings,
    tokens: Vec<String>,
) -> Secrets {
    let mut all = document.variables.secrets();
    all.extend(tokens);
    all.extend(document.fetched.iter().cloned());
    all.extend(authorities.secrets.iter().cloned());
    let urls = document.jwt.iter().flat_map(|jwt| jwt.jwks.entries());
    all.extend(urls.filter_map(|url| query_of(&url.value)));
    if let store::Backend::Redis(target) = &store.source {
        let mut passwords = vec![&target.password];
        if let store::RedisEndpoint::Sentinel { password, .. } = &target.place {
            passwords.push(password);
        }
        let given = passwords.into_iter().flatten();
        all.extend(given.map(|one| one.expose().to_owned()));
    }
    Secrets::new(all)
}

/// The address; the path of a Unix socket is relative to the folder of the file that contains the address.
pub(in crate::config) fn placed(
    address: &ListenAddress,
    span: &Span,
    source: &Source,
) -> ListenAddress {
    match address {
        ListenAddress::Unix(path) => {
            let path = source.resolve_path(span.start, &path.to_string_lossy());
            ListenAddress::Unix(path.into())
        }
        ListenAddress::Tcp(_) | ListenAddress::EveryAddress(_) | ListenAddress::Systemd(_) => {
            address.clone()
        }
    }
}

//! Boot: the settings that are read once, at start. A reload can only report that such a setting has changed.

use super::document::Document;
use super::masking::Secrets;
use super::outline::Boot;
use super::side_files::SideFiles;
use crate::{admin, listen, store, telemetry};
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::sync::Arc;

/// Puts the settings together; secrets are fetched from where the file says.
pub(super) fn read(document: &Document, beside: &mut SideFiles<'_>) -> Boot {
    let (server, log) = (&document.server, &document.log);
    let addresses = match server.listen.written() {
        Some(written) => written.clone(),
        None => server.listen(),
    };
    let terminal = || {
        if io::stdout().is_terminal() {
            telemetry::AccessFormat::Short
        } else {
            telemetry::AccessFormat::Json
        }
    };
    let store = super::store::read(document, beside);
    Boot {
        secrets: Arc::new(secrets(document, &store)),
        listen: listen::ListenSettings {
            addresses: addresses.into_iter().map(|at| at.value).collect(),
            first_byte: server.first_byte(),
            head: server.head(),
            idle: server.idle(),
            min_rate: server.min_rate(),
            max_connections: server.max_connections() as usize,
            max_connections_per_client: server
                .max_connections_per_client
                .get()
                .map(|most| *most as usize),
        },
        workers: server.workers() as usize,
        drain: server.drain(),
        admin: document.admin.as_ref().map(|admin| admin::AdminSettings {
            listen: admin.listen(),
        }),
        store,
        log: telemetry::LogSettings {
            access: log.access.get().copied().unwrap_or_else(terminal),
            level: log.level(),
        },
    }
}

/// The values of the file's secret variables, and the secrets that were read from files and variables.
fn secrets(document: &Document, store: &store::StoreSettings) -> Secrets {
    let mut all = document.variables.secrets();
    all.extend(document.fetched.iter().cloned());
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

/// The admin listener's address; the default where none is written.
pub(super) fn admin_address(document: &Document) -> Option<SocketAddr> {
    document.admin.as_ref().map(|admin| admin.listen())
}

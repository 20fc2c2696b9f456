//! The gateway's listening sockets: taken over or bound before anything is served on them, and opened when the gateway is
//! ready.

use super::StartError;
use crate::config::Boot;
use crate::listen::bind::{self, AcceptSocket, BoundSocket, OpenSocket};
use crate::listen::handed_sockets::HandedSockets;
use crate::listen::listener::ListenAddress;
use crate::listen::socket_file::SocketFile;
use std::fmt::Write as _;
use std::io;

/// The sockets of one address, which no client can connect to yet.
#[derive(Debug)]
struct BoundAddress {
    address: ListenAddress,
    sockets: Vec<BoundSocket>,
}

/// The part of the gateway that listens.
#[derive(Debug, Clone, Copy)]
enum Role {
    Server,
    Admin,
}

/// The gateway's sockets, bound before any of them serves.
#[derive(Debug)]
pub(super) struct BoundSockets {
    /// Those of every listener, in the order of the file.
    server: Vec<BoundAddress>,
    admin: Option<BoundAddress>,
}

impl BoundSockets {
    /// Takes over or binds the sockets of every listener and of the admin listener.
    ///
    /// # Errors
    /// When an address cannot be had.
    pub(super) fn bind(boot: &Boot, mut handed: HandedSockets) -> Result<Self, StartError> {
        let listeners = boot.listen.listeners.iter();
        let server = listeners
            .map(|one| BoundAddress::bind(Role::Server, &one.address, one.mode, &mut handed))
            .collect::<Result<_, _>>()?;
        let admin = boot.admin.as_ref();
        let admin = admin
            .map(|admin| BoundAddress::bind(Role::Admin, &admin.listen, admin.mode, &mut handed))
            .transpose()?;
        for name in handed.names() {
            tracing::warn!(
                "a socket called `{name}` was handed over, and no listener of the file uses it: it was closed; `listen = \"systemd:{name}\"` would use it"
            );
        }
        Ok(Self { server, admin })
    }

    /// Opens the admin listener, if there is one.
    ///
    /// # Errors
    /// When another process listens there in the meantime.
    pub(super) fn open_admin(
        &mut self,
        kept: &mut KeptSockets,
    ) -> Result<Vec<AcceptSocket>, StartError> {
        let admin = self.admin.take();
        admin.map_or_else(|| Ok(Vec::new()), |admin| admin.open(kept))
    }

    /// Opens every listener.
    ///
    /// # Errors
    /// When another process listens there in the meantime.
    pub(super) fn open_server(
        self,
        kept: &mut KeptSockets,
    ) -> Result<Vec<Vec<AcceptSocket>>, StartError> {
        let server = self.server.into_iter();
        server.map(|bound| bound.open(kept)).collect()
    }
}

impl BoundAddress {
    fn bind(
        role: Role,
        address: &ListenAddress,
        mode: u32,
        handed: &mut HandedSockets,
    ) -> Result<Self, StartError> {
        let name = name_of(role, address);
        let sockets = bind::bind(address, mode, &name, handed);
        Ok(Self {
            address: address.clone(),
            sockets: sockets.map_err(not_at(address))?,
        })
    }

    /// Lets clients connect. What is needed to the end is added to `kept`.
    ///
    /// # Errors
    /// When another process listens there in the meantime.
    fn open(self, kept: &mut KeptSockets) -> Result<Vec<AcceptSocket>, StartError> {
        let Self { address, sockets } = self;
        let open = sockets.into_iter().map(|bound| {
            let OpenSocket { listening, file } = bound.open()?;
            kept.files.extend(file);
            Ok(listening)
        });
        let open: io::Result<Vec<AcceptSocket>> = open.collect();
        open.map_err(not_at(&address))
    }
}

/// The name under which a gateway hands its sockets to its successor. A name has no colon (`sd_listen_fds(3)`).
fn name_of(role: Role, address: &ListenAddress) -> String {
    if let ListenAddress::Systemd(name) = address {
        return name.to_string();
    }
    let mut name = match role {
        Role::Server => "server/".to_owned(),
        Role::Admin => "admin/".to_owned(),
    };
    for byte in address.to_string().bytes() {
        match byte {
            b':' | b'%' => drop(write!(name, "%{byte:02X}")),
            byte if byte.is_ascii_graphic() => name.push(char::from(byte)),
            byte => drop(write!(name, "%{byte:02X}")),
        }
    }
    name
}

fn not_at(address: &ListenAddress) -> impl FnOnce(io::Error) -> StartError {
    let address = address.clone();
    move |source| StartError::Listen { address, source }
}

/// What a gateway keeps of its listening sockets until its end.
#[derive(Debug, Default)]
pub(super) struct KeptSockets {
    /// The files of Unix sockets, which are removed when they are dropped.
    pub(super) files: Vec<SocketFile>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn names_have_no_colon_and_tell_roles_apart() {
        let any: ListenAddress = std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into();
        assert_eq!(name_of(Role::Server, &any), "server/127.0.0.1%3A0");
        assert_eq!(name_of(Role::Admin, &any), "admin/127.0.0.1%3A0");
        let unix = ListenAddress::Unix(Path::new("/run/a b%.sock").into());
        assert_eq!(
            name_of(Role::Server, &unix),
            "server/unix%3A/run/a%20b%25.sock"
        );
        let systemd = ListenAddress::Systemd("https".into());
        assert_eq!(name_of(Role::Server, &systemd), "https");
    }
}

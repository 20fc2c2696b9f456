//! The gateway's listening sockets: taken over or bound before the gateway serves on any of them, opened when the
//! gateway is ready, and kept for a successor.

use super::StartError;
use crate::config::Boot;
use crate::listen::bind::{self, AcceptSocket, BoundSocket, NewSocket, OpenListener};
use crate::listen::handed_sockets::HandedSockets;
use crate::listen::listener::{ListenAddress, Listener};
use crate::listen::socket_file::SocketFile;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::Notify;

/// The sockets of one address, to which no client can connect yet.
#[derive(Debug)]
struct BoundAddress {
    role: SocketRole,
    address: ListenAddress,
    /// The name under which its sockets are handed to a successor.
    name: String,
    /// The rights on the file of a Unix socket.
    mode: u32,
    sockets: Vec<BoundSocket>,
}

/// The part of the gateway that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketRole {
    /// The listeners of `[server]`.
    Server,
    /// The admin listener.
    Admin,
}

impl SocketRole {
    /// The prefix of the names of its sockets.
    fn prefix(self) -> &'static str {
        match self {
            Self::Server => "server/",
            Self::Admin => "admin/",
        }
    }

    /// Where its address is written.
    pub(super) fn setting(self) -> &'static str {
        match self {
            Self::Server => "`listen` of `[server]`, or --listen where there is no file",
            Self::Admin => "`listen` of `[admin]`",
        }
    }
}

/// The gateway's sockets, bound before any of them serves.
#[derive(Debug)]
pub(super) struct BoundSockets {
    /// The sockets of every listener, in the order of the file.
    server: Vec<BoundAddress>,
    admin: Vec<BoundAddress>,
    /// The positions of handed sockets that no listener uses.
    pub(super) unused: Vec<usize>,
}

impl BoundSockets {
    /// Takes over or binds the sockets of every listener and of the admin listener.
    ///
    /// # Errors
    /// If an address is not available.
    pub(super) fn bind(boot: &Boot, mut handed: HandedSockets) -> Result<Self, StartError> {
        let all = &boot.listen.listeners;
        let of_listener = |one: &Listener| {
            let new = NewSocket {
                mode: one.mode,
                leaves_ipv4: all.iter().any(|other| takes_ipv4_of(other, one)),
                leaves_ipv6: everywhere(boot).any(|other| takes_ipv6_of(other, &one.address)),
            };
            BoundAddress::bind(SocketRole::Server, &one.address, new, &mut handed)
        };
        let server = all.iter().map(of_listener).collect::<Result<_, _>>()?;
        let mut admin = Vec::new();
        if let Some(settings) = &boot.admin {
            let new = NewSocket {
                mode: settings.mode,
                leaves_ipv4: false,
                leaves_ipv6: true,
            };
            for address in &settings.listen {
                let bound = BoundAddress::bind(SocketRole::Admin, address, new, &mut handed)?;
                admin.push(bound);
            }
        }
        for name in handed.names() {
            report_unused(name);
        }
        let unused = handed.positions().collect();
        Ok(Self {
            server,
            admin,
            unused,
        })
    }

    /// Opens every address of the admin listener.
    ///
    /// # Errors
    /// If another process listens there in the meantime.
    pub(super) fn open_admin(
        &mut self,
        kept: &mut KeptSockets,
    ) -> Result<Vec<Vec<OpenedSocket>>, StartError> {
        let admin = std::mem::take(&mut self.admin).into_iter();
        admin.map(|bound| bound.open(kept)).collect()
    }

    /// Opens every listener.
    ///
    /// # Errors
    /// If another process listens there in the meantime.
    pub(super) fn open_server(
        self,
        kept: &mut KeptSockets,
    ) -> Result<Vec<Vec<OpenedSocket>>, StartError> {
        let server = self.server.into_iter();
        server.map(|bound| bound.open(kept)).collect()
    }
}

/// The addresses of all listeners, the admin listener's among them.
fn everywhere(boot: &Boot) -> impl Iterator<Item = &ListenAddress> {
    let server = boot.listen.listeners.iter().map(|one| &one.address);
    let admin = boot.admin.iter().flat_map(|admin| &admin.listen);
    server.chain(admin)
}

/// Is `one` on every address of this machine, and `other` on all of IPv4 at the same port? Two sockets cannot have both
/// addresses.
fn takes_ipv4_of(other: &Listener, one: &Listener) -> bool {
    match (other.address.socket_address(), &one.address) {
        (Some(SocketAddr::V4(other)), ListenAddress::Tcp(SocketAddr::V6(one))) => {
            let are_all = other.ip().is_unspecified() && one.ip().is_unspecified();
            are_all && other.port() == one.port() && one.port() != 0
        }
        _ => false,
    }
}

/// Is `one` on every address of this machine, and `other` on an address of IPv6 at the same port?
fn takes_ipv6_of(other: &ListenAddress, one: &ListenAddress) -> bool {
    match (other, one) {
        (ListenAddress::Tcp(SocketAddr::V6(other)), ListenAddress::EveryAddress(port)) => {
            other.port() == *port && *port != 0
        }
        _ => false,
    }
}

impl BoundAddress {
    fn bind(
        role: SocketRole,
        address: &ListenAddress,
        new: NewSocket,
        handed: &mut HandedSockets,
    ) -> Result<Self, StartError> {
        let name = name_of(role, address);
        let sockets = bind::bind(address, new, &name, handed);
        Ok(Self {
            address: address.clone(),
            sockets: sockets.map_err(not_at(role, address))?,
            role,
            name,
            mode: new.mode,
        })
    }

    /// Lets clients connect. Parts that must live until the process ends are added to `kept`.
    ///
    /// # Errors
    /// If another process listens there in the meantime.
    fn open(self, kept: &mut KeptSockets) -> Result<Vec<OpenedSocket>, StartError> {
        let Self {
            role,
            address,
            name,
            mode,
            sockets,
        } = self;
        let open = sockets.into_iter().map(|bound| {
            let OpenListener { listening, file } = bound.open()?;
            let (taken_over, given_up) = (Arc::default(), Arc::default());
            kept.0.push(KeptSocket {
                name: name.clone(),
                descriptor: Some(listening.descriptor()?),
                file,
                mode,
                taken_over: Arc::clone(&taken_over),
                given_up: Arc::clone(&given_up),
            });
            Ok(OpenedSocket {
                socket: listening,
                taken_over,
                given_up,
            })
        });
        let open: io::Result<Vec<OpenedSocket>> = open.collect();
        open.map_err(not_at(role, &address))
    }
}

/// The name under which a gateway hands its sockets to its successor. A name has no colon (`sd_listen_fds(3)`).
fn name_of(role: SocketRole, address: &ListenAddress) -> String {
    if let ListenAddress::Systemd(name) = address {
        return name.to_string();
    }
    // A listener on every address keeps the name from when it meant every address of IPv4, so that gateways of either
    // version take each other's sockets.
    let address = address.clone().in_ipv4();
    let mut name = role.prefix().to_owned();
    for byte in address.to_string().bytes() {
        match byte {
            b':' | b'%' => drop(write!(name, "%{byte:02X}")),
            byte if byte.is_ascii_graphic() => name.push(char::from(byte)),
            byte => drop(write!(name, "%{byte:02X}")),
        }
    }
    name
}

fn not_at(role: SocketRole, address: &ListenAddress) -> impl FnOnce(io::Error) -> StartError {
    let address = address.clone();
    move |source| StartError::Listen {
        role,
        address,
        source,
    }
}

/// Reports a handed socket that no listener of the file uses.
fn report_unused(name: &str) {
    match address_in(name) {
        Some(address) => tracing::info!(
            "{address} is no longer in the file: its socket is closed when this gateway serves"
        ),
        None => tracing::warn!(
            "a socket called `{name}` was handed over, and no listener of the file uses it: it was closed; `listen = \"systemd:{name}\"` would use it"
        ),
    }
}

/// The address in a name that [`name_of`] gave; `None` for a name that systemd gave.
fn address_in(name: &str) -> Option<String> {
    let roles = [SocketRole::Server, SocketRole::Admin].into_iter();
    let coded = roles
        .filter_map(|role| name.strip_prefix(role.prefix()))
        .next()?;
    let mut pieces = coded.split('%');
    let mut address = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        address.push(u8::from_str_radix(digits, 16).ok()?);
        address.extend(rest.bytes());
    }
    String::from_utf8(address).ok()
}

/// A socket that clients can connect to.
#[derive(Debug)]
pub(super) struct OpenedSocket {
    /// The socket.
    pub(super) socket: AcceptSocket,
    /// Notified when a successor begins to accept on the socket.
    pub(super) taken_over: Arc<Notify>,
    /// Notified when no process accepts on the socket any more.
    pub(super) given_up: Arc<Notify>,
}

/// The part of its listening sockets that a gateway keeps until its end. Files of Unix sockets are removed with it,
/// except those that a successor has.
#[derive(Debug, Default)]
pub(super) struct KeptSockets(Vec<KeptSocket>);

#[derive(Debug)]
struct KeptSocket {
    name: String,
    /// A further descriptor of the socket, until draining begins.
    descriptor: Option<OwnedFd>,
    file: Option<SocketFile>,
    mode: u32,
    taken_over: Arc<Notify>,
    given_up: Arc<Notify>,
}

impl KeptSockets {
    /// The names of the sockets, in the order in which they are handed over.
    pub(super) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|kept| kept.name.as_str()).collect()
    }

    /// Duplicated descriptors of the sockets for another process.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub(super) fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let open = self.0.iter().filter_map(|kept| kept.descriptor.as_ref());
        open.map(OwnedFd::try_clone).collect()
    }

    /// Takes over the files of Unix sockets from the process that handed the sockets over.
    pub(super) fn take_over_files(&mut self) {
        for kept in &mut self.0 {
            let mode = kept.mode;
            if let Some(file) = &mut kept.file {
                file.take_over(mode);
            }
        }
    }

    /// Leaves the sockets to a successor, except those at the positions that it does not use: they are closed, with
    /// their files.
    pub(super) fn leave_to_successor(&mut self, unused: &[usize]) {
        for (position, kept) in self.0.iter_mut().enumerate() {
            if unused.contains(&position) {
                (kept.descriptor, kept.file) = (None, None);
                kept.given_up.notify_one();
                continue;
            }
            if let Some(file) = &mut kept.file {
                file.leave();
            }
            kept.taken_over.notify_one();
        }
    }

    /// Closes the sockets in this process: clients are refused from now on, unless another process has the sockets too.
    pub(super) fn close(&mut self) {
        for kept in &mut self.0 {
            kept.descriptor = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_address_has_the_name_of_every_address_of_ipv4() {
        let every = ListenAddress::EveryAddress(8080);
        assert_eq!(name_of(SocketRole::Server, &every), "server/0.0.0.0%3A8080");
    }

    #[test]
    fn a_low_port_names_the_right_that_it_takes() {
        let denied = |port, role| {
            let address = ListenAddress::EveryAddress(port);
            not_at(role, &address)(io::ErrorKind::PermissionDenied.into()).to_string()
        };
        assert!(denied(80, SocketRole::Server).contains("CAP_NET_BIND_SERVICE"));
        assert!(!denied(8080, SocketRole::Server).contains("CAP_NET_BIND_SERVICE"));
        let admin = denied(80, SocketRole::Admin);
        assert!(admin.contains("CAP_NET_BIND_SERVICE") && !admin.contains("--listen"));
    }

    #[test]
    fn names_have_no_colon_and_tell_roles_apart() {
        let any: ListenAddress = std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into();
        assert_eq!(name_of(SocketRole::Server, &any), "server/127.0.0.1%3A0");
        assert_eq!(name_of(SocketRole::Admin, &any), "admin/127.0.0.1%3A0");
        let unix = ListenAddress::Unix(Path::new("/run/a b%.sock").into());
        assert_eq!(
            name_of(SocketRole::Server, &unix),
            "server/unix%3A/run/a%20b%25.sock"
        );
        let systemd = ListenAddress::Systemd("https".into());
        assert_eq!(name_of(SocketRole::Server, &systemd), "https");
        for address in [any, unix] {
            let name = name_of(SocketRole::Admin, &address);
            assert_eq!(address_in(&name), Some(address.to_string()));
        }
        assert_eq!(address_in("https"), None);
    }
}

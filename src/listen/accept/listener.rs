//! The file's description of one listening socket.

use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// A listening socket as the file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The address to which clients connect.
    pub address: ListenAddress,
    /// The names of the identities that it offers, in the order of the file; `None` means clear text.
    pub tls: Option<Arc<[Arc<str>]>>,
    /// Are all requests redirected to the same address under `https`?
    pub redirects: bool,
    /// The permissions of the file of a Unix socket.
    pub mode: u32,
    /// The peers that name their client in a header of the PROXY protocol; `None` if no peer does.
    pub proxies: Option<ProxyPeers>,
}

/// The peers of a listener that begin each connection with a header of the PROXY protocol. The header is required from
/// these peers; the bytes of all others belong to HTTP or TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyPeers {
    /// The peers that `trust` of the current snapshot trusts.
    Trusted,
    /// The peers of these networks, at least one.
    Within(Arc<[IpNet]>),
}

impl ProxyPeers {
    /// Must the peer at `address` send a header? `is_trusted` states whether `trust` includes it.
    #[must_use]
    pub fn have(&self, address: Option<IpAddr>, is_trusted: bool) -> bool {
        match (self, address) {
            (Self::Trusted, _) => is_trusted,
            // The peers of a Unix socket are in no network: all of them are included.
            (Self::Within(_), None) => true,
            (Self::Within(networks), Some(address)) => {
                let address = address.to_canonical();
                networks.iter().any(|network| network.contains(&address))
            }
        }
    }
}

/// The form of the file.
impl fmt::Display for ProxyPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trusted => f.write_str("trust"),
            Self::Within(networks) => {
                for (position, network) in networks.iter().enumerate() {
                    let comma = if position > 0 { ", " } else { "" };
                    write!(f, "{comma}{network}")?;
                }
                Ok(())
            }
        }
    }
}

/// The address of a listener for clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An address and a port; port 0 is any free port.
    Tcp(SocketAddr),
    /// This port on every address of the machine: of IPv4, and of IPv6 if the system has it.
    EveryAddress(u16),
    /// The file of a Unix socket.
    Unix(Arc<Path>),
    /// Sockets that systemd opens, by their name.
    Systemd(Arc<str>),
}

/// The permissions of the file of a Unix socket if the gateway's file sets none: its owner and group may connect.
pub const SOCKET_MODE: u32 = 0o660;

impl Listener {
    /// A plain listener at `address`.
    #[must_use]
    pub fn plain(address: ListenAddress) -> Self {
        Self {
            address,
            tls: None,
            redirects: false,
            mode: SOCKET_MODE,
            proxies: None,
        }
    }
}

impl ListenAddress {
    /// The IPv4 address and the port, or the one address and its port; `None` if clients use neither. Every address of
    /// a machine becomes `0.0.0.0`.
    #[must_use]
    pub fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::EveryAddress(port) => Some((Ipv4Addr::UNSPECIFIED, *port).into()),
            Self::Unix(_) | Self::Systemd(_) => None,
        }
    }

    /// Can other machines reach it?
    #[must_use]
    pub fn is_for_others(&self) -> bool {
        match self {
            Self::Tcp(address) => !address.ip().is_loopback(),
            Self::EveryAddress(_) => true,
            Self::Unix(_) => false,
            // The unit of the socket decides; most are for other machines.
            Self::Systemd(_) => true,
        }
    }

    /// The address with every IPv4 address in place of every address.
    #[must_use]
    pub fn in_ipv4(self) -> Self {
        match self {
            Self::EveryAddress(port) => Self::Tcp((Ipv4Addr::UNSPECIFIED, port).into()),
            other => other,
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// The form of the file.
impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::EveryAddress(port) => write!(f, ":{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Systemd(name) => write!(f, "systemd:{name}"),
        }
    }
}

/// The parts of a listener that need a restart.
impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls.is_some() { " with TLS" } else { "" };
        let redirects = if self.redirects {
            " redirecting to https"
        } else {
            ""
        };
        write!(f, "{}{tls}{redirects}", self.address)?;
        if matches!(self.address, ListenAddress::Unix(_)) && self.mode != SOCKET_MODE {
            write!(f, " with mode {:04o}", self.mode)?;
        }
        match &self.proxies {
            Some(proxies) => write!(f, " with the PROXY protocol from {proxies}"),
            None => Ok(()),
        }
    }
}

//! The addresses on which the gateway listens, indexed so that conflicting addresses and servers that lead to them are
//! found at once.

use crate::config::input::{At, Source, Span};
use crate::config::settings::boot::placed;
use crate::listen::listener::ListenAddress;
use crate::upstream::ServerUrl;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};

/// A listener of the gateway.
pub(super) struct ListeningPlace {
    /// The address as the file writes it.
    pub(super) written: ListenAddress,
    /// The address with a canonical socket path: absolute, without detours and links, so that one file has one path.
    pub(super) address: ListenAddress,
    /// The place in the file; `None` for a default.
    pub(super) span: Option<Span>,
}

impl ListeningPlace {
    pub(super) fn at(written: &At<ListenAddress>, source: &Source) -> Self {
        Self {
            address: found_on_disk(placed(&written.value, &written.span, source)),
            written: written.value.clone(),
            span: Some(written.span.clone()),
        }
    }

    pub(super) fn by_default(address: ListenAddress) -> Self {
        Self {
            written: address.clone(),
            address,
            span: None,
        }
    }
}

/// The address with the canonical path of a Unix socket.
fn found_on_disk(address: ListenAddress) -> ListenAddress {
    match address {
        ListenAddress::Unix(path) => ListenAddress::Unix(straight(&path).into()),
        address => address,
    }
}

/// The path of a file, resolved through the existing folders. If its folder does not exist yet, `.` and `..` are
/// resolved in the text.
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

/// The earlier listeners, indexed so that listeners which may take an address are found at once. Of several listeners
/// that take the same addresses, the first is kept.
#[derive(Default)]
pub(super) struct EarlierListeners<'a> {
    /// The number of listeners.
    many: usize,
    same: HashMap<ListenAddress, Nth<'a>>,
    /// The listeners with a port, by their canonical address.
    addresses: HashMap<SocketAddr, Nth<'a>>,
    /// The listeners for every address, by their port.
    all: HashMap<u16, Vec<Nth<'a>>>,
    /// The first listener of each family for one address alone, by port.
    single: HashMap<(u16, bool), Nth<'a>>,
}

/// A listener, and its position among all listeners.
type Nth<'a> = (usize, &'a ListeningPlace);

impl<'a> EarlierListeners<'a> {
    pub(super) fn add(&mut self, place: &'a ListeningPlace) {
        let nth = (self.many, place);
        self.many += 1;
        self.same
            .entry(place.address.clone().in_ipv4())
            .or_insert(nth);
        let Some(address) = place.address.socket_address() else {
            return;
        };
        let (ip, port) = (address.ip().to_canonical(), address.port());
        self.addresses
            .entry(SocketAddr::new(ip, port))
            .or_insert(nth);
        if ip.is_unspecified() {
            let all = self.all.entry(port).or_default();
            if !all.iter().any(|(_, other)| other.address == place.address) {
                all.push(nth);
            }
        } else {
            self.single.entry((port, ip.is_ipv4())).or_insert(nth);
        }
    }

    /// The first listener that takes the address of `second`.
    pub(super) fn takes(&self, second: &ListeningPlace) -> Option<&'a ListeningPlace> {
        let mut candidates: Vec<Nth<'_>> = Vec::new();
        candidates.extend(self.same.get(&second.address.clone().in_ipv4()));
        if let Some(address) = second.address.socket_address() {
            let (ip, port) = (address.ip().to_canonical(), address.port());
            candidates.extend(self.addresses.get(&SocketAddr::new(ip, port)));
            candidates.extend(self.all.get(&port).into_iter().flatten());
            candidates.extend(
                [true, false]
                    .iter()
                    .filter_map(|is_ipv4| self.single.get(&(port, *is_ipv4))),
            );
        }
        let taken = candidates
            .into_iter()
            .filter(|(_, first)| is_taken_by(first, second));
        let first = taken.min_by_key(|(nth, _)| *nth);
        first.map(|(_, place)| place)
    }
}

/// The listeners, indexed by the destinations of connections that arrive at them. Of several listeners at which the
/// same connections arrive, the first is kept.
pub(super) struct Reached<'a> {
    /// The listeners with a port, by their canonical address.
    addresses: HashMap<SocketAddr, Nth<'a>>,
    /// The listeners at which a connection to another address or to a name may arrive, by their port: one of each kind.
    wide: HashMap<u16, Vec<Nth<'a>>>,
    files: HashMap<&'a Path, &'a ListeningPlace>,
}

impl<'a> Reached<'a> {
    pub(super) fn of(listeners: &'a [ListeningPlace]) -> Self {
        let mut reached = Self {
            addresses: HashMap::new(),
            wide: HashMap::new(),
            files: HashMap::new(),
        };
        for nth in listeners.iter().enumerate() {
            reached.add(nth);
        }
        reached
    }

    fn add(&mut self, (nth, listener): Nth<'a>) {
        if let ListenAddress::Unix(path) = &listener.address {
            self.files.entry(&**path).or_insert(listener);
        }
        let Some(address) = listener.address.socket_address() else {
            return;
        };
        let (ip, port) = (address.ip().to_canonical(), address.port());
        self.addresses
            .entry(SocketAddr::new(ip, port))
            .or_insert((nth, listener));
        if ip.is_loopback() || ip.is_unspecified() {
            let wide = self.wide.entry(port).or_default();
            if !wide.iter().any(|(_, other)| is_as_wide(other, listener)) {
                wide.push((nth, listener));
            }
        }
    }

    /// The first listener at which a connection to `server` arrives, according to the file.
    pub(super) fn by(&self, server: &ServerUrl) -> Option<&'a ListeningPlace> {
        match server {
            ServerUrl::Unix(_) if self.files.is_empty() => None,
            ServerUrl::Unix(path) => self.files.get(&*straight(Path::new(&**path))).copied(),
            server => {
                let (host, port) = server.host_and_port()?;
                let ip = host.parse::<IpAddr>().ok();
                let exact = ip.map(|ip| SocketAddr::new(ip.to_canonical(), port));
                let exact = exact.and_then(|address| self.addresses.get(&address));
                let candidates = exact
                    .into_iter()
                    .chain(self.wide.get(&port).into_iter().flatten());
                let reached =
                    candidates.filter(|(_, listener)| is_reached_by(&listener.address, host));
                reached
                    .min_by_key(|(nth, _)| *nth)
                    .map(|(_, listener)| *listener)
            }
        }
    }
}

/// Do the same connections to other addresses and to names arrive at both listeners?
fn is_as_wide(one: &ListeningPlace, other: &ListeningPlace) -> bool {
    let kind = |place: &ListeningPlace| {
        let address = place.address.socket_address()?;
        let ip = address.ip().to_canonical();
        let is_every = matches!(place.address, ListenAddress::EveryAddress(_));
        Some((is_every, ip.is_unspecified(), ip.is_ipv4()))
    };
    kind(one) == kind(other)
}

/// Does `first` prevent `second` from listening? An address that is written twice is a mistake, even if each listener
/// could get a separate port.
fn is_taken_by(first: &ListeningPlace, second: &ListeningPlace) -> bool {
    let are_all = |one: &ListenAddress| {
        let address = one.socket_address();
        address.is_some_and(|address| address.ip().is_unspecified())
    };
    let (one, other) = (&first.address, &second.address);
    is_same(one, other)
        // `:8080` and `[::]:8080` share the available addresses.
        || overlap(one, other) && !(are_all(one) && are_all(other) && is_ipv4(one) != is_ipv4(other))
}

pub(super) fn is_same(one: &ListenAddress, other: &ListenAddress) -> bool {
    one.clone().in_ipv4() == other.clone().in_ipv4()
}

fn is_ipv4(address: &ListenAddress) -> bool {
    let address = address.socket_address();
    address.is_some_and(|address| address.is_ipv4())
}

/// Do the two listeners have a common address? Every address (`:8080`) counts as every address of IPv4: another
/// listener can take the IPv6 addresses.
pub(super) fn overlap(one: &ListenAddress, other: &ListenAddress) -> bool {
    let (Some(one), Some(other)) = (one.socket_address(), other.socket_address()) else {
        return one == other;
    };
    if one.port() != other.port() || one.port() == 0 {
        return false;
    }
    let (one, other) = (one.ip().to_canonical(), other.ip().to_canonical());
    // `[::]` includes the addresses of IPv4.
    let has = |all: IpAddr, any: IpAddr| all.is_unspecified() && (all.is_ipv6() || any.is_ipv4());
    one == other || has(one, other) || has(other, one)
}

/// Does a connection to `host`, on the listener's port, arrive at the listener on `address`, according to the file?
fn is_reached_by(address: &ListenAddress, host: &str) -> bool {
    let Some(listening) = address.socket_address() else {
        return false;
    };
    let is_local_name = host == "localhost" || host.ends_with(".localhost");
    let listening = listening.ip().to_canonical();
    match host.parse::<IpAddr>().map(|host| host.to_canonical()) {
        // A connection to the unspecified address leads to this machine.
        Ok(host) if host.is_loopback() || host.is_unspecified() => {
            let is_all = matches!(address, ListenAddress::EveryAddress(_))
                || listening.is_unspecified() && (listening.is_ipv6() || host.is_ipv4());
            is_all || listening == host || host.is_unspecified() && listening.is_loopback()
        }
        Ok(host) => listening == host,
        Err(_) => is_local_name && (listening.is_unspecified() || listening.is_loopback()),
    }
}

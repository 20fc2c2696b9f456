//! Listening sockets: taken over or bound before the gateway serves on any of them.

use super::handed_sockets::HandedSockets;
use super::listener::ListenAddress;
use super::socket_file::{self, SocketFile};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::{fmt, io};
use tokio::net;

/// Connections that the system queues before the gateway accepts them.
pub(super) const BACKLOG: i32 = 4096;

/// A bound socket; unless another process listens on it, no client can connect yet.
#[derive(Debug)]
pub struct BoundSocket {
    socket: Socket,
    file: Option<SocketFile>,
}

impl BoundSocket {
    /// Starts to listen, so that clients can connect.
    ///
    /// # Errors
    /// If another process listens there in the meantime.
    pub fn open(self) -> io::Result<OpenListener> {
        let Self { socket, file } = self;
        if let Some(file) = &file {
            file.check()?;
        }
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listening = if socket.local_addr()?.is_unix() {
            AcceptSocket::Unix(UnixListener::from(OwnedFd::from(socket)))
        } else {
            AcceptSocket::Tcp(socket.into())
        };
        Ok(OpenListener { listening, file })
    }
}

/// A socket that clients can connect to.
#[derive(Debug)]
pub struct OpenListener {
    /// The socket.
    pub listening: AcceptSocket,
    /// The file of the socket, if the gateway must remove it.
    pub file: Option<SocketFile>,
}

/// A socket to accept connections on.
#[derive(Debug)]
pub enum AcceptSocket {
    /// Clients have addresses.
    Tcp(std::net::TcpListener),
    /// Clients are processes of this machine, and have no address.
    Unix(UnixListener),
}

/// A socket to accept connections on, inside a runtime.
#[derive(Debug)]
pub enum Acceptor {
    /// Clients have addresses.
    Tcp(net::TcpListener),
    /// Clients are processes of this machine, and have no address.
    Unix(net::UnixListener),
}

/// The address families of a socket on every address of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 and IPv6.
    Both,
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
}

/// The form of the start's output.
impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "every address, of IPv4 and of IPv6",
            Self::Ipv4 => "every address of IPv4 alone",
            Self::Ipv6 => "every address of IPv6 alone",
        })
    }
}

/// A connection, and the address of its peer, which has none on a Unix socket.
pub type Accepted = (TcpStream, Option<SocketAddr>);

impl AcceptSocket {
    /// The address that the socket is bound to; `None` for a Unix socket.
    ///
    /// # Errors
    /// If the system does not return it.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().map(Some),
            Self::Unix(_) => Ok(None),
        }
    }

    /// The families of a socket on every address; `None` for any other.
    ///
    /// # Errors
    /// If the system does not return it.
    pub fn families(&self) -> io::Result<Option<Families>> {
        let Self::Tcp(tcp) = self else {
            return Ok(None);
        };
        Ok(match tcp.local_addr()? {
            address if !address.ip().is_unspecified() => None,
            SocketAddr::V4(_) => Some(Families::Ipv4),
            SocketAddr::V6(_) if SockRef::from(tcp).only_v6()? => Some(Families::Ipv6),
            SocketAddr::V6(_) => Some(Families::Both),
        })
    }

    /// A descriptor of the same socket, for a process that takes it over.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd().try_clone_to_owned(),
            Self::Unix(unix) => unix.as_fd().try_clone_to_owned(),
        }
    }

    /// Registers the socket with the current runtime.
    ///
    /// # Errors
    /// If the runtime cannot register it.
    pub fn register(self) -> io::Result<Acceptor> {
        Ok(match self {
            Self::Tcp(tcp) => Acceptor::Tcp(net::TcpListener::from_std(tcp)?),
            Self::Unix(unix) => Acceptor::Unix(net::UnixListener::from_std(unix)?),
        })
    }

    /// The next connection that waits to be accepted.
    ///
    /// # Errors
    /// If none waits, or the system fails.
    pub(in crate::listen) fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(tcp) => tcp.accept().map(|(stream, from)| (stream, Some(from))),
            Self::Unix(unix) => unix.accept().map(|(stream, _)| (stream_of(stream), None)),
        }
    }
}

impl Acceptor {
    /// Waits for the next connection. The future may be dropped.
    ///
    /// # Errors
    /// If the system fails.
    pub async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(tcp) => {
                let (stream, from) = tcp.accept().await?;
                Ok((stream.into_std()?, Some(from)))
            }
            Self::Unix(unix) => {
                let (stream, _) = unix.accept().await?;
                Ok((stream_of(stream.into_std()?), None))
            }
        }
    }

    /// The socket, removed from its runtime.
    pub(super) fn leave_runtime(self) -> io::Result<AcceptSocket> {
        Ok(match self {
            Self::Tcp(tcp) => AcceptSocket::Tcp(tcp.into_std()?),
            Self::Unix(unix) => AcceptSocket::Unix(unix.into_std()?),
        })
    }
}

/// A Unix stream as a `TcpStream`: reading, writing, peeking and closing are the same system calls, so that connections
/// need only one type.
fn stream_of(unix: UnixStream) -> TcpStream {
    TcpStream::from(OwnedFd::from(unix))
}

/// The properties of a new socket.
#[derive(Debug, Clone, Copy)]
pub struct NewSocket {
    /// The permissions of the file of a Unix socket.
    pub mode: u32,
    /// Does a socket on every IPv6 address leave the IPv4 addresses to another listener?
    pub leaves_ipv4: bool,
    /// Does a socket on every address leave the IPv6 addresses to another listener?
    pub leaves_ipv6: bool,
}

/// The sockets of `address`: the first of `handed` with the name `name` or, for systemd's, all with the name in the
/// address; else a new one.
///
/// # Errors
/// If the address is in use or not of this machine, or systemd has handed over no such socket.
pub fn bind(
    address: &ListenAddress,
    new: NewSocket,
    name: &str,
    handed: &mut HandedSockets,
) -> io::Result<Vec<BoundSocket>> {
    let taken = match address {
        ListenAddress::Systemd(_) => handed.take(name),
        // Two listeners may both use any free port.
        ListenAddress::Tcp(_) | ListenAddress::EveryAddress(_) | ListenAddress::Unix(_) => {
            handed.take_first(name).into_iter().collect()
        }
    };
    let path = match address {
        ListenAddress::Unix(path) => Some(&**path),
        ListenAddress::Tcp(_) | ListenAddress::EveryAddress(_) | ListenAddress::Systemd(_) => None,
    };
    if !taken.is_empty() {
        return Ok(taken
            .into_iter()
            .map(|socket| handed_over(socket, path))
            .collect());
    }
    let bound = match address {
        ListenAddress::Tcp(address) => bind_tcp(*address, new.leaves_ipv4)?,
        ListenAddress::EveryAddress(port) => bind_every_address(*port, new.leaves_ipv6)?,
        ListenAddress::Unix(path) => {
            let (socket, file) = socket_file::bind(path, new.mode)?;
            BoundSocket {
                socket,
                file: Some(file),
            }
        }
        ListenAddress::Systemd(name) => return Err(not_handed(name, handed)),
    };
    Ok(vec![bound])
}

/// A socket that was handed over; the file at `path` belongs to it, and stays the previous process's to remove.
fn handed_over(socket: Socket, path: Option<&Path>) -> BoundSocket {
    let mut file = path.and_then(|path| SocketFile::at(path).ok());
    if let Some(file) = &mut file {
        file.leave();
    }
    BoundSocket { socket, file }
}

fn not_handed(name: &str, handed: &HandedSockets) -> io::Error {
    let others: Vec<&str> = handed.names().collect();
    let there = if others.is_empty() {
        "systemd has handed over no socket to this process".to_owned()
    } else {
        format!("systemd has handed over {}", others.join(", "))
    };
    io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "{there}, and none called `{name}` (`FileDescriptorName={name}` in the socket's unit)"
        ),
    )
}

/// A socket on every address of both families. It is on IPv4 alone if the system has no IPv6, or if another listener or
/// process uses the IPv6 addresses.
fn bind_every_address(port: u16, leaves_ipv6: bool) -> io::Result<BoundSocket> {
    let in_ipv4 = || bind_tcp((Ipv4Addr::UNSPECIFIED, port).into(), false);
    if leaves_ipv6 {
        return in_ipv4();
    }
    match bind_tcp((Ipv6Addr::UNSPECIFIED, port).into(), false) {
        Err(error) => {
            let bound = in_ipv4()?;
            if error.kind() == io::ErrorKind::AddrInUse {
                tracing::warn!(
                    ":{port} is on the addresses of IPv4 alone: another process has those of IPv6"
                );
            }
            Ok(bound)
        }
        bound => bound,
    }
}

fn bind_tcp(address: SocketAddr, leaves_ipv4: bool) -> io::Result<BoundSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]:8080` serves IPv4 too, for any default of the system.
        socket.set_only_v6(leaves_ipv4)?;
    }
    socket.bind(&address.into())?;
    Ok(BoundSocket { socket, file: None })
}

/// The address by which this machine reaches a listener: the loopback address if it listens on every address.
#[must_use]
pub fn reachable(listener: SocketAddr) -> SocketAddr {
    let port = listener.port();
    match listener {
        bound if !bound.ip().is_unspecified() => bound,
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    }
}

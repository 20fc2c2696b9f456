//! Listening sockets, bound before anything is served on them.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Connections that the system queues before the gateway accepts them.
const BACKLOG: i32 = 4096;

/// An address that is bound, but to which no client can connect yet.
#[derive(Debug)]
pub struct BoundSocket(Socket);

impl BoundSocket {
    /// Lets clients connect. The listener is ready for tokio.
    ///
    /// # Errors
    /// When another process listens there in the meantime.
    pub fn open(self) -> io::Result<TcpListener> {
        self.0.listen(BACKLOG)?;
        self.0.set_nonblocking(true)?;
        Ok(self.0.into())
    }
}

/// Binds `address`; no client can connect yet.
///
/// # Errors
/// When the address is in use or is none of this machine's.
pub fn bind(address: SocketAddr) -> io::Result<BoundSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]:8080` serves IPv4 too, whatever the system's default.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(BoundSocket(socket))
}

/// The address by which this machine reaches a listener: the loopback address where it listens on every address.
#[must_use]
pub fn reachable(listener: SocketAddr) -> SocketAddr {
    let port = listener.port();
    match listener {
        bound if !bound.ip().is_unspecified() => bound,
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    }
}

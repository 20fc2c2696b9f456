//! Listening sockets, bound before anything is served on them.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Connections the system queues before we take them.
const BACKLOG: i32 = 4096;

/// Binds `address`, ready for tokio.
///
/// # Errors
/// When the address is in use or not ours.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
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
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

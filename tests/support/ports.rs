//! Ports for servers that must come back on the same port, or that must refuse.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port. The ports lie below the range that the kernel takes for outgoing connections, so that none of these
/// takes one meanwhile.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port without a listener, which this process hands out only once.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Another test process starts elsewhere.
    let offset = (std::process::id() % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + offset.wrapping_add(turn) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {FIRST} on");
}

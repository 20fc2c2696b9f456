//! Ports for servers that must come back on the same port, or must refuse connections.
//!
//! The ports are below the range that the kernel uses for outgoing connections, so that no such connection takes one of
//! them.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports for nodes of a Redis Cluster, whose bus has a port 10,000 higher.
const NODES: Range<u16> = 20_000..22_700;
/// Ports for other servers, below the ports of the buses.
const SERVERS: Range<u16> = 22_700..30_000;

/// A port without a listener, which this process hands out only once.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    next(SERVERS, &NEXT, is_free)
}

/// The same for a node of a Redis cluster: its bus is free as well.
pub(crate) fn free_node_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    next(NODES, &NEXT, |port| is_free(port) && is_free(port + 10_000))
}

fn next(range: Range<u16>, turns: &AtomicU16, is_free: impl Fn(u16) -> bool) -> u16 {
    let count = range.end - range.start;
    // Another test process begins at another port, however close the process ids are.
    let offset = (std::process::id().wrapping_mul(811) % u32::from(count)) as u16;
    let ports = (0..count).map(|_| {
        let turn = turns.fetch_add(1, Ordering::Relaxed) % count;
        range.start + (offset + turn) % count
    });
    let mut free = ports.filter(|port| is_free(*port));
    free.next()
        .unwrap_or_else(|| panic!("no port is free in {range:?}"))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

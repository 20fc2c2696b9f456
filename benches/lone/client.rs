//! A bare client: sends the same bytes again and again on one connection, waits for the answer each time, and prints the
//! median time in nanoseconds. Compiled by `run`; it sleeps while it waits, as the gateway does.
//!
//! Usage: client PORT FILE TIMES PATTERN: the bytes of FILE, answered once PATTERN has come.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Questions before those that count.
const WARM_UP: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, port, file, times, pattern] = &arguments[..] else {
        panic!("usage: client PORT FILE TIMES PATTERN");
    };
    let question = std::fs::read(file).expect("a file");
    let mut stream = TcpStream::connect(("127.0.0.1", port.parse().expect("a port"))).expect("a server");
    stream.set_nodelay(true).expect("a socket");
    let times: usize = times.parse().expect("a number");
    let mut took: Vec<u128> = (0..times + WARM_UP)
        .map(|_| {
            let begun = Instant::now();
            stream.write_all(&question).expect("a question");
            wait_for(&mut stream, pattern.as_bytes());
            begun.elapsed().as_nanos()
        })
        .skip(WARM_UP)
        .collect();
    took.sort_unstable();
    println!("{}", took[times / 2]);
}

/// Reads an answer, which ends with these bytes.
fn wait_for(stream: &mut TcpStream, pattern: &[u8]) {
    let (mut have, mut length) = ([0; 4096], 0);
    while !have[..length].ends_with(pattern) {
        let read = stream.read(&mut have[length..]).expect("an answer");
        assert!(read > 0, "the connection was closed");
        length += read;
    }
}

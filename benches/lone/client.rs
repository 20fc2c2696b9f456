//! A bare client: sends the same bytes again and again on one connection, waits for the answer each time, and prints the
//! median time in nanoseconds. Compiled by `run`; it sleeps while it waits, as the gateway does.
//!
//! Usage: client TIMES PORT FILE PATTERN [PORT FILE PATTERN]: the bytes of FILE, answered once PATTERN has come. A second server is asked
//! before each question to the first, and its time is not counted: the first has then stood still for as long as between two requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Questions before those that count.
const WARM_UP: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (times, servers) = arguments.split_first().expect("a number of times");
    let times: usize = times.parse().expect("a number");
    let mut servers: Vec<Server> = servers.chunks(3).map(Server::new).collect();
    let (counted, between) = servers.split_first_mut().expect("a server");
    let mut took: Vec<u128> = (0..times + WARM_UP)
        .map(|_| {
            between.iter_mut().for_each(Server::ask);
            let begun = Instant::now();
            counted.ask();
            begun.elapsed().as_nanos()
        })
        .skip(WARM_UP)
        .collect();
    took.sort_unstable();
    println!("{}", took[times / 2]);
}

struct Server {
    stream: TcpStream,
    question: Vec<u8>,
    pattern: Vec<u8>,
}

impl Server {
    fn new(words: &[String]) -> Self {
        let [port, file, pattern] = words else {
            panic!("usage: client TIMES PORT FILE PATTERN [PORT FILE PATTERN]");
        };
        let stream = TcpStream::connect(("127.0.0.1", port.parse().expect("a port"))).expect("a server");
        stream.set_nodelay(true).expect("a socket");
        let question = std::fs::read(file).expect("a file");
        Self { stream, question, pattern: pattern.clone().into_bytes() }
    }

    fn ask(&mut self) {
        self.stream.write_all(&self.question).expect("a question");
        wait_for(&mut self.stream, &self.pattern);
    }
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

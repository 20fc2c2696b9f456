//! Mutated files and requests: made of valid ones by random changes. For any bytes the program has an answer.
//!
//! Variables: `FUZZ_SECONDS=600` makes a long run, and `FUZZ_SEED=N` repeats a run.

mod answer;
mod key;
mod running;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Rounds in an ordinary run.
const ROUNDS: u64 = 300;
/// The longest mutated text, in bytes.
const MOST: usize = 16 * 1024;

/// Pieces that a typing mistake or an attacker would insert.
const PIECES: [&str; 45] = [
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    "\"",
    "'",
    "\"\"\"",
    ",",
    ".",
    "\n",
    "\r\n",
    "#",
    "\\u0000",
    "${",
    "${A:-b}",
    "$$",
    "é",
    "\u{feff}",
    "0",
    "-1",
    "18446744073709551616",
    "1e400",
    "true",
    "10/s",
    "1/us",
    "{*rest}",
    "{id}",
    "%2f",
    ";a=b",
    "[limits.l]",
    "limits = [\"l\"]",
    "{ file = \"x\" }",
    "rate = ",
    "::1",
    "\r\n\r\n",
    "0\r\n\r\n",
    "content-length: 5\r\n",
    "transfer-encoding: chunked\r\n",
    "connection: close\r\n",
    "\r",
    "\u{0}",
    "HTTP/1.1 200 OK\r\n",
    "ffffffffffffffff",
];

const HEADS: [&str; 4] = [
    "api.example.com /v1/orders/42?q=a&q=b\nx-a: 1\ncookie: c=d; c=e\nx-forwarded-for: 1.2.3.4, 10.0.0.2",
    "[::1]:80 /%2f/../a;b=c?q=%zz\nforwarded: for=\"[2001:db8::1]:80\";proto=https, for=10.0.0.3\nx-a:",
    "h /\nx-a: one\nx-a: two\ncookie: c\ncookie: =;;c=\"x\"\nforwarded: for=_hidden, by=unknown",
    "\nx-forwarded-for: ::ffff:10.0.0.1,,fd00::1, 256.1.1.1\nforwarded: for=\"",
];

/// Answers of servers. The first two bytes say whether the method is HEAD, and how long the pieces are in which the
/// answer comes.
const ANSWERS: [&[u8]; 16] = [
    b"\x01\x00HTTP/1.1 200 OK\r\ncontent-length: 5\r\ndate: now\r\n\r\nhello",
    b"\x01\x03HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nContent-Length: 5, 5\r\n\r\nhello",
    b"\x01\x01HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"\x01\x07HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\nA \r\n0123456789\r\n00\r\nx-sum: 1\r\nx-b: \r\n\r\n",
    b"\x01\x00HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n1\r\na\r\n0\r\n\r\n",
    b"\x01\x00HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    b"\x01\x00HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, gzip\r\n\r\nuntil the end",
    b"\x01\x02HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"\x01\x00HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nbytes",
    b"\x00\x00HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
    b"\x01\x00HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
    b"\x01\x00HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
    b"\x01\x09HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"\x01\x00HTTP/1.1 200 OK\nconnection: close, te\ncontent-length: 2\n\nok",
    b"\x01\x00\r\n\r\nHTTP/1.1 200\r\ncontent-length: 0\r\nx: a\r\n b\r\n\r\n",
    b"\x01\x04HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
];

/// Headers of the PROXY protocol, and bytes that may follow them.
const PROXY_HEADERS: [&[u8]; 6] = [
    b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET / HTTP/1.1\r\n\r\n",
    b"PROXY TCP6 2001:db8::1 ::ffff:192.0.2.1 1 65535\r\n",
    b"PROXY UNKNOWN what ever\r\nPRI * HTTP/2.0\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00GET",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x14\xc0\x00\x02\x01\x0a\x00\x00\x01\x12\x34\x01\xbb\x04\x00\x00\x01\x00\x02h2\x16\x03",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x12\x00\x13\xc0\x00\x02\x01\x0a\x00\x00\x01\x12\x34\x01\xbb\xee\x00\x04oops",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Mutates `seeds` and hands each mutation to `entry`, until enough mutations have been tried.
fn drive(seeds: &[Vec<u8>], entry: impl Fn(&[u8])) {
    drive_for(ROUNDS, seeds, entry);
}

/// The same with another number of rounds in an ordinary run. The length of a long run does not change.
fn drive_for(most: u64, seeds: &[Vec<u8>], entry: impl Fn(&[u8])) {
    let seed = number("FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let until = number("FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut corpus = seeds.to_vec();
    let mut rounds = 0;
    while until.map_or(rounds < most, |until| Instant::now() < until) {
        let mut bytes = corpus[random.usize(..corpus.len())].clone();
        for _ in 0..random.usize(1..6) {
            mutate(&mut bytes, &corpus, &mut random);
        }
        bytes.truncate(MOST);
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| entry(&bytes)));
        let shown = || bytes.escape_ascii();
        assert!(outcome.is_ok(), "FUZZ_SEED={seed}: b\"{}\"", shown());
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?}: b\"{}\"", shown());
        // A mutation of a mutated text goes further than a mutation of a seed.
        if corpus.len() < 2_000 {
            corpus.push(bytes);
        } else {
            let at = random.usize(seeds.len()..corpus.len());
            corpus[at] = bytes;
        }
        rounds += 1;
    }
    println!("{rounds} rounds with FUZZ_SEED={seed}");
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut fastrand::Rng) {
    let at = random.usize(..=bytes.len());
    let end = (at + random.usize(..40)).min(bytes.len());
    match random.u8(..8) {
        0 => {
            bytes.drain(at..end);
        }
        1 => {
            let piece = PIECES[random.usize(..PIECES.len())].bytes();
            bytes.splice(at..at, piece);
        }
        2 => {
            let piece = PIECES[random.usize(..PIECES.len())].bytes();
            bytes.splice(at..end, piece);
        }
        3 => {
            let copied = bytes[at..end].to_vec();
            let to = random.usize(..=bytes.len());
            bytes.splice(to..to, copied);
        }
        4 if at < bytes.len() => bytes[at] = random.u8(..),
        5 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
        6 => {
            // Inserts a line of another text.
            let other = &corpus[random.usize(..corpus.len())];
            let lines: Vec<&[u8]> = other.split(|byte| *byte == b'\n').collect();
            let line = lines[random.usize(..lines.len())];
            let line: Vec<u8> = line.iter().copied().chain([b'\n']).collect();
            let start = bytes[..at].iter().rposition(|byte| *byte == b'\n');
            let start = start.map_or(0, |before| before + 1);
            bytes.splice(start..start, line);
        }
        _ => bytes.truncate(at),
    }
}

#[test]
fn any_bytes_are_a_file_that_is_answered() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["tests/config/valid", "tests/config/invalid", "deploy", "."];
    let files = folders.iter().flat_map(|folder| {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .collect::<Vec<_>>()
    });
    let mut seeds: Vec<Vec<u8>> = files
        .filter(|path| {
            path.extension().is_some_and(|end| end == "toml") && !path.ends_with("Cargo.toml")
        })
        .map(|path| fs::read(path).unwrap())
        .collect();
    seeds.sort();
    drive(&seeds, |bytes| {
        tollgate::config::fuzz::file(bytes);
    });
}

#[test]
fn any_bytes_are_a_request_that_keys_are_made_of() {
    let seeds: Vec<Vec<u8>> = HEADS.iter().map(|head| head.as_bytes().to_vec()).collect();
    for seed in &seeds {
        assert!(key::request(seed) > 11);
    }
    drive(&seeds, |bytes| {
        key::request(bytes);
    });
}

#[test]
fn any_bytes_are_an_answer_as_hyper_takes_them() {
    let seeds = ANSWERS.map(<[u8]>::to_vec);
    let answered = seeds.iter().filter(|seed| answer::compare(seed)).count();
    assert!(answered > 10);
    drive_for(20 * ROUNDS, &seeds, |bytes| {
        answer::compare(bytes);
    });
}

/// A line of each form that `simulate` reads, as the documentation of its server shows it.
#[test]
fn any_bytes_are_a_trace_that_is_answered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulate/traces");
    let entries = fs::read_dir(folder).unwrap();
    let mut seeds: Vec<Vec<u8>> = entries
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    seeds.sort();
    for seed in &seeds {
        assert!(tollgate::replay::fuzz::trace(seed) > 1);
    }
    drive(&seeds, |bytes| {
        let _ = tollgate::replay::fuzz::trace(bytes);
    });
}

#[test]
fn any_bytes_are_a_header_of_the_proxy_protocol_or_refused() {
    let seeds = PROXY_HEADERS.map(<[u8]>::to_vec);
    let entry = tollgate::listen::proxy_protocol::fuzz::header;
    for seed in &seeds {
        assert!(entry(seed), "{}", seed.escape_ascii());
    }
    drive_for(20 * ROUNDS, &seeds, |bytes| {
        entry(bytes);
    });
}

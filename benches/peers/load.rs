//! The clients of a proxy and the server behind it, in one thread that never sleeps: whoever is measured wakes nobody.
//!
//! Waking a sleeping core is charged to the sender, so that a proxy which is slower than its load generator would pay for
//! what a faster one does not. The standard library is enough, so that `rustc -O` builds it.
//!
//! Usage: `load PROXY_PORT UPSTREAM_PORT CONNECTIONS KEYS`. Each line of the standard input is a number of seconds; each
//! line of the standard output is what was measured in that time. With KEYS above 0 the field `x-api-key` names another
//! of so many clients in each request.

use std::collections::BTreeMap;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PATH: &str = "/orders/4711";
const BODY: &str =
    r#"{"id":4711,"state":"shipped","lines":[{"sku":"A-100","count":2},{"sku":"B-7","count":1}]}"#;
/// The longest wait for the last answers.
const GRACE: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let &[proxy, upstream, connections, keys] = numbers.as_slice() else {
        return Err(io::Error::other(
            "usage: load PROXY_PORT UPSTREAM_PORT CONNECTIONS KEYS",
        ));
    };
    let mut server = Server::bind(upstream)?;
    // The proxy is started once the server listens; it connects to it with its first request.
    println!("ready");
    let mut clients = Vec::new();
    for line in io::stdin().lock().lines() {
        let seconds = line?.parse().map_err(io::Error::other)?;
        while clients.len() < connections {
            clients.push(Client::connect(proxy)?);
        }
        let measured = run(
            &mut clients,
            &mut server,
            Duration::from_secs_f64(seconds),
            Keys::new(proxy, keys),
        );
        println!("{}", measured?);
    }
    Ok(())
}

/// Sends requests on all connections for the time given, and waits for the last answers.
fn run(
    clients: &mut [Client],
    server: &mut Server,
    time: Duration,
    mut keys: Keys,
) -> io::Result<String> {
    let (mut latencies, mut statuses) = (Vec::with_capacity(1 << 20), BTreeMap::<u16, u64>::new());
    let began = Instant::now();
    for client in &mut *clients {
        client.send(keys.next())?;
    }
    let mut waiting = clients.len();
    while waiting > 0 {
        server.turn()?;
        let now = Instant::now();
        if now > began + time + GRACE {
            return Err(io::Error::other(format!(
                "{waiting} requests were not answered"
            )));
        }
        for client in &mut *clients {
            let Some(status) = client.answer()? else {
                continue;
            };
            *statuses.entry(status).or_default() += 1;
            let now = Instant::now();
            latencies.push(now.duration_since(client.sent).as_secs_f32() * 1e6);
            if now < began + time {
                client.send(keys.next())?;
            } else {
                waiting -= 1;
            }
        }
    }
    let took = began.elapsed();
    latencies.sort_unstable_by(f32::total_cmp);
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    let statuses: Vec<_> = statuses
        .iter()
        .map(|(status, count)| format!("\"{status}\": {count}"))
        .collect();
    Ok(format!(
        "{{\"requests\": {}, \"duration_us\": {}, \"p50_us\": {:.1}, \"p99_us\": {:.1}, \"statuses\": {{{}}}}}",
        latencies.len(),
        took.as_micros(),
        at(0.5),
        at(0.99),
        statuses.join(", "),
    ))
}

/// The requests, in turn.
struct Keys {
    text: Vec<u8>,
    /// Where the number of the key stands.
    at: usize,
    keys: usize,
    next: usize,
}

impl Keys {
    const DIGITS: usize = 8;

    fn new(port: usize, keys: usize) -> Self {
        let mut text = format!("GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nx-api-key: key-")
            .into_bytes();
        let at = text.len();
        text.extend_from_slice(format!("{:0width$}\r\n\r\n", 0, width = Self::DIGITS).as_bytes());
        Self {
            text,
            at,
            keys,
            next: 0,
        }
    }

    fn next(&mut self) -> &[u8] {
        if self.keys > 0 {
            self.next = (self.next + 1) % self.keys;
            let number = format!("{:0width$}", self.next, width = Self::DIGITS);
            self.text[self.at..self.at + Self::DIGITS].copy_from_slice(number.as_bytes());
        }
        &self.text
    }
}

/// One kept connection to the proxy, with one request on its way at a time.
struct Client {
    stream: TcpStream,
    have: Vec<u8>,
    sent: Instant,
    is_waiting: bool,
}

impl Client {
    fn connect(port: usize) -> io::Result<Self> {
        let stream =
            TcpStream::connect(("127.0.0.1", u16::try_from(port).map_err(io::Error::other)?))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            have: Vec::new(),
            sent: Instant::now(),
            is_waiting: false,
        })
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.sent = Instant::now();
        self.is_waiting = true;
        self.stream.write_all(request)
    }

    /// The status of the answer, once all of it is here.
    fn answer(&mut self) -> io::Result<Option<u16>> {
        if !self.is_waiting || !fill(&mut self.stream, &mut self.have)? {
            return Ok(None);
        }
        let Some(head) = self.have.windows(4).position(|end| end == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&self.have[..head]).to_ascii_lowercase();
        let length = text.split("\r\n").find_map(|line| {
            line.strip_prefix("content-length: ")?
                .trim()
                .parse::<usize>()
                .ok()
        });
        let length = length.ok_or_else(|| io::Error::other("an answer without a length"))?;
        if self.have.len() < head + 4 + length {
            return Ok(None);
        }
        let status = text
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        self.have.clear();
        self.is_waiting = false;
        status
            .map(Some)
            .ok_or_else(|| io::Error::other("an answer without a status"))
    }
}

/// What every proxy forwards to: the same small answer on connections that are never closed.
struct Server {
    listener: TcpListener,
    connections: Vec<(TcpStream, Vec<u8>)>,
    answer: Vec<u8>,
    turns: usize,
}

impl Server {
    /// New connections are looked for once in so many turns: each look is a system call.
    const TURNS: usize = 16;

    fn bind(port: usize) -> io::Result<Self> {
        let listener =
            TcpListener::bind(("127.0.0.1", u16::try_from(port).map_err(io::Error::other)?))?;
        listener.set_nonblocking(true)?;
        let head = "HTTP/1.1 200 OK\r\nServer: load\r\nDate: Sun, 22 Nov 2026 19:00:00 GMT\r\nContent-Type: application/json\r\n";
        let answer = format!(
            "{head}Content-Length: {}\r\nConnection: keep-alive\r\n\r\n{BODY}",
            BODY.len()
        );
        Ok(Self {
            listener,
            connections: Vec::new(),
            answer: answer.into_bytes(),
            turns: 0,
        })
    }

    /// Answers what has come on any connection.
    fn turn(&mut self) -> io::Result<()> {
        self.turns += 1;
        if self.turns.is_multiple_of(Self::TURNS) {
            while let Some((stream, _)) = ready(self.listener.accept())? {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                self.connections.push((stream, Vec::new()));
            }
        }
        let answer = &self.answer;
        self.connections
            .retain_mut(|(stream, have)| match fill(stream, have) {
                Ok(true) if have.ends_with(b"\r\n\r\n") => {
                    have.clear();
                    stream.write_all(answer).is_ok()
                }
                // A proxy may close a connection that it does not need.
                outcome => outcome.is_ok(),
            });
        Ok(())
    }
}

/// Reads what has come. False when that is nothing.
fn fill(stream: &mut TcpStream, have: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 4096];
    match ready(stream.read(&mut piece))? {
        Some(0) => Err(ErrorKind::UnexpectedEof.into()),
        Some(count) => {
            have.extend_from_slice(&piece[..count]);
            Ok(true)
        }
        None => Ok(false),
    }
}

/// The outcome of a system call that may have nothing to give yet.
fn ready<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

//! The client of a gateway's admin listener: one question, one answer, both JSON.

use serde_json::Value;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The longest wait for the connection, and for each piece of the answer.
const WITHIN: Duration = Duration::from_secs(3);
/// The most bytes of an answer.
const MOST: u64 = 1024 * 1024;

/// The answer to `POST path` at the admin listener on `listen`.
///
/// # Errors
/// The reason that there is no answer.
pub(super) fn post(listen: SocketAddr, path: &str, body: &Value) -> io::Result<Value> {
    let address = reachable(listen);
    let mut stream = TcpStream::connect_timeout(&address, WITHIN)?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other("its answer is not HTTP"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    if status == "200" {
        return Ok(body);
    }
    let detail = body["detail"].as_str();
    let detail = detail.unwrap_or("is it the admin listener of a gateway?");
    Err(io::Error::other(format!("it answered {status}: {detail}")))
}

/// The address to connect to: a listener on every address is reached on the loopback one.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

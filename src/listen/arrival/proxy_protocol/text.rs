//! The header of version 1: one line of text.

use super::{HeaderFault, LONGEST_TEXT, NamedClient, TEXT};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The number of the first of `rest` that belong to the line, and whether the line ends with them.
pub(super) fn next_part(head: &[u8], rest: &[u8]) -> Result<(usize, bool), HeaderFault> {
    let room = LONGEST_TEXT - head.len();
    let feed = rest.iter().take(room).position(|byte| *byte == b'\n');
    match feed {
        Some(feed) => Ok((feed + 1, true)),
        None if rest.len() >= room => Err(HeaderFault::LongLine),
        None => Ok((rest.len(), false)),
    }
}

/// Reads a whole line, up to its line feed.
pub(super) fn parse(line: &[u8]) -> Result<NamedClient, HeaderFault> {
    read_line(line).ok_or(HeaderFault::Line)
}

fn read_line(line: &[u8]) -> Option<NamedClient> {
    let line = line.strip_prefix(TEXT)?.strip_suffix(b"\r\n")?;
    if line.contains(&b'\r') {
        return None;
    }
    // Everything after the word is ignored (section 2.1).
    if let Some(rest) = line.strip_prefix(b"UNKNOWN") {
        return matches!(rest.first(), None | Some(b' ')).then_some(NamedClient::Nobody);
    }
    let mut words = str::from_utf8(line).ok()?.split(' ');
    let is_v6 = match words.next()? {
        "TCP4" => false,
        "TCP6" => true,
        _ => return None,
    };
    let mut address = || read_address(words.next()?, is_v6);
    let (source, _destination) = (address()?, address()?);
    let mut port = || read_port(words.next()?);
    let (source_port, _destination_port) = (port()?, port()?);
    let is_whole = words.next().is_none();
    is_whole.then(|| NamedClient::At(SocketAddr::new(source, source_port)))
}

/// An address of the announced family. The standard parsers accept no leading zeros, no zone, and no surrounding text.
fn read_address(word: &str, is_v6: bool) -> Option<IpAddr> {
    if is_v6 {
        let address: Ipv6Addr = word.parse().ok()?;
        return Some(IpAddr::V6(address).to_canonical());
    }
    let address: Ipv4Addr = word.parse().ok()?;
    Some(IpAddr::V4(address))
}

/// A port in digits alone, without leading zeros.
fn read_port(word: &str) -> Option<u16> {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    let has_zeros = word.len() > 1 && word.starts_with('0');
    (is_number && !has_zeros).then(|| word.parse().ok())?
}

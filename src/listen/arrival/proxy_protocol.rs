//! The PROXY protocol, versions 1 and 2 (haproxy's `proxy-protocol.txt`): the header by which a proxy names, in the
//! first bytes of a connection, the client that the connection is for.
//!
//! The header is read as its bytes arrive, and not a byte beyond it is taken: a TLS handshake may follow.

mod crc32c;
pub mod fuzz;
mod text;
mod tlv;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The beginning of a header of version 1.
const TEXT: &[u8] = b"PROXY ";
/// The beginning of a header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of a header of version 2 before its addresses: the signature, version and command, family, length.
const FIXED: usize = 16;
/// Most bytes of a header of version 1 with its CRLF (section 2.1).
pub const LONGEST_TEXT: usize = 107;
/// The most bytes of addresses and TLVs in a header of version 2: the maximum of its length field. The file names the
/// proxies that may send one, and a connection with an incomplete header is evicted like one with an incomplete head.
pub const LONGEST_PAYLOAD: usize = u16::MAX as usize;

/// Do these bytes begin with enough of a header to exclude every other protocol?
pub fn is_header(bytes: &[u8]) -> bool {
    bytes.starts_with(TEXT) || bytes.starts_with(SIGNATURE)
}

/// The client of a connection, as its header names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedClient {
    /// The connection's own peer: the proxy connects for itself (`LOCAL`).
    Peer,
    /// None: the proxy connects for a client whose address it does not know or cannot state. The bytes after the header
    /// come from a client nevertheless.
    Nobody,
    /// The client at this address; an IPv4 address is never mapped to IPv6.
    At(SocketAddr),
}

/// The fault of a header. After it the connection's bytes cannot be interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// The connection begins with other bytes.
    #[error("it begins with other bytes")]
    NoHeader,
    /// A header of version 1 is longer than [`LONGEST_TEXT`] bytes.
    #[error("its line has no end within 107 bytes")]
    LongLine,
    /// The line of version 1 has another form.
    #[error("its line is malformed")]
    Line,
    /// A version other than 2 after the signature of version 2.
    #[error("it has an unknown version")]
    Version,
    /// A command other than `LOCAL` and `PROXY`.
    #[error("it has an unknown command")]
    Command,
    /// A combination of family and transport that the format does not have.
    #[error("it has an unknown family of addresses")]
    Family,
    /// The length does not cover the addresses of the family.
    #[error("it is too short for its addresses")]
    Short,
    /// A TLV ends after the header, or has a wrong length for its type.
    #[error("it has a malformed TLV")]
    Tlv,
    /// The CRC32C in the header is wrong.
    #[error("its checksum is wrong")]
    Checksum,
}

/// The received part of a header.
#[derive(Debug, Default)]
pub struct HeaderReader {
    head: Vec<u8>,
}

/// The outcome of more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderProgress {
    /// The number of the bytes that belong to the header.
    pub taken: usize,
    /// The client, once the header is complete.
    pub client: Option<NamedClient>,
}

impl HeaderReader {
    /// Takes from `bytes` those that belong to the header. If `bytes` is not empty, at least one is taken until the
    /// header is complete.
    ///
    /// # Errors
    /// If the bytes so far are not the beginning of a header.
    pub fn read(&mut self, bytes: &[u8]) -> Result<HeaderProgress, HeaderFault> {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            let (count, is_whole) = self.next_part(rest)?;
            self.head.extend_from_slice(&rest[..count]);
            taken += count;
            let client = if is_whole { self.parse()? } else { None };
            if client.is_some() || taken == bytes.len() {
                return Ok(HeaderProgress { taken, client });
            }
        }
    }

    /// Has no byte of a header arrived yet?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// The number of the first of `rest` that are known to belong to the header, and whether [`Self::parse`] has a
    /// result with them.
    fn next_part(&self, rest: &[u8]) -> Result<(usize, bool), HeaderFault> {
        let head = &self.head;
        let beginning: &[u8] = match head.first().or(rest.first()) {
            Some(b'P') => TEXT,
            Some(b'\r') => SIGNATURE,
            Some(_) => return Err(HeaderFault::NoHeader),
            None => return Ok((0, false)),
        };
        if head.len() < beginning.len() {
            let expected = &beginning[head.len()..];
            let compared = expected.len().min(rest.len());
            if rest[..compared] != expected[..compared] {
                return Err(HeaderFault::NoHeader);
            }
            return Ok((compared, false));
        }
        if beginning == TEXT {
            return text::next_part(head, rest);
        }
        let wanted = match head.len() {
            ..FIXED => FIXED,
            _ => FIXED + payload_length(head),
        };
        let count = (wanted - head.len()).min(rest.len());
        Ok((count, head.len() + count == wanted))
    }

    /// Parses the received bytes: `None` if they are the beginning of a header of version 2, which contains the length.
    fn parse(&self) -> Result<Option<NamedClient>, HeaderFault> {
        if self.head.starts_with(TEXT) {
            return text::parse(&self.head).map(Some);
        }
        let declared = Declared::of(&self.head)?;
        if self.head.len() < FIXED + payload_length(&self.head) {
            return Ok(None);
        }
        declared.client(&self.head).map(Some)
    }
}

/// The length of addresses and TLVs that a header of version 2 declares.
fn payload_length(head: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([head[14], head[15]]))
}

/// The meaning of the fixed part of a header of version 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Declared {
    /// The proxy connects for itself: the rest of the header is skipped (section 2.2).
    Local,
    /// The header names no address: the rest of it is skipped.
    Unspecified,
    /// TLVs after this number of bytes of addresses that name no client of a stream over IP.
    Skipped(usize),
    Inet,
    Inet6,
}

/// Bytes of two IPv4 addresses and ports.
const INET: usize = 12;
/// Bytes of two IPv6 addresses and ports.
const INET6: usize = 36;
/// Bytes of two paths of sockets.
const UNIX: usize = 216;

impl Declared {
    fn of(head: &[u8]) -> Result<Self, HeaderFault> {
        if head[12] >> 4 != 2 {
            return Err(HeaderFault::Version);
        }
        let length = payload_length(head);
        let declared = match (head[12] & 0xf, head[13]) {
            // The family of a connection that the proxy opens for itself is ignored.
            (0, _) => Self::Local,
            (1, 0x00) => Self::Unspecified,
            (1, 0x11) => Self::Inet,
            (1, 0x21) => Self::Inet6,
            // Combinations that a receiver need not know are as if unspecified; this one serves streams over IP.
            (1, 0x12) => Self::Skipped(INET),
            (1, 0x22) => Self::Skipped(INET6),
            (1, 0x31 | 0x32) => Self::Skipped(UNIX),
            (1, _) => return Err(HeaderFault::Family),
            _ => return Err(HeaderFault::Command),
        };
        if length < declared.addresses() {
            return Err(HeaderFault::Short);
        }
        Ok(declared)
    }

    /// Bytes of the addresses.
    fn addresses(self) -> usize {
        match self {
            Self::Local | Self::Unspecified => 0,
            Self::Skipped(bytes) => bytes,
            Self::Inet => INET,
            Self::Inet6 => INET6,
        }
    }

    /// The client that the complete header names.
    fn client(self, head: &[u8]) -> Result<NamedClient, HeaderFault> {
        match self {
            Self::Local => return Ok(NamedClient::Peer),
            Self::Unspecified => return Ok(NamedClient::Nobody),
            Self::Skipped(_) | Self::Inet | Self::Inet6 => {}
        }
        tlv::check_values(head, FIXED + self.addresses())?;
        let addresses = &head[FIXED..];
        Ok(match self {
            Self::Inet => at(
                Ipv4Addr::from(array::<4>(addresses, 0)),
                array(addresses, 8),
            ),
            Self::Inet6 => at(
                Ipv6Addr::from(array::<16>(addresses, 0)),
                array(addresses, 32),
            ),
            Self::Local | Self::Unspecified | Self::Skipped(_) => NamedClient::Nobody,
        })
    }
}

fn array<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[from..from + N]);
    array
}

fn at(address: impl Into<IpAddr>, port: [u8; 2]) -> NamedClient {
    let address = address.into().to_canonical();
    NamedClient::At(SocketAddr::new(address, u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests;

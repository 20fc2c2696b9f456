//! Addresses as text: written for keys, read from fields.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest text of an address: an IPv6 address with an IPv4 address at its end.
const LONGEST: usize = 48;

/// An address as text. The text of an IPv4 address is built here: the standard formatting takes ten times as long, and
/// every request needs the text.
#[derive(Debug, Clone, Copy)]
pub struct AddressText {
    text: [u8; LONGEST],
    length: usize,
}

impl AddressText {
    /// Spells `address`.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        let mut spelled = Self {
            text: [0; LONGEST],
            length: 0,
        };
        match address {
            IpAddr::V4(v4) => spelled.v4(v4),
            // The text always fits; a longer one would be cut.
            IpAddr::V6(v6) => {
                let _ = write!(spelled, "{v6}");
            }
        }
        spelled
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }

    fn v4(&mut self, address: Ipv4Addr) {
        // The text is built in a register: memory that was written in small pieces is slow to read in large ones.
        let (mut text, mut length) = (0_u128, 0);
        for octet in address.octets() {
            let (digits, many) = OCTETS[usize::from(octet)];
            text |= u128::from(u32::from_le_bytes(digits)) << (8 * length);
            length += usize::from(many);
        }
        self.text[..16].copy_from_slice(&text.to_le_bytes());
        // The dot after the last octet is cut off.
        self.length = length - 1;
    }
}

/// Every octet as text followed by a dot and zeros, and the length of that text.
static OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([0; 4], 0); 256];
    let mut octet = 0_u8;
    loop {
        let mut unit = match octet {
            0..10 => 1,
            10..100 => 10,
            _ => 100,
        };
        let (text, length) = &mut octets[octet as usize];
        while unit > 0 {
            text[*length as usize] = b'0' + octet / unit % 10;
            *length += 1;
            unit /= 10;
        }
        text[*length as usize] = b'.';
        *length += 1;
        if octet == u8::MAX {
            break;
        }
        octet += 1;
    }
    octets
};

impl fmt::Write for AddressText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let room = self.text.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// An address with or without port, brackets and zone.
#[must_use]
pub fn read_address(text: &str) -> Option<IpAddr> {
    // HTTP's own blanks (RFC 9110, section 5.6.3): a proxy writes no others.
    let text = text.trim_matches([' ', '\t']);
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip().to_canonical());
    }
    let inside = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .map_or(text, |(inside, _)| inside);
    let address = inside
        .split_once('%')
        .map_or(inside, |(address, _zone)| address);
    address
        .parse::<Ipv6Addr>()
        .ok()
        .map(|v6| IpAddr::V6(v6).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_spelled_as_the_formatter_spells_it() {
        for text in [
            "0.0.0.0",
            "1.20.100.255",
            "255.255.255.255",
            "10.0.99.9",
            "::",
            "::1",
            "2001:db8::1",
            "::ffff:203.0.113.209",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(AddressText::of(address).as_bytes(), text.as_bytes());
        }
    }
}

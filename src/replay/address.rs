//! Who a line says it was: an address as text.

use super::line::Fault;
use std::net::IpAddr;

/// An address; an IPv4 address in IPv6 clothes is an IPv4 address.
pub(super) fn any(text: &str) -> Result<IpAddr, Fault> {
    let address = text.parse::<IpAddr>().map_err(|_| Fault::BadClient)?;
    Ok(address.to_canonical())
}

/// An IPv4 address in its usual spelling, which most clients have. All bytes are looked at together: octets of random
/// lengths, taken one digit at a time, are what a processor guesses wrong.
pub(super) fn v4(text: &[u8]) -> Option<IpAddr> {
    const ONES: u128 = u128::MAX / 0xff;
    const HIGH: u128 = ONES * 0x80;
    const LOW: u128 = ONES * 0x7f;
    let length = text.len();
    // Two halves that overlap: there they agree.
    let word = match (text.first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) if length <= 15 => {
            let [first, last] = [first, last].map(|half| u128::from(u64::from_le_bytes(*half)));
            first | last << (8 * (length - 8))
        }
        _ if length == 7 => {
            let halves = [text.first_chunk()?, text.last_chunk()?];
            let [first, last] = halves.map(|half| u128::from(u32::from_le_bytes(*half)));
            first | last << 24
        }
        _ => return None,
    };
    // The high bit of each byte that is a dot, that is no digit, that is beyond the text.
    let (dot, digits) = (word ^ (ONES * 0x2e), word ^ (ONES * 0x30));
    let dots = !(((dot & LOW) + LOW) | dot) & HIGH;
    let others = (((digits & LOW) + ONES * 0x76) | digits) & HIGH;
    let beyond = HIGH << (8 * length);
    if others != dots | beyond || dots.count_ones() != 3 {
        return None;
    }
    let (mut address, mut start, mut ends) = (0_u32, 0, dots | beyond);
    for _ in 0..4 {
        let end = ends.trailing_zeros() / 8;
        ends &= ends - 1;
        let many = end
            .checked_sub(start)
            .filter(|many| (1..=3).contains(many))?;
        #[allow(clippy::cast_possible_truncation, reason = "four bytes are wanted")]
        let digits = (digits >> (8 * start)) as u32;
        // Hundreds, tens and units, with nothing in front of those that are there.
        let [hundreds, tens, units, _] = (digits << (8 * (4 - many)) >> 8).to_le_bytes();
        let octet = u32::from(hundreds) * 100 + u32::from(tens) * 10 + u32::from(units);
        if octet > 255 || many > 1 && digits & 0xff == 0 {
            return None;
        }
        address = address << 8 | octet;
        start = end + 1;
    }
    Some(IpAddr::from(address.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_standard_library_reads_them() {
        for text in [
            "203.0.113.9",
            "0.0.0.0",
            "255.255.255.255",
            "256.1.1.1",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "1..2.3",
            "",
            "1.2.3.4 ",
            "a.b.c.d",
            "1.2.3.-4",
            "1000.1.1.1",
            "1.2.3.",
            ".1.2.3",
            "1.2.3.4",
            "1.2.3.45",
            "1.2.3.256",
            "1.2.3.04",
            "1.2.3.00",
            "0.0.0.0.",
            "255.255.255.2550",
            "1.2.3/4",
            "1.2.3:4.5",
            "\u{b1}.\u{b2}.3.4",
            "1234567",
            "123456789012345",
            "::1",
        ] {
            let expected = text.parse::<std::net::Ipv4Addr>().ok().map(IpAddr::V4);
            assert_eq!(v4(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn every_octet_is_read_in_every_place() {
        for octet in 0..=u8::MAX {
            for at in 0..4 {
                let mut octets = [7, 77, 177, 7];
                octets[at] = octet;
                let address = std::net::Ipv4Addr::from(octets);
                assert_eq!(
                    v4(address.to_string().as_bytes()),
                    Some(IpAddr::V4(address))
                );
            }
        }
    }

    #[test]
    fn an_accident_is_read_alike() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..100_000 {
            let address = std::net::Ipv4Addr::from(random.u32(..));
            let mut text = address.to_string().into_bytes();
            let at = random.usize(..text.len());
            match random.u8(..4) {
                0 => text[at] = b"0123456789./:-\0"[random.usize(..15)],
                1 => text[at] = random.u8(..),
                2 => drop(text.remove(at)),
                _ => text.insert(at, b"0129."[random.usize(..5)]),
            }
            let said = str::from_utf8(&text)
                .ok()
                .and_then(|text| text.parse().ok());
            assert_eq!(v4(&text), said.map(IpAddr::V4), "{text:?}");
        }
    }
}

//! Who a line says it was: an address as text.

use super::line::Fault;
use std::net::IpAddr;

/// An address; an IPv4 address in IPv6 clothes is an IPv4 address.
pub(super) fn any(text: &str) -> Result<IpAddr, Fault> {
    let address = text.parse::<IpAddr>().map_err(|_| Fault::BadClient)?;
    Ok(address.to_canonical())
}

/// An IPv4 address in its usual spelling, which most clients have: read in a fraction of the time that the general way
/// takes.
pub(super) fn v4(text: &[u8]) -> Option<IpAddr> {
    let (mut address, mut octet, mut digits, mut dots) = (0_u32, 0_u32, 0, 0);
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            // Neither 01 nor 1000.
            if digits > 0 && octet == 0 || digits == 3 {
                return None;
            }
            octet = octet * 10 + u32::from(digit);
            digits += 1;
        } else {
            if *byte != b'.' || digits == 0 || octet > 255 {
                return None;
            }
            address = address << 8 | octet;
            (octet, digits) = (0, 0);
            dots += 1;
        }
    }
    let is_whole = dots == 3 && digits > 0 && octet <= 255;
    is_whole.then(|| IpAddr::from((address << 8 | octet).to_be_bytes()))
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
            "::1",
        ] {
            let expected = text.parse::<std::net::Ipv4Addr>().ok().map(IpAddr::V4);
            assert_eq!(v4(text.as_bytes()), expected, "{text}");
        }
    }
}

//! The client's address in a line, as text.

use super::Fault;
use crate::key::address::read_address;
use std::net::IpAddr;

/// Reads an address; an IPv4-mapped IPv6 address is the IPv4 address in it.
pub(super) fn parse_address(text: &str) -> Result<IpAddr, Fault> {
    let address = text.parse::<IpAddr>().map_err(|_| Fault::BadClient)?;
    Ok(address.to_canonical())
}

/// Is the text a list of addresses, like the value of `X-Forwarded-For`? The right end decides: a client may have
/// written the left.
pub(super) fn is_list(list: &str) -> bool {
    let last = list.rsplit(',').next().unwrap_or_default();
    read_address(last).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_standard_has_them() {
        let v4 = Ok(IpAddr::from([203, 0, 113, 9]));
        assert_eq!(parse_address("203.0.113.9"), v4);
        assert_eq!(parse_address("::ffff:203.0.113.9"), v4);
        for text in ["", "256.1.1.1", "1.2.3", "01.2.3.4", "1.2.3.4 ", "a.b.c.d"] {
            assert_eq!(parse_address(text), Err(Fault::BadClient), "{text}");
        }
    }
}

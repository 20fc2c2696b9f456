//! The client's address in a line, as text.

use super::line::Fault;
use std::net::IpAddr;

/// An address; an IPv4 address in IPv6 clothes is an IPv4 address.
pub(super) fn read(text: &str) -> Result<IpAddr, Fault> {
    let address = text.parse::<IpAddr>().map_err(|_| Fault::BadClient)?;
    Ok(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_standard_has_them() {
        let v4 = Ok(IpAddr::from([203, 0, 113, 9]));
        assert_eq!(read("203.0.113.9"), v4);
        assert_eq!(read("::ffff:203.0.113.9"), v4);
        for text in ["", "256.1.1.1", "1.2.3", "01.2.3.4", "1.2.3.4 ", "a.b.c.d"] {
            assert_eq!(read(text), Err(Fault::BadClient), "{text}");
        }
    }
}

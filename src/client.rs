//! The client of a connection or a request, wherever a client is bounded: an address, or in IPv6 the network of one
//! subscriber (RFC 6177 section 2), from which the subscriber may take any number of addresses. The client's scheme is
//! here too.

use std::net::{IpAddr, Ipv6Addr};

/// The scheme of a request: whether the connection that a client sent it on was encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Clear text.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// The scheme by its name, in any case.
    #[must_use]
    pub fn read(name: &[u8]) -> Option<Self> {
        [Self::Http, Self::Https]
            .into_iter()
            .find(|scheme| name.eq_ignore_ascii_case(scheme.as_str().as_bytes()))
    }

    /// The scheme as URIs and fields spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The client of a peer without an address, wherever a client is named or counted.
pub const UNIX: &str = "unix";

/// The text of an address, or the word for the peer of a Unix socket.
#[must_use]
pub fn spelled(address: Option<IpAddr>) -> String {
    address.map_or_else(
        || UNIX.to_owned(),
        |address| address.to_canonical().to_string(),
    )
}

/// One client. All peers of Unix sockets that name no address are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(Option<IpAddr>);

impl Client {
    /// The client at this address: in IPv6 all of a /64. An IPv4 address is never mapped to IPv6.
    #[must_use]
    pub fn of(address: impl Into<Option<IpAddr>>) -> Self {
        let address: Option<IpAddr> = address.into();
        Self(address.map(|address| match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let network = address.to_bits() & (u128::MAX << 64);
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_subscriber_is_one_client() {
        let client = |text: &str| Client::of(text.parse::<IpAddr>().unwrap());
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:0:0:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }
}

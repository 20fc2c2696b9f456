//! The client of a connection or a request, wherever a client is bounded: an address, or in IPv6 the network of one
//! subscriber (RFC 6177 section 2), from which the subscriber may take any number of addresses. The client's scheme is
//! here too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// The networks whose IPv6 addresses stand for the IPv4 addresses in them: those of translators between the two (NAT64).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nat64 {
    /// The first 96 bits of each network beside the well-known one.
    own: Vec<u128>,
}

/// The first 96 bits of `64:ff9b::/96` (RFC 6052, section 2.1).
const WELL_KNOWN: u128 = 0x0064_ff9b << 64;

impl Nat64 {
    /// The networks that begin with these addresses, all of them /96, beside the well-known one.
    #[must_use]
    pub fn of(networks: impl IntoIterator<Item = Ipv6Addr>) -> Self {
        let networks = networks.into_iter();
        Self {
            own: networks.map(|network| network.to_bits() >> 32).collect(),
        }
    }

    /// The address that counts: the IPv4 address in one of these networks, else the address itself. An IPv4 address is
    /// never mapped to IPv6.
    ///
    /// The well-known network holds addresses of the Internet alone (RFC 6052, section 3.1). With another address in it
    /// the address stays as it is.
    #[must_use]
    pub fn client(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(v6) => self.inside(v6).map_or(IpAddr::V6(v6), IpAddr::V4),
            v4 @ IpAddr::V4(_) => v4,
        }
    }

    fn inside(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let network = address.to_bits() >> 32;
        let [.., a, b, c, d] = address.octets();
        let inside = Ipv4Addr::new(a, b, c, d);
        let counts = self.own.contains(&network) || network == WELL_KNOWN && is_global(inside);
        counts.then_some(inside)
    }
}

/// Is it an address of the Internet? The others are those of RFC 5735, section 3, and of RFC 6598.
fn is_global(address: Ipv4Addr) -> bool {
    let is_special = matches!(
        address.octets(),
        [0 | 10 | 127 | 224..=255, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 168, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
    );
    !is_special
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

    #[test]
    fn behind_a_translator_the_ipv4_address_counts() {
        let own = Nat64::of(["2001:db8:64::".parse().unwrap()]);
        for (written, counts) in [
            ("64:ff9b::808:808", "8.8.8.8"),
            ("64:ff9b::1.1.1.1", "1.1.1.1"),
            ("::ffff:8.8.8.8", "8.8.8.8"),
            ("8.8.8.8", "8.8.8.8"),
            // Only /96 is translated, and only addresses of the Internet stand there.
            ("64:ff9b:1::808:808", "64:ff9b:1::808:808"),
            ("64:ff9b::1:808:808", "64:ff9b::1:808:808"),
            ("64:ff9b::10.0.0.1", "64:ff9b::a00:1"),
            ("64:ff9b::192.0.2.1", "64:ff9b::c000:201"),
            ("64:ff9b::100.64.0.1", "64:ff9b::6440:1"),
            ("64:ff9b::255.255.255.255", "64:ff9b::ffff:ffff"),
            ("2001:db8:64::10.0.0.1", "10.0.0.1"),
            ("2001:db8:64::8.8.8.8", "8.8.8.8"),
            ("2001:db8:65::8.8.8.8", "2001:db8:65::808:808"),
            ("::198.51.100.40", "::c633:6428"),
            ("2002:808:808::1", "2002:808:808::1"),
        ] {
            let client = own.client(written.parse().unwrap());
            assert_eq!(client, counts.parse::<IpAddr>().unwrap(), "{written}");
        }
        let none = Nat64::default().client("2001:db8:64::8.8.8.8".parse().unwrap());
        assert!(none.is_ipv6());
    }
}

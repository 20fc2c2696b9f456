//! The client of a connection or a request, the unit of all bounds on clients: an address, or in IPv6 the network of
//! one subscriber (RFC 6177 section 2), who may use any number of its addresses. The client's scheme is in this file
//! too.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The scheme of a request: whether the client's connection was encrypted.
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

/// The name of a peer without an address, in texts and counters.
pub const UNIX: &str = "unix";

/// The text of an address, or the word for the peer of a Unix socket.
#[must_use]
pub fn spelled(address: Option<IpAddr>) -> String {
    address.map_or_else(
        || UNIX.to_owned(),
        |address| address.to_canonical().to_string(),
    )
}

/// The networks whose IPv6 addresses represent IPv4 addresses: those of NAT64 translators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nat64 {
    /// The first 96 bits of each network other than the well-known one.
    prefixes: Vec<u128>,
}

/// The first 96 bits of `64:ff9b::/96` (RFC 6052, section 2.1).
const WELL_KNOWN: u128 = 0x0064_ff9b << 64;

impl Nat64 {
    /// These networks, all of them /96, and the well-known one.
    #[must_use]
    pub fn of(networks: impl IntoIterator<Item = Ipv6Addr>) -> Self {
        let networks = networks.into_iter();
        Self {
            prefixes: networks.map(|network| network.to_bits() >> 32).collect(),
        }
    }

    /// The address that counts: the IPv4 address in one of these networks, else the address itself. An IPv4 address is
    /// never mapped to IPv6.
    ///
    /// The well-known network represents addresses of the Internet alone (RFC 6052, section 3.1). Any other address in
    /// it stays unchanged.
    #[must_use]
    pub fn client(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(v6) => self.inside(v6).map_or(IpAddr::V6(v6), IpAddr::V4),
            v4 @ IpAddr::V4(_) => v4,
        }
    }

    /// Does one of these networks equal `network`? Then `network` represents every address of IPv4.
    #[must_use]
    pub fn has(&self, network: IpNet) -> bool {
        let IpNet::V6(v6) = network else {
            return false;
        };
        let beginning = v6.network().to_bits() >> 32;
        v6.prefix_len() == 96 && (beginning == WELL_KNOWN || self.prefixes.contains(&beginning))
    }

    /// The networks that contain the counted addresses of `network`: for its part inside one of these networks the IPv4
    /// addresses there that count, and the rest of it unchanged.
    #[must_use]
    pub fn networks(&self, network: IpNet) -> Vec<IpNet> {
        let IpNet::V6(v6) = network else {
            return vec![network];
        };
        let Some(bits) = v6.prefix_len().checked_sub(96) else {
            return vec![network];
        };
        let octets = v6.network().octets();
        let first = Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]);
        let inside = Ipv4Net::new_assert(first, bits);
        let beginning = v6.network().to_bits() >> 32;
        if self.prefixes.contains(&beginning) {
            return vec![inside.into()];
        }
        if beginning != WELL_KNOWN {
            return vec![network];
        }
        let mut counted = Vec::new();
        of_the_internet(inside, &mut counted);
        let is_whole = counted.as_slice() == [IpNet::from(inside)];
        if !is_whole {
            counted.push(network);
        }
        counted
    }

    /// The translator's network that `network` strictly contains, if `networks` contain none of its clients: these
    /// clients count as IPv4 addresses, which are in no larger network of IPv6.
    #[must_use]
    pub fn lost_by(&self, network: IpNet, networks: &[IpNet]) -> Option<Ipv6Net> {
        let beginnings = std::iter::once(WELL_KNOWN).chain(self.prefixes.iter().copied());
        let mut translators = beginnings
            .map(|beginning| Ipv6Net::new_assert(Ipv6Addr::from_bits(beginning << 32), 96));
        translators.find(|translator| {
            let translator = IpNet::from(*translator);
            let is_larger = network.prefix_len() < 96 && network.contains(&translator);
            let is_held = |part: &IpNet| networks.iter().any(|one| one.contains(part));
            is_larger && !self.networks(translator).iter().all(is_held)
        })
    }

    fn inside(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let network = address.to_bits() >> 32;
        let [.., a, b, c, d] = address.octets();
        let inside = Ipv4Addr::new(a, b, c, d);
        let counts = self.prefixes.contains(&network) || network == WELL_KNOWN && is_global(inside);
        counts.then_some(inside)
    }
}

/// The private IPv4 networks (RFC 1918, RFC 6598), and those of one machine or link (RFC 1122, RFC 3927).
const PRIVATE: [Ipv4Net; 6] = [
    special([10, 0, 0, 0], 8),
    special([100, 64, 0, 0], 10),
    special([127, 0, 0, 0], 8),
    special([169, 254, 0, 0], 16),
    special([172, 16, 0, 0], 12),
    special([192, 168, 0, 0], 16),
];

/// The private IPv6 networks (RFC 4193), and those of one machine or link (RFC 4291).
const PRIVATE_V6: [Ipv6Net; 3] = [
    Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128),
    Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
];

/// The other IPv4 networks that are not part of the Internet (RFC 5735, section 3).
const RESERVED: [Ipv4Net; 8] = [
    special([0, 0, 0, 0], 8),
    special([192, 0, 0, 0], 24),
    special([192, 0, 2, 0], 24),
    special([192, 88, 99, 0], 24),
    special([198, 18, 0, 0], 15),
    special([198, 51, 100, 0], 24),
    special([203, 0, 113, 0], 24),
    special([224, 0, 0, 0], 3),
];

/// Is every address of the network private, of this machine or of its link? No client on the Internet has such an
/// address.
#[must_use]
pub fn is_private(network: IpNet) -> bool {
    match network {
        IpNet::V4(v4) => PRIVATE.iter().any(|private| private.contains(&v4)),
        IpNet::V6(v6) => PRIVATE_V6.iter().any(|private| private.contains(&v6)),
    }
}

/// All IPv4 networks that are not part of the Internet.
fn special_networks() -> impl Iterator<Item = &'static Ipv4Net> {
    PRIVATE.iter().chain(&RESERVED)
}

const fn special([a, b, c, d]: [u8; 4], bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

fn is_global(address: Ipv4Addr) -> bool {
    !special_networks().any(|special| special.contains(&address))
}

/// Adds the parts of `network` that belong to the Internet.
fn of_the_internet(network: Ipv4Net, parts: &mut Vec<IpNet>) {
    if special_networks().any(|special| special.contains(&network)) {
        return;
    }
    let is_mixed = special_networks().any(|special| network.contains(special));
    match network.subnets(network.prefix_len() + 1) {
        // No special network is a single address, so that a mixed network can be halved.
        Ok(subnets) if is_mixed => subnets.for_each(|subnet| of_the_internet(subnet, parts)),
        _ => parts.push(network.into()),
    }
}

/// One client. All peers of Unix sockets without an address are one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(Option<IpAddr>);

impl Client {
    /// The client at this address: in IPv6 the whole /64. An IPv4 address is never mapped to IPv6.
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

    /// A number that is unique to the client, and never 0. No network of clients starts with the 32 bits of the numbers
    /// for IPv4 (RFC 4291, section 2.7), or is as low as the numbers for other peers.
    #[inline]
    #[must_use]
    pub fn number(self) -> u64 {
        match self.0 {
            None => 1,
            Some(IpAddr::V4(address)) => (0xffff_ffff << 32) | u64::from(address.to_bits()),
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, ..] = address.segments();
                let network = [a, b, c, d].map(u64::from);
                network
                    .into_iter()
                    .fold(0, |all, part| (all << 16) | part)
                    .max(2)
            }
        }
    }
}

/// The form that an operator would write: an address, a network of IPv6, or the word for the peers of a Unix socket.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str(UNIX),
            Some(IpAddr::V4(address)) => address.fmt(f),
            Some(IpAddr::V6(network)) => write!(f, "{network}/64"),
        }
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
        assert_eq!(client("2001:db8::1").to_string(), "2001:db8::/64");
        assert_eq!(client("192.0.2.1").to_string(), "192.0.2.1");
        assert_eq!(Client::of(None).to_string(), UNIX);
    }

    #[test]
    fn each_client_has_a_number_of_its_own() {
        let texts = [
            "::1",
            "2001:db8::1",
            "2001:db8:0:1::1",
            "192.0.2.1",
            "0.0.0.0",
        ];
        let clients = texts.map(|text| Client::of(text.parse::<IpAddr>().unwrap()));
        let mut numbers: Vec<u64> = clients.iter().map(|client| client.number()).collect();
        numbers.extend([0, Client::of(None).number()]);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), texts.len() + 2);
    }

    #[test]
    fn behind_a_translator_the_ipv4_address_counts() {
        let nat64 = Nat64::of(["2001:db8:64::".parse().unwrap()]);
        for (written, counts) in [
            ("64:ff9b::808:808", "8.8.8.8"),
            ("64:ff9b::1.1.1.1", "1.1.1.1"),
            ("::ffff:8.8.8.8", "8.8.8.8"),
            ("8.8.8.8", "8.8.8.8"),
            // Only the /96 is translated, and only for addresses of the Internet.
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
            let client = nat64.client(written.parse().unwrap());
            assert_eq!(client, counts.parse::<IpAddr>().unwrap(), "{written}");
        }
        let none = Nat64::default().client("2001:db8:64::8.8.8.8".parse().unwrap());
        assert!(none.is_ipv6());
    }

    #[test]
    fn a_network_has_the_addresses_that_its_addresses_count_as() {
        let nat64 = Nat64::of(["2001:db8:64::".parse().unwrap()]);
        for (written, counted) in [
            ("64:ff9b::808:505/128", "8.8.5.5/32"),
            ("64:ff9b::800:0/104", "8.0.0.0/8"),
            ("64:ff9b::808:0/112", "8.8.0.0/16"),
            ("64:ff9b::a00:1/128", "64:ff9b::a00:1/128"),
            ("64:ff9b::a00:0/104", "64:ff9b::a00:0/104"),
            (
                "64:ff9b::6400:0/104",
                "100.0.0.0/10 100.128.0.0/9 64:ff9b::6400:0/104",
            ),
            ("2001:db8:64::/96", "0.0.0.0/0"),
            ("2001:db8:64::a00:0/104", "10.0.0.0/8"),
            ("2001:db8:64::1.2.3.4/128", "1.2.3.4/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("64:ff9b::/64", "64:ff9b::/64"),
            ("10.0.0.0/8", "10.0.0.0/8"),
        ] {
            let networks = nat64.networks(written.parse().unwrap());
            let shown: Vec<String> = networks.iter().map(ToString::to_string).collect();
            assert_eq!(shown.join(" "), counted, "{written}");
        }
    }

    #[test]
    fn private_networks_have_no_address_of_the_internet() {
        for (network, private) in [
            ("192.168.1.1/32", true),
            ("10.0.0.0/8", true),
            ("100.127.0.0/16", true),
            ("172.31.0.0/16", true),
            ("127.0.0.1/32", true),
            ("fd00::/8", true),
            ("fe80::1/128", true),
            ("::1/128", true),
            ("100.128.0.0/16", false),
            ("172.0.0.0/8", false),
            ("192.0.2.0/24", false),
            ("0.0.0.0/0", false),
            ("2001:db8::/32", false),
            ("::/0", false),
        ] {
            assert_eq!(is_private(network.parse().unwrap()), private, "{network}");
        }
    }

    proptest::proptest! {
        /// The members of a network as written are exactly the members of the networks that it counts as.
        #[test]
        fn the_members_of_a_network_stay_its_members(address: u32, bits in 96_u8..=128, other: u32, here: bool) {
            let at = |v4: u32| Ipv6Addr::from_bits(WELL_KNOWN << 32 | u128::from(v4));
            let nat64 = Nat64::default();
            let network = IpNet::new(at(address).into(), bits).unwrap();
            let counted = nat64.networks(network);
            let other = if here { address ^ other >> (bits - 96).min(31) } else { other };
            let client = nat64.client(at(other).into());
            let is_in = counted.iter().any(|one| one.contains(&client));
            proptest::prop_assert_eq!(is_in, network.contains(&IpAddr::from(at(other))));
            // A client of IPv4 is a member if its translated address is, since that address counts as the client.
            let v4 = IpAddr::from(Ipv4Addr::from_bits(other));
            let is_in = counted.iter().any(|one| one.contains(&v4));
            let counts = client == v4 && network.contains(&IpAddr::from(at(other)));
            proptest::prop_assert_eq!(is_in, counts);
        }
    }
}

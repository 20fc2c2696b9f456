//! The client's address: the peer's own, or through trusted hops, walked from the right.

use super::forwarded;
use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Networks whose word on `Forwarded` and `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust(Vec<IpNet>);

/// Hops that are walked at most; a longer chain ends at the last one walked.
const MOST_HOPS: usize = 32;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl Trust {
    /// Believes peers in `networks`.
    #[must_use]
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// Is this peer's word believed?
    #[must_use]
    pub fn believes(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.0.iter().any(|network| network.contains(&peer))
    }

    /// Walks from the peer towards the client and stops at the first address that is not trusted.
    ///
    /// An entry that cannot be read ends the walk at the hop that vouched for it; the left end, which anyone can write,
    /// is reached only through hops that are all trusted. Trusted proxies write one of the two fields and often pass the
    /// other on as a stranger sent it: where both are there and disagree, neither is believed.
    #[must_use]
    pub fn client(&self, peer: IpAddr, fields: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if self.0.is_empty() || !self.believes(peer) {
            return peer;
        }
        let listed = || {
            let lines = fields.get_all(X_FORWARDED_FOR).into_iter().rev();
            let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
            self.walk(
                peer,
                entries.map(|entry| read_address(str::from_utf8(entry).ok()?)),
            )
        };
        let forwarded = || {
            let lines = fields.get_all(header::FORWARDED).into_iter().rev();
            self.walk(
                peer,
                lines.flat_map(|line| forwarded::nodes(line.as_bytes())),
            )
        };
        let has = |name: &HeaderName| fields.contains_key(name);
        match (has(&header::FORWARDED), has(&X_FORWARDED_FOR)) {
            (false, false) => peer,
            (false, true) => listed(),
            (true, false) => forwarded(),
            (true, true) => {
                let client = listed();
                if client == forwarded() { client } else { peer }
            }
        }
    }

    fn walk(&self, peer: IpAddr, entries: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut client = peer;
        for entry in entries.take(MOST_HOPS) {
            let Some(address) = entry else {
                return client;
            };
            client = address;
            if !self.believes(client) {
                break;
            }
        }
        client
    }
}

/// An address with or without port, brackets and zone.
#[must_use]
pub fn read_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
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

    fn client(trust: &[&str], peer: &str, name: &'static str, lines: &[&str]) -> String {
        let trust = Trust::new(
            trust
                .iter()
                .map(|network| network.parse().unwrap())
                .collect(),
        );
        let mut fields = HeaderMap::new();
        for line in lines {
            fields.append(HeaderName::from_static(name), line.parse().unwrap());
        }
        trust.client(peer.parse().unwrap(), &fields).to_string()
    }

    #[test]
    fn a_stranger_is_never_believed() {
        assert_eq!(
            client(&[], "198.51.100.1", "x-forwarded-for", &["1.1.1.1"]),
            "198.51.100.1"
        );
        assert_eq!(
            client(
                &["10.0.0.0/8"],
                "198.51.100.1",
                "x-forwarded-for",
                &["1.1.1.1"]
            ),
            "198.51.100.1"
        );
    }

    #[test]
    fn the_walk_stops_at_the_first_untrusted_hop() {
        let walk = |line: &str| client(&["10.0.0.0/8"], "10.0.0.1", "x-forwarded-for", &[line]);
        assert_eq!(walk("6.6.6.6, 203.0.113.9, 10.0.0.7"), "203.0.113.9");
        assert_eq!(walk("6.6.6.6, nonsense, 10.0.0.7"), "10.0.0.7");
        assert_eq!(walk("[2001:db8::1]:443"), "2001:db8::1");
        assert_eq!(walk("203.0.113.9:5000"), "203.0.113.9");
        assert_eq!(walk("::ffff:203.0.113.9"), "203.0.113.9");
        assert_eq!(walk("fe80::1%eth0"), "fe80::1");
        assert_eq!(walk(""), "10.0.0.1");
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = ["6.6.6.6", "203.0.113.9", "10.0.0.7"];
        assert_eq!(
            client(&["10.0.0.0/8"], "10.0.0.1", "x-forwarded-for", &lines),
            "203.0.113.9"
        );
    }

    #[test]
    fn forwarded_is_read_by_its_for() {
        let walk = |line: &str| client(&["10.0.0.0/8"], "10.0.0.1", "forwarded", &[line]);
        assert_eq!(
            walk("for=6.6.6.6, proto=https;For=\"[2001:db8::1]:47011\";by=10.0.0.2"),
            "2001:db8::1"
        );
        assert_eq!(walk("for=unknown"), "10.0.0.1");
        assert_eq!(walk("for=_hidden, for=10.0.0.9"), "10.0.0.9");
    }
}

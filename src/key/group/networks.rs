//! Networks around an address, each with a value.

use foldhash::fast::RandomState;
use ipnet::IpNet;
use std::net::IpAddr;

/// Networks, and the lengths of their prefixes. An address is looked up once for each length, for any number of
/// networks.
pub(super) struct Networks<V> {
    pub(super) all: hashbrown::HashMap<IpNet, V, RandomState>,
    v4: Vec<u8>,
    v6: Vec<u8>,
}

impl<V> Default for Networks<V> {
    fn default() -> Self {
        Self {
            all: hashbrown::HashMap::default(),
            v4: Vec::new(),
            v6: Vec::new(),
        }
    }
}

impl<V: Copy> Networks<V> {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a network; returns the value that the network had first.
    pub(super) fn insert(&mut self, network: IpNet, value: V) -> V {
        let (network, length) = (network.trunc(), network.prefix_len());
        let lengths = match network {
            IpNet::V4(_) => &mut self.v4,
            IpNet::V6(_) => &mut self.v6,
        };
        if let Err(at) = lengths.binary_search_by(|one| length.cmp(one)) {
            lengths.insert(at, length);
        }
        *self.all.entry(network).or_insert(value)
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.holder(address).is_some()
    }

    /// The value of the smallest network around `address`.
    pub(super) fn holder(&self, address: IpAddr) -> Option<V> {
        let address = address.to_canonical();
        let lengths = match address {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        };
        let mut around = lengths.iter().map(|length| IpNet::new(address, *length));
        around.find_map(|network| self.all.get(&network.ok()?.trunc()).copied())
    }
}

//! The address of a Redis, and its form without credentials.

use super::secret::Secret;
use std::fmt;
use std::sync::Arc;

/// A name or an address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Name or address, without brackets. A name is resolved anew for each connection.
    pub host: Arc<str>,
    /// TCP port.
    pub port: u16,
}

impl Address {
    /// An address of its parts.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            host: Arc::from(host),
            port,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The address of a Redis, and its form without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisEndpoint {
    /// At one address.
    Tcp(Address),
    /// Behind a Unix socket of this machine.
    Unix(Arc<str>),
    /// At the address that the sentinels name.
    Sentinel {
        /// The sentinels, in the order of queries.
        nodes: Arc<[Address]>,
        /// The sentinels' name for the Redis that they monitor.
        name: Arc<str>,
        /// The user at the sentinels, if not their default user.
        username: Option<Arc<str>>,
        /// The password for the sentinels.
        password: Option<Secret>,
    },
    /// Spread over the nodes of a cluster.
    Cluster {
        /// Some nodes of the cluster, which know all others.
        seeds: Arc<[Address]>,
    },
}

impl RedisEndpoint {
    /// At one address.
    #[must_use]
    pub fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp(Address::new(host, port))
    }

    /// The address as it is written, without credentials.
    pub(super) fn show(
        &self,
        f: &mut fmt::Formatter<'_>,
        encrypted: bool,
        database: u16,
    ) -> fmt::Result {
        let scheme = if encrypted { "rediss" } else { "redis" };
        match self {
            Self::Tcp(address) => write!(f, "{scheme}://{address}/{database}"),
            Self::Unix(path) if database == 0 => write!(f, "unix:{path}"),
            Self::Unix(path) => write!(f, "unix:{path}?db={database}"),
            Self::Sentinel { nodes, name, .. } => {
                let nodes = listed(nodes);
                write!(f, "{scheme}+sentinel://{nodes}/{name}/{database}")
            }
            Self::Cluster { seeds } => write!(f, "{scheme}+cluster://{}", listed(seeds)),
        }
    }
}

fn listed(addresses: &[Address]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(",")
}

//! The requests to which a limit does not apply.

use super::{Caller, Doubt, Group, Memberships};
use http::Method;
use ipnet::IpNet;
use std::fmt;
use std::sync::Arc;

/// Requests that a limit does not count, by any one of their properties.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exemption {
    /// The networks of their clients, after trusted hops.
    pub networks: Vec<IpNet>,
    /// Their methods, exactly these.
    pub methods: Vec<Method>,
    /// Their paths in normal form, and everything below them.
    pub paths: Vec<Box<str>>,
    /// Members of these groups.
    pub groups: Vec<Arc<Group>>,
}

impl Exemption {
    /// Is `caller`'s request one of them, by a property other than its groups?
    #[must_use]
    pub fn covers(&self, caller: &Caller<'_>) -> bool {
        // The peer of a Unix socket that names no client is in no network.
        let address = caller.address.map(|address| address.to_canonical());
        let is_within = |network: &IpNet| address.is_some_and(|address| network.contains(&address));
        self.networks.iter().any(is_within)
            || self.methods.contains(caller.method)
            || !self.paths.is_empty() && self.covers_path(caller)
    }

    /// The first group of the exemption that `caller` is in. `keys` has room after its end.
    ///
    /// # Errors
    /// If an upstream may read the value that a group depends on differently.
    pub fn group<'a>(
        &'a self,
        standing: &mut Memberships<'a>,
        caller: &Caller<'_>,
        keys: &mut Vec<u8>,
    ) -> Result<Option<&'a Arc<Group>>, Doubt<'a>> {
        for group in &self.groups {
            if standing.is_in(group, caller, keys, None)? {
                return Ok(Some(group));
            }
        }
        Ok(None)
    }

    /// Does the exemption cover every possible request?
    #[must_use]
    pub fn is_everyone(&self) -> bool {
        let all = |of_v4: bool| {
            let mut of = self.networks.iter();
            of.any(|one| one.prefix_len() == 0 && matches!(one, IpNet::V4(_)) == of_v4)
        };
        (all(true) && all(false)) || self.paths.iter().any(|path| **path == *"/")
    }

    fn covers_path(&self, caller: &Caller<'_>) -> bool {
        let Some(path) = caller.location.path() else {
            return false;
        };
        self.paths.iter().any(|top| {
            let below = path.strip_prefix(&**top);
            **top == *"/" || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// `10.0.0.0/8, OPTIONS, /healthz, group internal`.
impl fmt::Display for Exemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks = self.networks.iter().map(IpNet::to_string);
        let methods = self.methods.iter().map(Method::to_string);
        let paths = self.paths.iter().map(ToString::to_string);
        let groups = self
            .groups
            .iter()
            .map(|group| format!("group {}", group.name));
        let all: Vec<String> = networks.chain(methods).chain(paths).chain(groups).collect();
        f.write_str(&all.join(", "))
    }
}

//! The state of one upstream, shared by all workers of this process: its present servers. It is kept over reloads.

use super::retry_budget::RetryBudget;
use super::server_queue::ServerQueue;
use super::server_state::ServerState;
use crate::clock;
use crate::upstream::rules::recent_clients::RecentClients;
use crate::upstream::{Server, ServerUrl};
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A weight of 1 as a share. It is divisible by all numbers up to 16.
pub(in crate::upstream) const WHOLE: u32 = 720_720;

/// The most addresses of one name.
const MOST_ADDRESSES: usize = 256;

/// One destination of requests: a server, or one address of a server that is a name.
#[derive(Debug, Clone)]
pub struct Member {
    /// The server, as the file writes it.
    pub server: Server,
    /// The address, if the server is reached by TCP.
    pub address: Option<SocketAddr>,
    /// Its weight in parts of [`WHOLE`]: the server's weight, divided by the number of its addresses.
    pub share: u32,
    /// Its state.
    pub state: Arc<ServerState>,
}

/// The addresses of names.
pub(in crate::upstream) type Addresses = HashMap<Arc<str>, Vec<IpAddr>>;

/// The state of an upstream.
#[derive(Debug)]
pub struct UpstreamState {
    members: ArcSwap<Vec<Member>>,
    /// Counts the changes of `members`, and of their availability.
    generation: AtomicU64,
    /// The time of the keeper's last run, for uses that need no accuracy.
    pub(in crate::upstream) seen: AtomicU64,
    /// The clients of recent requests.
    pub(in crate::upstream) clients: RecentClients,
    /// Requests that wait while all servers have the most requests that they may have.
    pub(in crate::upstream) queue: Arc<ServerQueue<RequestSlot>>,
    /// The budget of retries.
    pub(in crate::upstream) retries: RetryBudget,
    /// Locked while an ejection is decided.
    pub(super) changing: Mutex<()>,
    /// While no server is available, requests are refused.
    pub(in crate::upstream) refuses: AtomicBool,
    /// No server is available, and this has been logged.
    pub(in crate::upstream) none_left: AtomicBool,
    /// The time at which a share has last grown; 0 if none grows.
    pub(in crate::upstream) ramped: AtomicU64,
    /// Locked when the file or an address changes, never by a request.
    known: Mutex<KnownServers>,
}

/// The data from which the members are computed.
#[derive(Debug, Default)]
struct KnownServers {
    servers: Vec<Server>,
    addresses: Addresses,
}

impl UpstreamState {
    /// The state of an upstream with these servers, whose names have no address yet.
    #[must_use]
    pub fn new(servers: &[Server]) -> Self {
        let state = Self {
            members: ArcSwap::default(),
            generation: AtomicU64::new(0),
            seen: AtomicU64::new(clock::uptime()),
            clients: RecentClients::default(),
            queue: Arc::default(),
            retries: RetryBudget::default(),
            changing: Mutex::default(),
            refuses: AtomicBool::new(false),
            none_left: AtomicBool::new(false),
            ramped: AtomicU64::new(0),
            known: Mutex::default(),
        };
        state.install(servers, &Addresses::new());
        state
    }

    /// The number of the last change of the members.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Notes that the availability of members has changed.
    pub(in crate::upstream) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The number of requests that wait for a free server.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The destinations of requests, in the order of the file.
    #[must_use]
    pub fn members(&self) -> Arc<Vec<Member>> {
        self.members.load_full()
    }

    /// Takes over the servers of a file. Names keep their addresses; a name without an address gets the addresses of
    /// `found`.
    pub fn install(&self, servers: &[Server], found: &Addresses) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.servers = servers.to_vec();
        let mut before = std::mem::take(&mut known.addresses);
        for name in servers.iter().filter_map(|server| server.url.name()) {
            let addresses = before.remove(name).or_else(|| found.get(name).cloned());
            if let Some(addresses) = addresses {
                known.addresses.insert(Arc::clone(name), addresses);
            }
        }
        self.rebuild(&known);
    }

    /// Takes over the addresses of a name. Returns the previous addresses if they differ. An empty list, or a name that
    /// no server has, changes nothing.
    pub fn resolved(&self, name: &str, addresses: &[IpAddr]) -> Option<Vec<IpAddr>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, _) = known
            .servers
            .iter()
            .filter_map(|server| Some((server.url.name()?, ())))
            .find(|(one, ())| &***one == name)?;
        let name = Arc::clone(name);
        let mut new: Vec<IpAddr> = Vec::new();
        for address in addresses {
            if !new.contains(address) && new.len() < MOST_ADDRESSES {
                new.push(*address);
            }
        }
        let before = known.addresses.get(&name).cloned().unwrap_or_default();
        let is_same = before.len() == new.len() && new.iter().all(|one| before.contains(one));
        if new.is_empty() || is_same {
            return None;
        }
        known.addresses.insert(name, new);
        self.rebuild(&known);
        Some(before)
    }

    /// Is a name of a server without an address?
    #[must_use]
    pub fn lacks_address(&self, name: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        !known.addresses.contains_key(name)
    }

    /// Computes the members anew. Members that stay keep their state.
    fn rebuild(&self, known: &KnownServers) {
        let before = self.members.load_full();
        let kept: HashMap<(&ServerUrl, Option<SocketAddr>), &Arc<ServerState>> = before
            .iter()
            .map(|member| ((&member.server.url, member.address), &member.state))
            .collect();
        let mut members = Vec::new();
        for server in &known.servers {
            let all = known.addresses_of(&server.url);
            let many = u32::try_from(all.len()).unwrap_or(u32::MAX);
            for address in all {
                let state = kept
                    .get(&(&server.url, address))
                    .map(|state| Arc::clone(state));
                let share = u32::from(server.weight) * WHOLE / many.max(1);
                let state =
                    state.unwrap_or_else(|| Arc::new(ServerState::new(&server.url, address)));
                state.connections.set(server.max_connections.map(u32::from));
                members.push(Member {
                    server: server.clone(),
                    address,
                    share,
                    state,
                });
            }
        }
        self.members.store(Arc::new(members));
        self.generation.fetch_add(1, Ordering::Release);
    }
}

impl KnownServers {
    /// The addresses of a server: one `None` if it has none and needs none.
    fn addresses_of(&self, url: &ServerUrl) -> Vec<Option<SocketAddr>> {
        let Some((host, port)) = url.host_and_port() else {
            return vec![None];
        };
        match url.address() {
            Some(address) => vec![Some(address)],
            None => {
                let all = self.addresses.get(host).into_iter().flatten();
                all.map(|ip| Some(SocketAddr::new(*ip, port))).collect()
            }
        }
    }
}

/// The slot of a request at a server. Dropped, it goes to the first waiter.
#[derive(Debug)]
pub struct RequestSlot {
    server: Arc<ServerState>,
    upstream: Arc<UpstreamState>,
}

impl RequestSlot {
    /// A slot at `member`, unless it has the most requests that it may have.
    #[must_use]
    pub fn take(upstream: &Arc<UpstreamState>, member: &Member) -> Option<Self> {
        let most = member.most_requests();
        member.state.enter(most).then(|| Self {
            server: Arc::clone(&member.state),
            upstream: Arc::clone(upstream),
        })
    }

    /// A slot at any usable server of the upstream, preferring the one with the most free slots.
    #[must_use]
    pub fn any(upstream: &Arc<UpstreamState>) -> Option<Self> {
        let members = upstream.members();
        let mut free: Vec<&Member> = upstream.usable(&members).collect();
        free.sort_by_key(|member| {
            let most = member.most_requests().unwrap_or(u32::MAX);
            std::cmp::Reverse(most.saturating_sub(member.state.in_flight()))
        });
        free.into_iter()
            .find_map(|member| Self::take(upstream, member))
    }

    /// The server of the slot.
    #[must_use]
    pub fn server(&self) -> &Arc<ServerState> {
        &self.server
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.server.leave();
        let upstream = &self.upstream;
        upstream.queue.serve(|| Self::any(upstream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(host: &str, weight: u16) -> Server {
        let url = ServerUrl::Http {
            host: host.into(),
            port: 80,
        };
        Server {
            weight,
            ..Server::plain(url)
        }
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn shown(state: &UpstreamState) -> Vec<String> {
        let members = state.members();
        let each = members.iter();
        each.map(|one| format!("{} {}", one.state.shown, one.share * 4 / WHOLE))
            .collect()
    }

    #[test]
    fn a_name_is_all_its_addresses_with_its_weight_divided() {
        let state = UpstreamState::new(&[named("orders", 2), named("192.0.2.9", 1)]);
        assert_eq!(shown(&state), ["http://192.0.2.9:80 4"]);
        assert!(state.lacks_address("orders"));
        let two = ips(&["192.0.2.1", "2001:db8::1"]);
        assert_eq!(state.resolved("orders", &two), Some(Vec::new()));
        let all = [
            "http://orders:80 (192.0.2.1) 4",
            "http://orders:80 (2001:db8::1) 4",
            "http://192.0.2.9:80 4",
        ];
        assert_eq!(shown(&state), all);
        let generation = state.generation();
        assert_eq!(state.resolved("orders", &[]), None, "no answer, no change");
        assert_eq!(state.resolved("orders", &[two[1], two[0], two[0]]), None);
        assert_eq!(state.resolved("nobody", &two), None);
        assert_eq!(state.generation(), generation);
    }

    #[test]
    fn what_is_known_stays_while_a_server_stays() {
        let state = UpstreamState::new(&[named("orders", 1)]);
        state.resolved("orders", &ips(&["192.0.2.1", "192.0.2.2"]));
        let before = state.members();
        state.resolved("orders", &ips(&["192.0.2.2", "192.0.2.3"]));
        let after = state.members();
        assert!(Arc::ptr_eq(&before[1].state, &after[0].state));
        state.install(
            &[named("orders", 7), named("192.0.2.9", 1)],
            &Addresses::new(),
        );
        let reloaded = state.members();
        assert_eq!(reloaded.len(), 3);
        assert!(Arc::ptr_eq(&after[0].state, &reloaded[0].state));
        assert_eq!(reloaded[0].server.weight, 7);
    }
}

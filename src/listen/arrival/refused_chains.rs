//! Clients whose certificates are refused repeatedly: for a short time their further handshakes end before any
//! cryptography, at identities that request certificates. A chain costs a client nothing, and each costs the gateway a
//! handshake.
//!
//! The number of places is fixed. A client may use one of a few places, by a hash that clients cannot compute: a
//! counted client keeps its place for its time, and clients that find no free place are counted together with the
//! others of the same few. So an attacker with any number of addresses displaces no client, and each of its addresses
//! is counted.

use crate::client::Client;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The number of refused chains after which no chain of a client is verified.
pub(in crate::listen) const MOST: u32 = 20;
/// The time for which they are counted, beginning with the first of them.
pub(super) const WITHIN: Duration = Duration::from_secs(10);
/// The groups of places.
const GROUPS: usize = 4096;
/// The places of a group, each for one client.
const PLACES: usize = 8;

/// The refused chains of all clients at all workers. A handshake by an identity that asks for certificates locks one group
/// for a moment.
#[derive(Debug, Default)]
pub struct RefusedChains {
    hasher: RandomState,
    /// Empty before the first chain is refused.
    groups: OnceLock<Box<[Mutex<ClientGroup>]>>,
}

#[derive(Debug, Default)]
struct ClientGroup {
    clients: Vec<(Client, RefusedCount)>,
    /// The count of all clients that found no place.
    others: Option<RefusedCount>,
}

#[derive(Debug, Clone, Copy)]
struct RefusedCount {
    count: u32,
    since: Instant,
}

impl RefusedCount {
    fn first(now: Instant) -> Self {
        Self {
            count: 1,
            since: now,
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WITHIN
    }

    fn is_too_high(&self, now: Instant) -> bool {
        self.count >= MOST && !self.is_over(now)
    }

    fn add(&mut self, now: Instant) {
        if self.is_over(now) {
            *self = Self::first(now);
        } else {
            self.count = self.count.saturating_add(1);
        }
    }
}

impl ClientGroup {
    fn count(&mut self, client: Client, now: Instant) {
        let mut clients = self.clients.iter_mut();
        if let Some((_, count)) = clients.find(|(of, _)| *of == client) {
            return count.add(now);
        }
        let first = (client, RefusedCount::first(now));
        let mut clients = self.clients.iter_mut();
        if let Some(free) = clients.find(|(_, count)| count.is_over(now)) {
            *free = first;
        } else if self.clients.len() < PLACES {
            self.clients.push(first);
        } else {
            match &mut self.others {
                Some(others) => others.add(now),
                none => *none = Some(RefusedCount::first(now)),
            }
        }
    }

    fn count_of(&self, client: Client, now: Instant) -> Option<&RefusedCount> {
        let count = self.clients.iter().find(|(of, _)| *of == client);
        let count = count.map(|(_, count)| count);
        count
            .filter(|count| !count.is_over(now))
            .or(self.others.as_ref())
    }
}

impl RefusedChains {
    /// Counts a refused chain of this client.
    #[cold]
    pub(in crate::listen) fn count(&self, client: Client, now: Instant) {
        let groups = self.groups.get_or_init(|| {
            let groups = (0..GROUPS).map(|_| Mutex::default());
            groups.collect()
        });
        let group = self.group_of(client, groups);
        let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
        group.count(client, now);
    }

    /// Have so many chains of this client been refused that no further one is verified now?
    pub(super) fn are_too_many(&self, client: Client, now: Instant) -> bool {
        let Some(groups) = self.groups.get() else {
            return false;
        };
        let group = self.group_of(client, groups);
        let group = group.lock().unwrap_or_else(PoisonError::into_inner);
        let count = group.count_of(client, now);
        count.is_some_and(|count| count.is_too_high(now))
    }

    fn group_of<'a>(
        &self,
        client: Client,
        groups: &'a [Mutex<ClientGroup>],
    ) -> &'a Mutex<ClientGroup> {
        let hash = self.hasher.hash_one(client);
        // The remainder is below the number of groups.
        &groups[usize::try_from(hash % GROUPS as u64).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn client(number: u32) -> Client {
        Client::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    /// The number of used places in `chains`.
    fn places(chains: &RefusedChains) -> usize {
        let groups = chains.groups.get().unwrap().iter();
        groups
            .map(|group| group.lock().unwrap().clients.len())
            .sum()
    }

    #[test]
    fn a_client_is_not_heard_for_the_rest_of_ten_seconds() {
        let chains = RefusedChains::default();
        let begin = Instant::now();
        let after = |millis| begin + Duration::from_millis(millis);
        for at in 0..20 {
            assert!(!chains.are_too_many(client(1), after(100 * at)));
            chains.count(client(1), after(100 * at));
        }
        assert!(chains.are_too_many(client(1), after(2_000)));
        assert!(!chains.are_too_many(client(2), after(2_000)));
        assert!(chains.are_too_many(client(1), after(9_999)));
        assert!(!chains.are_too_many(client(1), after(10_000)));
        // The next count starts anew.
        chains.count(client(1), after(10_001));
        assert!(!chains.are_too_many(client(1), after(10_002)));
    }

    /// Any number of clients, such as the owner of many networks has, uses bounded memory. Clients that were counted
    /// before stay counted, and clients that find no place are counted together.
    #[test]
    fn clients_without_end_push_nobody_out_and_pass_nowhere() {
        let chains = RefusedChains::default();
        let begin = Instant::now();
        for _ in 0..MOST {
            chains.count(client(1), begin);
        }
        let all = u32::try_from(GROUPS * PLACES).unwrap();
        for number in 2..4 * all {
            chains.count(client(number), begin);
        }
        assert_eq!(places(&chains), GROUPS * PLACES);
        assert!(chains.are_too_many(client(1), begin));
        // A client without a place gets the count of the others without one.
        let new = 4 * all;
        for _ in 0..MOST {
            chains.count(client(new), begin);
        }
        assert!(chains.are_too_many(client(new), begin));
        // An expired count makes room.
        let later = begin + WITHIN;
        assert!(!chains.are_too_many(client(new), later));
        chains.count(client(new), later);
        assert_eq!(places(&chains), GROUPS * PLACES);
        for _ in 1..MOST {
            assert!(!chains.are_too_many(client(new), later));
            chains.count(client(new), later);
        }
        assert!(chains.are_too_many(client(new), later));
    }
}

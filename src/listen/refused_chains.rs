//! Clients whose certificates are refused again and again: for the rest of a short while their handshakes end before any
//! cryptography, at identities that ask for certificates. A client makes up a chain for nothing, and each costs the gateway
//! a handshake.

use crate::client::Client;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The number of refused chains after which a client is not heard.
const MOST: u32 = 20;
/// The time for which they are counted, from the first of them on.
const WITHIN: Duration = Duration::from_secs(10);
/// Most clients that are counted at once. Those beyond them are not.
const MOST_CLIENTS: usize = 4096;

/// The refused chains of all clients at all workers, which lock them for one access each: at a handshake by an identity
/// that asks for certificates, and at its refusal.
#[derive(Debug, Default)]
pub struct RefusedChains(Mutex<HashMap<Client, RefusedOf, foldhash::fast::RandomState>>);

#[derive(Debug)]
struct RefusedOf {
    count: u32,
    since: Instant,
}

impl RefusedOf {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WITHIN
    }
}

impl RefusedChains {
    /// Counts a chain of this client that was refused.
    #[cold]
    pub(super) fn count(&self, client: Client, now: Instant) {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= MOST_CLIENTS && !clients.contains_key(&client) {
            clients.retain(|_, refused| !refused.is_over(now));
            if clients.len() >= MOST_CLIENTS {
                return;
            }
        }
        let refused = clients.entry(client).or_insert(RefusedOf {
            count: 0,
            since: now,
        });
        if refused.is_over(now) {
            *refused = RefusedOf {
                count: 0,
                since: now,
            };
        }
        refused.count = refused.count.saturating_add(1);
    }

    /// Were so many chains of this client refused that it is not heard now?
    pub(super) fn are_too_many(&self, client: Client, now: Instant) -> bool {
        let clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = clients.get(&client);
        refused.is_some_and(|refused| refused.count >= MOST && !refused.is_over(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn client(number: u32) -> Client {
        Client::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn a_client_is_not_heard_for_the_rest_of_ten_seconds() {
        let chains = RefusedChains::default();
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_millis(seconds);
        for at in 0..20 {
            assert!(!chains.are_too_many(client(1), after(at)));
            chains.count(client(1), after(100 * at));
        }
        assert!(chains.are_too_many(client(1), after(2_000)));
        assert!(!chains.are_too_many(client(2), after(2_000)));
        assert!(chains.are_too_many(client(1), after(9_999)));
        assert!(!chains.are_too_many(client(1), after(10_000)));
        // The next count begins anew.
        chains.count(client(1), after(10_001));
        assert!(!chains.are_too_many(client(1), after(10_002)));
    }

    #[test]
    fn clients_without_end_take_no_memory_without_end() {
        let chains = RefusedChains::default();
        let begin = Instant::now();
        let count = || chains.0.lock().unwrap().len();
        for number in 0..10_000 {
            chains.count(client(number), begin);
        }
        assert_eq!(count(), MOST_CLIENTS);
        // What is over makes room.
        chains.count(client(20_000), begin + WITHIN);
        assert_eq!(count(), 1);
    }
}

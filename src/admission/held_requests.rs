//! The number of currently waiting requests, bounded for the gateway and for each client.

use crate::client::Client;
use crate::snapshot::HoldCaps;
use std::collections::HashMap;

/// The requests that wait.
#[derive(Debug, Default)]
pub struct HeldRequests {
    total: usize,
    clients: HashMap<Client, usize>,
}

impl HeldRequests {
    /// Adds one more request of `client`, unless a bound is reached.
    #[must_use]
    pub fn enter(&mut self, client: Client, caps: HoldCaps) -> bool {
        let here = self.clients.get(&client).copied().unwrap_or(0);
        let has_room = self.total < caps.total && here < caps.per_client;
        if has_room {
            self.total += 1;
            self.clients.insert(client, here + 1);
        }
        has_room
    }

    /// Removes a request that no longer waits.
    pub fn leave(&mut self, client: Client) {
        self.total -= 1;
        if let Some(here) = self.clients.get_mut(&client) {
            *here -= 1;
            if *here == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

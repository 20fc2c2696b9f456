//! How many requests wait at one moment: a gateway bounds them in all and for each client.

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
    /// Takes in one more of `client`, unless the caps are reached.
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

    /// One that was taken in does not wait any more.
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

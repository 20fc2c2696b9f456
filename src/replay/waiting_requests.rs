//! The requests that wait at the current instant of the trace. The gateway bounds their number, in all and for each
//! client.

use crate::admission::HeldRequests;
use crate::client::Client;
use crate::clock::Timestamp;
use crate::snapshot::HoldCaps;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;

/// The clients of requests that wait, and the ends of the waits.
#[derive(Debug, Default)]
pub(super) struct WaitingRequests {
    until: BinaryHeap<Reverse<(Timestamp, Client)>>,
    held: HeldRequests,
}

impl WaitingRequests {
    /// Makes a request of `client` wait from `now` until `until`; returns false if a bound is reached.
    pub(super) fn enter(
        &mut self,
        client: IpAddr,
        now: Timestamp,
        until: Timestamp,
        caps: HoldCaps,
    ) -> bool {
        let client = Client::of(client);
        self.leave(now);
        let is_held = self.held.enter(client, caps);
        if is_held {
            self.until.push(Reverse((until, client)));
        }
        is_held
    }

    /// Removes the requests whose wait has ended by `now`.
    fn leave(&mut self, now: Timestamp) {
        while let Some(Reverse((until, client))) = self.until.peek().copied() {
            if until > now {
                return;
            }
            self.until.pop();
            self.held.leave(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_go_on_make_room() {
        let mut held = WaitingRequests::default();
        let caps = HoldCaps {
            total: 3,
            per_client: 2,
        };
        let [one, other]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let mut enter = |client, now, until| {
            let [now, until] = [now, until].map(Timestamp::from_micros);
            held.enter(client, now, until, caps)
        };
        assert!(enter(one, 0, 10) && enter(one, 0, 20));
        assert!(!enter(one, 9, 30), "two of its own are held");
        assert!(enter(other, 9, 15));
        assert!(!enter(other, 9, 15), "three are held in all");
        assert!(enter(one, 10, 30), "the first has gone on");
        assert!(!enter(one, 15, 30) && enter(other, 15, 30));
        assert_eq!(held.until.len(), 3);
    }
}

//! The consecutive failures of one server, and the clients of their requests.
//!
//! One client may be able to make an application fail with each of its requests. So one client contributes at most half
//! of the failures that eject a server, while others send requests too. A lasting row is the server's own failure: the
//! failures left out then count, so that a dead server is ejected nevertheless.

use super::recent_clients::LATELY;
use crate::client::Client;
use std::collections::HashMap;

/// The most clients that are tracked in a row; with more of them no client is alone.
const MOST_CLIENTS: usize = 1024;

/// A failure of a server. Times are microseconds of this process.
#[derive(Debug, Clone, Copy)]
pub struct ServerFailure<'a> {
    /// The cause, for the log.
    pub why: &'a str,
    /// The time at which the request began.
    pub began: u64,
    /// The request's client, if a client can cause such a failure.
    pub by: Option<Client>,
}

/// A row after which its server must be ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowSummary {
    /// The number of failures.
    pub failures: u32,
    /// All failures were of one client's requests.
    pub is_of_one: bool,
}

/// The failures since the last success.
#[derive(Debug, Default)]
pub(super) struct FailureRow {
    /// The time of the first failure.
    first: u64,
    /// The time of the last failure that counts.
    pub(in crate::upstream) last: u64,
    counted: u32,
    /// Failures beyond their client's share.
    left_out: u32,
    clients: HashMap<Client, u32>,
    authors: Authors,
}

/// The clients whose requests failed, whether counted or not.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Authors {
    #[default]
    None,
    One(Client),
    /// Several clients, or a failure that no client can cause.
    Several,
}

impl FailureRow {
    /// The number of failures.
    pub(in crate::upstream) fn len(&self) -> u32 {
        self.counted.saturating_add(self.left_out)
    }

    /// Adds a failure at `now` by this client; `are_others` states whether other clients sent requests recently. The
    /// row is returned if its server must be ejected: the counted failures are `after`, or a multiple of it if the
    /// server could not be ejected before.
    pub(in crate::upstream) fn add(
        &mut self,
        after: u32,
        by: Option<Client>,
        are_others: impl FnOnce(Client) -> bool,
        now: u64,
    ) -> Option<RowSummary> {
        if self.len() == 0 {
            self.first = now;
        }
        self.authors = match (self.authors, by) {
            (Authors::None, Some(by)) => Authors::One(by),
            (Authors::One(one), Some(by)) if one == by => Authors::One(one),
            _ => Authors::Several,
        };
        let lasts = now.saturating_sub(self.first) >= LATELY;
        let of_client = by.map_or(0, |by| self.clients.get(&by).copied().unwrap_or(0));
        let most = after.div_ceil(2);
        if let Some(by) = by.filter(|_| !lasts && of_client >= most)
            && are_others(by)
        {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        if let Some(by) = by.filter(|_| of_client > 0 || self.clients.len() < MOST_CLIENTS) {
            self.clients.insert(by, of_client + 1);
        }
        let before = self.counted;
        if lasts {
            self.counted = before.saturating_add(std::mem::take(&mut self.left_out));
        }
        self.counted = self.counted.saturating_add(1);
        self.last = self.last.max(now);
        (self.counted / after > before / after).then(|| {
            // If the server cannot be ejected now, each client has its share of the failures until the next time.
            self.clients.clear();
            RowSummary {
                failures: self.len(),
                is_of_one: matches!(self.authors, Authors::One(_)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    const SECOND: u64 = 1_000_000;

    fn client(number: u32) -> Option<Client> {
        Some(Client::of(IpAddr::from(number.to_be_bytes())))
    }

    /// The number of failures, one at each `step`, after which a server is ejected. The clients send requests in turn.
    fn ejected_after(after: u32, clients: u32, are_others: bool, step: u64) -> Option<u32> {
        let mut row = FailureRow::default();
        (0..1_000).find_map(|n| {
            let now = 1 + u64::from(n) * step;
            let due = row.add(after, client(n % clients), |_| are_others, now);
            due.map(|row| row.failures)
        })
    }

    #[test]
    fn one_client_gives_half_while_others_ask() {
        for after in [2, 3, 5, 6] {
            assert_eq!(
                ejected_after(after, 1, false, 1),
                Some(after),
                "it is alone"
            );
            assert_eq!(
                ejected_after(after, 2, true, 1),
                Some(after),
                "it is not alone"
            );
            assert_eq!(ejected_after(after, 1, true, 1), None);
        }
        assert_eq!(ejected_after(1, 1, true, 1), Some(1), "half of one is one");
    }

    #[test]
    fn a_row_that_lasts_is_the_servers_own() {
        // The eleventh failure comes after ten seconds, and the failures left out count with it.
        assert_eq!(ejected_after(5, 1, true, SECOND), Some(11));
        assert_eq!(ejected_after(20, 1, true, SECOND), Some(20));
        assert_eq!(ejected_after(5, 1, true, 3 * SECOND), Some(5));
    }

    #[test]
    fn what_no_client_can_bring_about_counts_in_full() {
        let mut row = FailureRow::default();
        let mut add = |by| row.add(5, by, |_| true, 1).is_some();
        let mut many = |by, times| (0..times).any(|_| add(by));
        assert!(!many(client(1), 9) && !many(None, 1) && many(None, 1));
    }

    #[test]
    fn where_it_cannot_be_ejected_the_next_time_is_as_far() {
        let mut row = FailureRow::default();
        let due = (0..12).filter(|n| row.add(3, client(n % 2), |_| true, 1).is_some());
        assert_eq!(due.count(), 4);
    }

    #[test]
    fn a_row_that_lasts_says_so_too() {
        let mut row = FailureRow::default();
        let mut due = (0..20).filter_map(|n| row.add(5, client(1), |_| true, 1 + n * SECOND));
        assert_eq!(due.next().map(|row| row.is_of_one), Some(true));
    }

    #[test]
    fn a_row_says_whether_one_client_is_behind_it() {
        let verdict = |causes: [Option<Client>; 3]| {
            let mut row = FailureRow::default();
            let mut due = causes
                .into_iter()
                .filter_map(|by| row.add(3, by, |_| false, 1));
            due.next().map(|row| row.is_of_one)
        };
        assert_eq!(verdict([client(1); 3]), Some(true));
        assert_eq!(verdict([client(1), client(1), client(2)]), Some(false));
        assert_eq!(verdict([client(1), client(1), None]), Some(false));
    }
}

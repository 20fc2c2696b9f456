//! The flood rule: a client that is refused repeatedly does not fill the log.
//!
//! In each second the first refusals of a client have a line each. One further line, written when the second ends,
//! represents the rest and has their number. So the number of requests is the number of lines plus the sum of
//! `repeated`.

use crate::client::Client;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Refused requests of one client that have a line each, in a second of one worker.
pub(crate) const LINES_A_SECOND: u32 = 100;

/// The most clients that are tracked at once. Beyond this number each refusal has its own line: refusals of many
/// different clients are not repetition.
const CLIENTS: usize = 8_192;

const SECOND: Duration = Duration::from_secs(1);

/// The refusals of each client in the current second.
#[derive(Debug, Default)]
pub(super) struct RefusalSummary {
    began: Option<Instant>,
    clients: HashMap<Option<Client>, ClientRefusals, foldhash::fast::RandomState>,
    /// Clients whose summary line is still to be written.
    pending: usize,
}

#[derive(Debug, Default)]
struct ClientRefusals {
    lines: u32,
    closing: Option<SummaryLine>,
}

/// The line that represents the unwritten ones.
#[derive(Debug)]
pub(super) struct SummaryLine {
    /// The first unwritten line, without its end.
    pub(super) line: Vec<u8>,
    /// The number of further unwritten lines.
    pub(super) repeated: u64,
}

impl RefusalSummary {
    /// Does the refused request of `client` get its own line? `line` formats the line that represents the others of its
    /// second.
    pub(super) fn refused(
        &mut self,
        client: Option<Client>,
        now: Instant,
        line: impl FnOnce() -> Vec<u8>,
    ) -> bool {
        self.began.get_or_insert(now);
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            return true;
        }
        let entry = self.clients.entry(client).or_default();
        if entry.lines < LINES_A_SECOND {
            entry.lines += 1;
            return true;
        }
        if let Some(closing) = &mut entry.closing {
            closing.repeated += 1;
        } else {
            let line = line();
            entry.closing = Some(SummaryLine { line, repeated: 0 });
            self.pending += 1;
        }
        false
    }

    /// Are summary lines still to be written?
    pub(super) const fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Is the current second over?
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.began
            .is_some_and(|began| now.saturating_duration_since(began) >= SECOND)
    }

    /// Ends the second and hands over its summary lines.
    pub(super) fn close(&mut self, mut write: impl FnMut(SummaryLine)) {
        self.began = None;
        if self.pending == 0 {
            return self.clients.clear();
        }
        self.pending = 0;
        for closing in self
            .clients
            .drain()
            .filter_map(|(_, refusals)| refusals.closing)
        {
            write(closing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(last: u8) -> Option<Client> {
        Some(Client::of(IpAddr::from([203, 0, 113, last])))
    }

    #[test]
    fn lines_and_repeated_add_up_to_the_requests() {
        let (mut refusals, now) = (RefusalSummary::default(), Instant::now());
        let mut written = 0;
        for _ in 0..1_000 {
            written += u64::from(refusals.refused(client(1), now, Vec::new));
        }
        assert!(refusals.refused(client(2), now, Vec::new));
        assert!(refusals.is_pending() && !refusals.is_over(now) && refusals.is_over(now + SECOND));
        refusals.close(|closing| written += 1 + closing.repeated);
        assert_eq!(written, 1_000);
        assert!(!refusals.is_pending());
        assert!(refusals.refused(client(1), now, Vec::new));
    }

    #[test]
    fn a_crowd_is_no_flood_and_takes_bounded_memory() {
        let (mut refusals, now) = (RefusalSummary::default(), Instant::now());
        for i in 0..100_000_u32 {
            let client = Some(Client::of(IpAddr::from(i.to_be_bytes())));
            assert!(refusals.refused(client, now, Vec::new));
        }
        assert_eq!(refusals.clients.len(), CLIENTS);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let (mut refusals, now) = (RefusalSummary::default(), Instant::now());
        let refused = (0..=LINES_A_SECOND).map(|n| {
            let address = format!("2001:db8::{n:x}").parse::<IpAddr>().unwrap();
            refusals.refused(Some(Client::of(address)), now, Vec::new)
        });
        assert_eq!(refused.last(), Some(false));
    }
}

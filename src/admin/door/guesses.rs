//! A bound on wrong tokens: after ten in a minute from one place further wrong ones are not looked at as such any more.
//! Right tokens always pass, or a neighbour could lock an operator out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Wrong tokens of one place in [`SPAN`].
const MOST: u32 = 10;
/// The time after which a place begins anew, in microseconds.
const SPAN: u64 = 60_000_000;
/// Places that are remembered at once. With more, the oldest is forgotten.
const PLACES: usize = 1_024;

/// Where a wrong token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::admin) enum GuessSource {
    /// An address of IPv4, or the first 64 bits of one of IPv6.
    Network([u8; 8]),
    /// A user of this machine, on a Unix socket.
    User(Option<u32>),
}

impl GuessSource {
    /// The source for an address.
    pub(super) fn of(address: IpAddr) -> Self {
        let mut network = [0; 8];
        match address.to_canonical() {
            IpAddr::V4(v4) => network[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => network.copy_from_slice(&v6.octets()[..8]),
        }
        Self::Network(network)
    }
}

/// Wrong tokens, by their source.
#[derive(Debug, Default)]
pub(super) struct Guesses(HashMap<GuessSource, GuessCount>);

#[derive(Debug)]
struct GuessCount {
    /// The instant of the first, in microseconds of this process.
    since: u64,
    many: u32,
}

impl Guesses {
    /// Notes a wrong token at this instant. Returns the time until the source may guess again, if it has guessed too
    /// often.
    pub(super) fn wrong(&mut self, source: GuessSource, now: u64) -> Option<Duration> {
        if !self.0.contains_key(&source) && self.0.len() >= PLACES {
            let oldest = self.0.iter().min_by_key(|(_, count)| count.since);
            if let Some(oldest) = oldest.map(|(source, _)| *source) {
                self.0.remove(&oldest);
            }
        }
        let count = self.0.entry(source).or_insert(GuessCount {
            since: now,
            many: 0,
        });
        if now >= count.since.saturating_add(SPAN) {
            *count = GuessCount {
                since: now,
                many: 0,
            };
        }
        if count.many >= MOST {
            let end = count.since.saturating_add(SPAN);
            return Some(Duration::from_micros(end.saturating_sub(now)));
        }
        count.many += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_wrong_tokens_a_minute_and_network() {
        let mut guesses = Guesses::default();
        let source = |text: &str| GuessSource::of(text.parse().unwrap());
        for _ in 0..MOST {
            assert_eq!(guesses.wrong(source("2001:db8::1"), 5), None);
        }
        let wait = guesses.wrong(source("2001:db8::2"), 1_000_005);
        assert_eq!(wait, Some(Duration::from_secs(59)));
        assert_eq!(guesses.wrong(source("2001:db8:0:1::1"), 5), None);
        assert_eq!(guesses.wrong(source("192.0.2.1"), 5), None);
        assert_eq!(guesses.wrong(source("2001:db8::1"), SPAN + 5), None);
    }

    #[test]
    fn a_flood_of_sources_takes_no_memory() {
        let mut guesses = Guesses::default();
        for user in 0..5_000 {
            guesses.wrong(GuessSource::User(Some(user)), u64::from(user));
        }
        assert_eq!(guesses.0.len(), PLACES);
    }
}

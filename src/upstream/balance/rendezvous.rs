//! Weighted rendezvous: a key belongs to the server with the highest score for it. The order of the servers does not
//! matter, and when a server leaves, only its own keys move.
//!
//! A score is `weight / -ln(u)`, with `u` uniform by the hash of key and server ("Weighted Distributed Hash Tables",
//! Schindelhauer and Schomaker, 2005; the logarithmic method). The hash is fixed, so that all gateways agree.

use crate::upstream::state::upstream_state::Member;

/// The hash of a key, or of a server's address.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(word));
    }
    mix(state)
}

/// The finalizer of `splitmix64`: each input bit changes half of the output bits on average.
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The score of a server for a key, both by their hashes.
#[allow(
    clippy::cast_precision_loss,
    reason = "53 bits of the hash are kept, which a float holds exactly"
)]
pub(super) fn score(key: u64, server: u64, weight: u32) -> f64 {
    let uniform = ((mix(key ^ server.rotate_left(32)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    f64::from(weight) / -uniform.ln()
}

/// The position of the server with the highest score for `key`, among the servers that `may` take the request.
pub(super) fn owner(
    key: u64,
    servers: &[u64],
    weights: &[u32],
    may: impl Fn(usize) -> bool,
) -> Option<usize> {
    let mut best = None;
    let mut highest = f64::NEG_INFINITY;
    for (position, (server, weight)) in servers.iter().zip(weights).enumerate() {
        let score = score(key, *server, *weight);
        if score > highest && may(position) {
            (best, highest) = (Some(position), score);
        }
    }
    best
}

/// The members that get requests, in the order of `key`: the first is the key's own, and each takes its requests while
/// the previous ones are unavailable.
#[must_use]
pub fn order(key: u64, members: &[Member]) -> Vec<&Member> {
    let scored = members.iter().filter(|member| member.share > 0);
    let mut scored: Vec<(f64, &Member)> = scored
        .map(|member| {
            let server = hash(member.state.shown.as_bytes());
            (score(key, server, member.share), member)
        })
        .collect();
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    scored.into_iter().map(|(_, member)| member).collect()
}

/// The most requests in flight that a server may have, including one more, if `in_flight` are in flight on all: its
/// share of them by weight, times `percent`, rounded up ("Consistent Hashing with Bounded Loads", Mirrokni, Thorup and
/// Zadimoghaddam, 2016).
pub(in crate::upstream) fn bound(percent: u32, in_flight: u64, weight: u32, total: u64) -> u64 {
    let whole = u128::from(percent) * u128::from(in_flight + 1) * u128::from(weight);
    let bound = whole.div_ceil(100 * u128::from(total.max(1)));
    u64::try_from(bound).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn servers(many: usize) -> Vec<u64> {
        (0..many)
            .map(|at| hash(format!("http://10.0.0.{at}:80").as_bytes()))
            .collect()
    }

    fn key(number: usize) -> u64 {
        hash(format!("user-{number}").as_bytes())
    }

    proptest! {
        #[test]
        fn a_server_that_leaves_moves_only_its_own_keys(many in 2_usize..12, leaves in 0_usize..12, weights in prop::collection::vec(1_u32..100, 12)) {
            let servers = servers(many);
            let leaves = leaves % many;
            let weights = &weights[..many];
            for number in 0..200 {
                let before = owner(key(number), &servers, weights, |_| true).unwrap();
                let after = owner(key(number), &servers, weights, |at| at != leaves).unwrap();
                prop_assert!(before == leaves || before == after);
            }
        }

        #[test]
        fn the_order_does_not_matter(many in 2_usize..12, turn in 1_usize..12, number in 0_usize..10_000) {
            let mut servers = servers(many);
            let mut weights: Vec<u32> = (1..).take(many).collect();
            let before = servers[owner(key(number), &servers, &weights, |_| true).unwrap()];
            servers.rotate_left(turn % many);
            weights.rotate_left(turn % many);
            let after = servers[owner(key(number), &servers, &weights, |_| true).unwrap()];
            prop_assert_eq!(before, after);
        }

        #[test]
        fn a_bound_lets_every_request_in_somewhere(loads in prop::collection::vec(0_u32..50, 1..10), percent in 100_u32..300) {
            let total = loads.len() as u64;
            let sum = loads.iter().map(|load| u64::from(*load)).sum();
            let bound = bound(percent, sum, 1, total);
            prop_assert!(loads.iter().any(|load| u64::from(*load) < bound));
        }
    }

    #[test]
    fn keys_are_shared_out_by_weight() {
        let servers = servers(5);
        let weights = [1, 1, 2, 2, 4];
        let mut owned = [0_u32; 5];
        for number in 0..100_000 {
            owned[owner(key(number), &servers, &weights, |_| true).unwrap()] += 1;
        }
        for (owned, weight) in owned.iter().zip(weights) {
            let share = f64::from(*owned) / 100_000.0;
            let due = f64::from(weight) / 10.0;
            assert!((share - due).abs() < 0.006, "{share} of {due}");
        }
    }

    #[test]
    fn the_hash_is_the_same_for_ever() {
        // A change here would move all keys of a running fleet during a rolling upgrade.
        assert_eq!(hash(b""), HASH_OF_NOTHING);
        assert_eq!(hash(b"http://10.0.0.1:80"), HASH_OF_A_SERVER);
    }

    const HASH_OF_NOTHING: u64 = 7_960_286_522_194_355_700;
    const HASH_OF_A_SERVER: u64 = 6_148_753_707_767_905_762;
}

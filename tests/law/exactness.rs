//! A million grants, exact to the microsecond.

use super::numbers::{NOON, SECOND, leaky_bucket, token_bucket};
use tollgate::clock::Timestamp;
use tollgate::limit::rate::{Cost, Rate};
use tollgate::limit::verdict::{VerdictOutcome, Wait};
use tollgate::limit::{Rule, State};

const GRANTS: u64 = 1_000_000;

/// The instant of the last of a million grants. The client comes back exactly after each given wait.
fn obedient((_, rule): (Rate, Rule)) -> u64 {
    let (mut state, mut at): (Option<State>, Timestamp) = (None, NOON);
    let mut granted = 0;
    while granted < GRANTS {
        let (measured, change) = rule.check(state.as_ref(), at, Cost::ONE);
        match measured.wait {
            Wait::Micros(0) => granted += 1,
            Wait::Micros(wait) => at = at.plus(wait),
            Wait::Never => panic!("one always fits"),
        }
        state = match change {
            Some(change) => Some(change.update.after(state)),
            None => state,
        };
    }
    at.since(NOON)
}

/// The instant at which `count` per `period` has brought the units that all grants need beyond a full bucket of
/// `burst`.
fn exactly(count: u64, period: u64, burst: u64) -> u64 {
    u64::try_from((u128::from(GRANTS - burst) * u128::from(period)).div_ceil(u128::from(count)))
        .unwrap()
}

#[test]
fn a_million_grants_of_seven_in_three_seconds() {
    let took = obedient(token_bucket(7, 3 * SECOND, 7));
    assert_eq!(took, exactly(7, 3 * SECOND, 7));
    // The same result, calculated by hand: 999,993 thirds of seven seconds.
    assert_eq!(took, 428_568_428_572);
}

#[test]
fn a_million_grants_of_one_in_thirty_one_days() {
    let month = 31 * 86_400 * SECOND;
    let took = obedient(token_bucket(1, month, 1));
    assert_eq!(took, 999_999 * month);
}

#[test]
fn a_million_grants_of_ten_million_a_second() {
    let took = obedient(token_bucket(10_000_000, SECOND, 10));
    assert_eq!(took, 99_999);
    let took = obedient(token_bucket(10_000_000, SECOND, 64));
    assert_eq!(took, exactly(10_000_000, SECOND, 64));
}

#[test]
fn a_bucket_of_one_rounds_every_wait_up() {
    // If no unit is left over, no fraction can be kept: a wait of 428,571 3/7 is given as 428,572 each time, never as
    // less.
    let took = obedient(token_bucket(7, 3 * SECOND, 1));
    assert_eq!(took, 999_999 * 428_572);
}

#[test]
fn a_million_held_requests_go_on_a_sevenths_of_three_seconds_apart() {
    let (_, rule) = leaky_bucket((7, 3 * SECOND), 1, 20, 9 * SECOND);
    let (mut state, mut at): (Option<State>, Timestamp) = (None, NOON);
    let mut granted: u64 = 0;
    while granted < GRANTS {
        let (measured, change) = rule.check(state.as_ref(), at, Cost::ONE);
        if let Wait::Micros(wait) = measured.wait
            && wait > 0
        {
            at = at.plus(wait);
            continue;
        }
        let VerdictOutcome::Admit { delay } = rule.verdict(measured, at, Cost::ONE, true).outcome
        else {
            panic!("it is admitted");
        };
        let goes = at.plus(delay).since(NOON);
        assert_eq!(goes, (granted * 3 * SECOND).div_ceil(7), "number {granted}");
        granted += 1;
        state = change.map(|change| change.update.after(state));
    }
}

//! The wait of a request during the pause between two calls, by a clock of the test.

use super::*;
use crate::key::{KeyCase, KeyTemplate, MissingKey};
use crate::limit::rate::{Rate, Span};
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::verdict::VerdictOutcome;
use crate::limit::{Policy, Rule};
use std::num::{NonZeroU32, NonZeroU64};

/// The instant at which the answer arrives.
const ANSWERED: u64 = 2_000;
/// The pause after a call: a tenth of a part.
const PAUSE: u64 = 20_000;

fn strict() -> Arc<Limit> {
    let rate = Rate {
        count: NonZeroU64::new(1000).unwrap(),
        period: NonZeroU64::new(1_000_000).unwrap(),
    };
    let parts = SlidingWindow::new(rate, NonZeroU32::new(5).unwrap(), true);
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Shared,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    let rule = Rule::SlidingWindow(parts);
    Arc::new(Limit::new(Policy::new("strict".into(), by, rate), rule))
}

/// The wait of a request that arrives this number of microseconds after the answer, if the store has answered `full`.
fn wait_after(full: u64, later: u64) -> Wait {
    let limit = strict();
    let terms = limit.leases().expect("it is leased");
    assert_eq!(terms.pause, PAUSE);
    let check = Check::new(&limit, b"hot");
    let sent = Timestamp::from_micros(5_000_000);
    let mut held = KeyLease::new(1, &check, sent);
    held.waiting = 1;
    let units = held.order(terms, 100, sent);
    let order = Check {
        limit: &terms.asks,
        cost: Cost::new(u64::from(units)),
        ..check
    };
    let used = Span {
        whole: 900_000,
        part: 1000,
    };
    let refused = Measurement::refused(Wait::Micros(full), used);
    let noon = Timestamp::from_micros(1_790_000_000_000_000);
    let answers = Answers::measured(&[order], Decider::Redis, noon, [refused]);
    let sent_order = LeaseOrder { units, sent };
    let answered = sent.plus(ANSWERED);
    let brought = LeaseCall::of(&order, terms, sent_order, &answers, answered);
    held.called(&check, terms, sent_order, brought, answered);
    let now = answered.plus(later);
    assert!(now < held.paused, "somebody asks");
    match held.pause(now).outcome {
        VerdictOutcome::Refuse(wait) => wait,
        admitted @ VerdictOutcome::Admit { .. } => panic!("{admitted:?}"),
    }
}

#[test]
fn a_full_window_is_waited_for_and_not_the_pause_alone() {
    // No refusal is remembered while a refund is pending: the lease knows its pause independently.
    assert_eq!(wait_after(57_000, 0), Wait::Micros(57_000));
    assert_eq!(wait_after(57_000, 7_500), Wait::Micros(49_500));
    assert_eq!(wait_after(17_000, 16_000), Wait::Micros(2_000));
    assert_eq!(wait_after(3_000, 0), Wait::Micros(18_000));
    assert_eq!(wait_after(3_000, 5_000), Wait::Micros(13_000));
}

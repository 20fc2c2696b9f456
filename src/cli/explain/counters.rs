//! `explain --live`: the present counters of a request in the running gateway.

use super::explanation::{AppliedLimit, CounterState, Explanation, KeyResult, LiveVerdict};
use crate::admin::PEEK;
use crate::cli::admin_client;
use crate::limit::bucket::Bucket;
use crate::limit::concurrency::HINT;
use crate::limit::rate::Span;
use crate::limit::verdict::{VerdictOutcome, Wait};
use crate::limit::{Limit, Mode, Rule};
use crate::listen::listener::ListenAddress;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use std::io;

/// Reads the state of each limit's counter from the gateway whose admin listener is at `listen`, and notes it with the
/// limit.
///
/// # Errors
/// If there is no answer, with the reason.
pub(super) fn read_counters(
    explanation: &mut Explanation,
    listen: &ListenAddress,
) -> io::Result<()> {
    let limits = explanation.routing.iter_mut();
    let limits = limits.flat_map(|routing| &mut routing.limits);
    let (mut asked, counters): (Vec<&mut AppliedLimit>, Vec<Value>) = limits
        .filter_map(|applied| {
            let counter = counter(applied)?;
            Some((applied, counter))
        })
        .unzip();
    let answer = admin_client::post(listen, PEEK, &json!({ "counters": counters }))?;
    let states = answer["counters"].as_array();
    let states = states.ok_or_else(|| io::Error::other("its answer has no counters"))?;
    for (applied, state) in asked.iter_mut().zip(states) {
        let state = state_of(state);
        if let KeyResult::Counted(counted) = &applied.key {
            applied.live = verdict(&applied.limit, counted.cost, &state);
        }
        applied.state = Some(state);
    }
    explanation.settle();
    Ok(())
}

/// The counter in the form of a request to the admin listener. The request names a limit, so that a candidate, which
/// shares the name, cannot be requested.
fn counter(applied: &AppliedLimit) -> Option<Value> {
    let limit = &applied.limit;
    match &applied.key {
        KeyResult::Counted(counted) if limit.mode != Mode::Candidate => Some(json!({
            "limit": &*limit.name,
            "window": limit.window.as_deref(),
            "group": limit.group.as_deref(),
            "customer": applied.numbers.as_ref().map(|numbers| &*numbers.customer),
            "key": HEXLOWER.encode(&counted.raw),
            "cost": counted.cost,
        })),
        _ => None,
    }
}

/// The verdict of a counter in this state on a request of `cost`; `None` if the state is unknown.
///
/// The time until a counter equals an unused one shows how full a bucket is, and when a window ends.
fn verdict(limit: &Limit, cost: u64, state: &CounterState) -> Option<LiveVerdict> {
    let (remaining, of, reset, wait) = match *state {
        CounterState::Units {
            remaining,
            of,
            reset,
            wait,
        } => (remaining, of, reset, wait),
        // After the block the counter may let the request wait for longer.
        CounterState::Blocked { left } => {
            return Some(LiveVerdict {
                outcome: VerdictOutcome::Refuse(Wait::Micros(left)),
                is_exact: false,
                takes: 0,
            });
        }
        CounterState::Unknown | CounterState::Failed(_) => return None,
    };
    let least = remaining.max(1);
    let takes = cost.min(if limit.partial { least } else { cost });
    let fits = takes <= remaining;
    let refused_for = |wait| VerdictOutcome::Refuse(Wait::Micros(wait));
    let (outcome, is_exact) = match &limit.rule {
        _ if takes == 0 => (VerdictOutcome::Admit { delay: 0 }, true),
        _ if takes > of => (VerdictOutcome::Refuse(Wait::Never), true),
        Rule::LeakyBucket(rule) => {
            let full = overflow(&rule.bucket, takes, reset);
            let late = reset.saturating_sub(rule.bucket.latest.map_or(0, Span::ceil));
            let outcome = match full.max(late) {
                0 => VerdictOutcome::Admit {
                    delay: reset.saturating_sub(rule.free.whole),
                },
                wait => refused_for(wait),
            };
            (outcome, true)
        }
        _ if fits => (VerdictOutcome::Admit { delay: 0 }, true),
        Rule::TokenBucket(rule) => {
            let wait = overflow(&rule.bucket, takes, reset);
            (refused_for(wait.max(1)), true)
        }
        Rule::FixedWindow(_) | Rule::ClockWindow(_) => (refused_for(reset), true),
        // Only the gateway knows which units leave next.
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) => {
            (refused_for(wait.unwrap_or(reset)), wait.is_some())
        }
        Rule::Concurrency(_) => (refused_for(HINT), false),
    };
    let takes = match outcome {
        VerdictOutcome::Admit { .. } => takes,
        VerdictOutcome::Refuse(_) => 0,
    };
    Some(LiveVerdict {
        outcome,
        is_exact,
        takes,
    })
}

/// The microseconds by which `units` more would overfill a bucket that is empty after `reset`.
fn overflow(bucket: &Bucket, units: u64, reset: u64) -> u64 {
    let interval = bucket.interval;
    let next = interval.add(Span::micros(reset), interval.times(units));
    let over = interval.sub(next, bucket.capacity);
    over.map_or(0, |over| over.whole)
}

fn state_of(answer: &Value) -> CounterState {
    let number = |name: &str| answer[name].as_u64();
    if let Some(left) = number("blocked_us") {
        return CounterState::Blocked { left };
    }
    match (number("remaining"), number("of"), number("reset_us")) {
        (Some(remaining), Some(of), Some(reset)) => CounterState::Units {
            remaining,
            of,
            reset,
            wait: number("wait_us"),
        },
        _ if answer["known"] == false => CounterState::Unknown,
        _ => CounterState::Failed(answer["error"].as_str().unwrap_or("no reason").to_owned()),
    }
}

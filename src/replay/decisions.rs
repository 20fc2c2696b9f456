//! A request's decision as one line of JSON, for `--decisions`: whole numbers, in microseconds.

use super::policy_side::{PolicySide, ReplayOutcome};
use crate::clock::Timestamp;
use crate::limit::Limit;
use crate::limit::verdict::{Verdict, VerdictOutcome, Wait};
use crate::proxy::error;
use crate::snapshot::Service;
use serde::Serialize;
use std::io::{self, Write};

/// The line of one request.
#[derive(Serialize)]
struct DecisionLine<'a> {
    line: u64,
    ts_us: u64,
    route: Option<&'a str>,
    decision: &'static str,
    wait_us: u64,
    limit: Option<&'a str>,
    /// The rate that refuses; absent for a limit without a list of rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<&'a str>,
    retry_after_us: Option<u64>,
    granted: u64,
    verdicts: Vec<AnswerLine<'a>>,
    /// The answers of limits that do not decide; absent for a request without such limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shadow: Vec<AnswerLine<'a>>,
}

/// The answer of one limit: admitted, delayed with the wait, or refused with the time until a retry.
#[derive(Serialize)]
struct AnswerLine<'a> {
    limit: &'a str,
    /// The rate and the group that the numbers belong to; absent for a limit without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    /// The mode of a limit that does not decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    key: Option<&'a str>,
    admitted: bool,
    wait_us: u64,
    retry_after_us: Option<u64>,
    /// What is left of the block of the key; absent for a key that is not blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_us: Option<u64>,
    remaining: Option<u64>,
    reset_us: Option<u64>,
}

/// Writes the line of one request.
pub(super) fn write(
    out: &mut dyn Write,
    number: u64,
    at: Timestamp,
    side: &PolicySide,
    outcome: &ReplayOutcome,
) -> io::Result<()> {
    let (decision, wait_us, limit, window, retry_after_us) = match outcome {
        ReplayOutcome::Admit => ("admit", 0, None, None, None),
        ReplayOutcome::Delay { wait, limit } => ("delay", *wait, Some(limit), None, None),
        ReplayOutcome::Refuse {
            wait,
            limit,
            window,
        } => ("refuse", 0, Some(limit), window.as_deref(), *wait),
        ReplayOutcome::TooManyHeld => ("refuse", 0, None, None, Some(error::LATER)),
        ReplayOutcome::NoRoute => ("no_route", 0, None, None, None),
    };
    let decided = side.decided().into_iter();
    let verdicts = decided.flat_map(|decided| &decided.decision.verdicts);
    let verdicts = verdicts.zip(side.keys()).enumerate();
    let verdicts = verdicts.map(|(index, (verdict, (limit, key)))| AnswerLine {
        blocked_us: side
            .decided()
            .and_then(|decided| decided.left_of_block(index)),
        ..AnswerLine::of(limit, Some(key), verdict.outcome, Some(verdict))
    });
    let shadow = side.shadows().map(|shadow| AnswerLine {
        mode: Some(shadow.limit.mode.as_str()),
        ..AnswerLine::of(
            shadow.limit,
            shadow.key,
            shadow.outcome,
            shadow.verdict.as_ref(),
        )
    });
    let line = DecisionLine {
        line: number,
        ts_us: at.micros(),
        route: side.service().and_then(Service::route),
        decision,
        wait_us,
        limit: limit.map(|limit| &**limit),
        window,
        retry_after_us,
        granted: granted(side, outcome),
        verdicts: verdicts.collect(),
        shadow: shadow.collect(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

impl<'a> AnswerLine<'a> {
    fn of(
        limit: &'a Limit,
        key: Option<&'a str>,
        outcome: VerdictOutcome,
        verdict: Option<&Verdict>,
    ) -> Self {
        let (admitted, wait_us, retry_after_us) = match outcome {
            VerdictOutcome::Admit { delay } => (true, delay, None),
            VerdictOutcome::Refuse(Wait::Micros(retry_after)) => (false, 0, Some(retry_after)),
            VerdictOutcome::Refuse(Wait::Never) => (false, 0, None),
        };
        Self {
            limit: &limit.name,
            window: limit.window.as_deref(),
            group: limit.group.as_deref(),
            mode: None,
            key,
            admitted,
            wait_us,
            retry_after_us,
            blocked_us: None,
            remaining: verdict.map(|verdict| verdict.remaining),
            reset_us: verdict.map(|verdict| verdict.reset),
        }
    }
}

/// The number of units that the request was granted.
fn granted(side: &PolicySide, outcome: &ReplayOutcome) -> u64 {
    match outcome {
        ReplayOutcome::Refuse { .. } | ReplayOutcome::TooManyHeld | ReplayOutcome::NoRoute => 0,
        ReplayOutcome::Admit | ReplayOutcome::Delay { .. } => side.granted(),
    }
}

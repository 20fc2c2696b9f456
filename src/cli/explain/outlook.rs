//! How a request ends, as far as that can be said before it is sent.

use super::request::{AppliedLimit, Explanation, KeyResult};
use crate::clock;
use crate::config::describe;
use crate::key::Caller;
use crate::limit::verdict::{Decision, Ruling, Verdict, VerdictOutcome, Wait};
use crate::limit::{Limit, Rule};
use crate::proxy::error::ProxyError;
use crate::proxy::static_reply;
use crate::snapshot::Service;
use http::uri::PathAndQuery;
use http::{Uri, header};

/// How it ends.
#[derive(Debug)]
pub(super) enum ExpectedAnswer {
    /// By the gateway itself, whatever has been counted.
    Itself(u16, String),
    /// By the upstream, where no limit refuses.
    Upstream(LimitOutlook),
    /// Likewise by the route: its status, and what it says.
    Route(u16, String, LimitOutlook),
    /// By the gateway, where no limit refuses that can be asked: its status, and why.
    Lacking(u16, String, LimitOutlook),
}

/// What limits have to say to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitOutlook {
    /// None applies.
    None,
    /// Their counters were not looked at.
    Unasked,
    /// All have room for it now, and hold it for so many microseconds.
    Room(u64),
}

/// How the request of `caller`, forwarded as `onward`, ends under `service`; `lack` is what it is turned away for.
pub(super) fn answer(
    service: &Service,
    (caller, onward): (&Caller<'_>, &PathAndQuery),
    limits: &[AppliedLimit],
    lack: Option<&ProxyError>,
) -> ExpectedAnswer {
    let (held, verdicts): (Vec<&AppliedLimit>, smallvec::SmallVec<_>) = counted(limits).unzip();
    if let Ruling::Refuse { by, wait } = Decision::of(clock::wall(), verdicts).ruling
        && let Some(held) = held.get(by)
    {
        return refused(&ProxyError::limited(&held.limit, wait));
    }
    let limits = if held.is_empty() {
        LimitOutlook::None
    } else {
        LimitOutlook::Unasked
    };
    if let Some(lack) = lack {
        return ExpectedAnswer::Lacking(lack.status().as_u16(), lack.to_string(), limits);
    }
    if service.upstream.is_some() {
        return ExpectedAnswer::Upstream(limits);
    }
    let Some(own) = &service.own else {
        return refused(&ProxyError::NoRoute);
    };
    let answer = static_reply::answer(own, caller.method, &Uri::from(onward.clone()));
    let there = answer.headers().get(header::LOCATION);
    let says = match there {
        Some(there) => format!(
            "the route redirects to {}",
            String::from_utf8_lossy(there.as_bytes())
        ),
        None => "the route answers itself".to_owned(),
    };
    ExpectedAnswer::Route(answer.status().as_u16(), says, limits)
}

/// The limits that decide, and what a counter of each says that nobody has used.
fn counted(limits: &[AppliedLimit]) -> impl Iterator<Item = (&AppliedLimit, Verdict)> {
    limits.iter().filter_map(|held| match &held.key {
        KeyResult::Counted { fresh, .. } if held.limit.mode.decides() => Some((held, *fresh)),
        KeyResult::Counted { .. }
        | KeyResult::Skipped
        | KeyResult::Exempt(_)
        | KeyResult::Absent(_)
        | KeyResult::Unknown(_)
        | KeyResult::Ambiguous(_)
        | KeyResult::Unbelieved(_)
        | KeyResult::LeftOut(_) => None,
    })
}

pub(super) fn refused(error: &ProxyError) -> ExpectedAnswer {
    ExpectedAnswer::Itself(error.status().as_u16(), error.to_string())
}

impl Explanation {
    /// Takes in what the running gateway has said of the counters: the answer, and what each would be charged.
    pub(super) fn settle(&mut self) {
        let Some(routing) = &mut self.routing else {
            return;
        };
        let mut all_seen = true;
        let seen = counted(&routing.limits).map(|(held, fresh)| match &held.now {
            Some(now) => Verdict {
                outcome: now.outcome,
                ..fresh
            },
            None => {
                all_seen = false;
                fresh
            }
        });
        let ruling = Decision::of(clock::wall(), seen.collect()).ruling;
        let (ExpectedAnswer::Upstream(limits)
        | ExpectedAnswer::Route(_, _, limits)
        | ExpectedAnswer::Lacking(_, _, limits)) = &mut self.answer
        else {
            routing.charge_nothing();
            return;
        };
        match ruling {
            Ruling::Refuse { by, wait } => {
                let named = counted(&routing.limits).nth(by);
                if let Some((held, _)) = named {
                    self.answer = refused(&ProxyError::limited(&held.limit, wait));
                }
                routing.charge_nothing();
            }
            Ruling::Admit { delay } if all_seen && *limits == LimitOutlook::Unasked => {
                *limits = LimitOutlook::Room(delay);
            }
            Ruling::Admit { .. } => {}
        }
    }
}

impl super::request::Routing {
    /// A refused request is charged by none of the limits that decide.
    fn charge_nothing(&mut self) {
        let deciding = self.limits.iter_mut();
        for held in deciding.filter(|held| held.limit.mode.decides()) {
            if let Some(now) = &mut held.now {
                now.takes = 0;
            }
        }
    }
}

impl AppliedLimit {
    /// The status it refuses with.
    pub(super) fn status(&self) -> u16 {
        let limited = ProxyError::limited(&self.limit, Wait::Micros(1));
        limited.status().as_u16()
    }

    /// What a counter says that nobody has used, and what happens when this one is used up.
    pub(super) fn outlook(&self, fresh: &Verdict) -> String {
        let status = self.status();
        if !self.limit.mode.decides() {
            return match fresh.outcome {
                VerdictOutcome::Refuse(_) => {
                    "would refuse it even unused; it is only counted".into()
                }
                VerdictOutcome::Admit { .. } => format!(
                    "unused it would admit this and have {} left; used up, it is only counted, and refuses nobody",
                    fresh.remaining
                ),
            };
        }
        match fresh.outcome {
            VerdictOutcome::Refuse(Wait::Micros(_)) => {
                format!("refuses it even while nobody has been counted: {status}")
            }
            VerdictOutcome::Refuse(_) => {
                format!("can never admit that much: always {status}, without a time to come back")
            }
            VerdictOutcome::Admit { delay } => {
                let now = match delay {
                    0 => format!("unused it admits this and has {} left", fresh.remaining),
                    delay => format!(
                        "even unused it holds this for {}",
                        describe::span_as_written(delay)
                    ),
                };
                format!("{now}; used up, it {}", beyond(&self.limit, status))
            }
        }
    }
}

fn beyond(limit: &Limit, status: u16) -> String {
    match &limit.rule {
        Rule::LeakyBucket(rule) if rule.queue > 0 => format!(
            "holds the request up to {}, and refuses with {status} beyond that",
            describe::rounded_up(rule.longest_wait())
        ),
        _ if limit.partial => {
            format!("grants what is left, and with nothing left refuses with {status}")
        }
        _ => format!("refuses with {status}"),
    }
}

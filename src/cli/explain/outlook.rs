//! The end of a request, in so far as it can be predicted.

use super::explanation::{
    AppliedLimit, EarlyCounters, ExpectedAnswer, Explanation, KeyFault, KeyResult, LimitOutlook,
    OwnAnswer, Routing, Unknown,
};
use crate::admission::RefusalCause;
use crate::clock;
use crate::config::describe;
use crate::key::Caller;
use crate::limit::verdict::{Decision, Ruling, Verdict, VerdictOutcome, Wait};
use crate::limit::{Limit, Rule, Scope};
use crate::proxy::answer::static_reply;
use crate::proxy::error::ProxyError;
use crate::proxy::server::forwarded::hops;
use crate::snapshot::Service;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Response, Uri, header};

/// The end of a request of `caller` under `service`, by its forwarded target, and the requirements that it does not
/// meet.
pub(super) fn answer(
    service: &Service,
    caller: &Caller<'_>,
    forwarded_target: &PathAndQuery,
    lack: Option<&RefusalCause>,
    limits: &[AppliedLimit],
) -> ExpectedAnswer {
    let deciding = || limits.iter().filter(|limit| limit.deciding().is_some());
    let is_unread = matches!(lack, Some(RefusalCause::KeysUnread));
    let certain = || deciding().filter(|applied| !is_unread || !applied.limit.asks_token());
    let fresh = certain().filter_map(AppliedLimit::deciding);
    let verdicts = fresh.map(|counted| counted.fresh).collect();
    if let Ruling::Refuse { by, wait } = Decision::of(clock::wall(), verdicts).ruling
        && let Some(refusing) = certain().nth(by)
    {
        return ExpectedAnswer::refused(&ProxyError::limited(&refusing.limit, wait));
    }
    let limits = Some(outlook(limits, lack));
    if is_unread {
        return ExpectedAnswer::unknown(limits);
    }
    if let Some(lack) = lack {
        return lacking(lack, limits);
    }
    if service.upstream.is_some() {
        if hops::is_loop(caller.fields) {
            return ExpectedAnswer {
                limits,
                ..ExpectedAnswer::refused(&ProxyError::Loop)
            };
        }
        return ExpectedAnswer {
            gateway_answer: None,
            limits,
            is_unknown: false,
        };
    }
    let Some(static_reply) = &service.static_reply else {
        // Limits that apply to every route are checked first.
        let limits = limits.filter(|limits| *limits != LimitOutlook::None);
        return ExpectedAnswer {
            limits,
            ..ExpectedAnswer::refused(&ProxyError::NoRoute)
        };
    };
    let uri = Uri::from(forwarded_target.clone());
    let answer = static_reply::answer(static_reply, caller.method, &uri);
    ExpectedAnswer {
        limits,
        ..ExpectedAnswer::gateway(answer.status().as_u16(), static_reason(&answer))
    }
}

/// The answer of a route that has no upstream, in words.
fn static_reason(answer: &Response<Bytes>) -> String {
    match answer.headers().get(header::LOCATION) {
        Some(there) => {
            let there = String::from_utf8_lossy(there.as_bytes());
            format!("the route redirects to {there}")
        }
        None => "the route answers itself".to_owned(),
    }
}

/// Do deciding limits count the request? One whose key or tier is unknown may count a request that another limit
/// refuses.
fn outlook(limits: &[AppliedLimit], lack: Option<&RefusalCause>) -> LimitOutlook {
    let is_known = lack.is_some_and(|lack| !matches!(lack, RefusalCause::KeysUnread));
    let counts =
        |limit: &&AppliedLimit| limit.deciding().is_some() || is_known && limit.is_unread();
    match limits.iter().find(counts) {
        None => LimitOutlook::None,
        Some(_) => LimitOutlook::Unasked,
    }
}

/// The end of a request that does not meet a requirement of one of its limits.
fn lacking(lack: &RefusalCause, limits: Option<LimitOutlook>) -> ExpectedAnswer {
    let lack = ProxyError::from(lack.clone());
    let gateway_answer = Some(OwnAnswer {
        status: lack.status().as_u16(),
        reason: lack.to_string(),
        is_lack: true,
    });
    ExpectedAnswer {
        gateway_answer,
        limits,
        is_unknown: false,
    }
}

impl Explanation {
    /// Takes over the live verdicts: the answer, and the charge of each limit.
    pub(super) fn settle(&mut self) {
        let Some(routing) = &mut self.routing else {
            return;
        };
        let is_early = routing.early.is_some_and(|counters| {
            let mut limits = routing.limits.iter();
            limits.any(|applied| is_refused_early(applied, counters))
        });
        // With unread keys the verdicts of limits by the token are not known.
        let is_unread = self.answer.is_unknown;
        let deciding = || {
            let limits = routing.limits.iter();
            let limits =
                limits.filter(|applied| !(is_early || is_unread) || !applied.limit.asks_token());
            limits.filter_map(|limit| Some((limit, limit.deciding()?.fresh)))
        };
        let is_live = deciding().all(|(limit, _)| limit.live.is_some())
            && !routing.limits.iter().any(AppliedLimit::is_unread);
        let verdicts = deciding().map(|(limit, fresh)| match &limit.live {
            Some(live) => Verdict {
                outcome: live.outcome,
                ..fresh
            },
            None => fresh,
        });
        let ruling = Decision::of(clock::wall(), verdicts.collect()).ruling;
        let Some(limits) = &mut self.answer.limits else {
            return routing.charge_nothing();
        };
        match ruling {
            Ruling::Refuse { by, wait } => {
                if let Some((limit, _)) = deciding().nth(by) {
                    self.answer = ExpectedAnswer::refused(&ProxyError::limited(&limit.limit, wait));
                    // Nothing depends on the keys any more.
                    self.unknown.retain(|fact| *fact != Unknown::KeysByUrl);
                }
                routing.charge_nothing();
            }
            Ruling::Admit { delay }
                if is_live && !is_unread && *limits == LimitOutlook::Unasked =>
            {
                *limits = LimitOutlook::Room(delay);
            }
            Ruling::Admit { .. } => {}
        }
    }
}

/// Does the limit refuse, as its counter stands, before a token is verified?
fn is_refused_early(applied: &AppliedLimit, counters: EarlyCounters) -> bool {
    let outcome = applied.live.map(|live| live.outcome);
    let is_known = counters == EarlyCounters::All || applied.limit.scope == Scope::Gateway;
    is_known
        && matches!(outcome, Some(VerdictOutcome::Refuse(_)))
        && applied.deciding().is_some()
        && !applied.limit.asks_token()
}

impl Routing {
    /// No deciding limit charges a refused request.
    fn charge_nothing(&mut self) {
        for applied in &mut self.limits {
            if let Some(live) = &mut applied.live
                && applied.limit.mode.decides()
            {
                live.takes = 0;
            }
        }
    }
}

impl AppliedLimit {
    /// Does the limit decide, and depend on a token that cannot be verified here?
    fn is_unread(&self) -> bool {
        let is_unread = matches!(self.key, KeyResult::Faulty(KeyFault::KeysUnread, _));
        is_unread && self.limit.mode.decides()
    }

    /// The status of its refusals.
    pub(super) fn status(&self) -> u16 {
        let limited = ProxyError::limited(&self.limit, Wait::Micros(1));
        limited.status().as_u16()
    }

    /// The verdict of an unused counter, and the verdict of an exhausted one.
    pub(super) fn outlook(&self, fresh: &Verdict) -> String {
        let status = self.status();
        let left = fresh.remaining;
        match fresh.outcome {
            VerdictOutcome::Refuse(_) if !self.limit.mode.decides() => {
                "would refuse the request even on an unused counter, but lets it pass".into()
            }
            VerdictOutcome::Admit { .. } if !self.limit.mode.decides() => format!(
                "on an unused counter it would admit this request and have {left} left; on a used-up one it would refuse, but lets the request pass"
            ),
            VerdictOutcome::Refuse(Wait::Micros(_)) => {
                format!("refuses the request even on an unused counter: {status}")
            }
            VerdictOutcome::Refuse(_) => {
                format!("can never admit this cost: always {status}, without a time to come back")
            }
            VerdictOutcome::Admit { delay } => {
                let now = match delay {
                    0 => format!("on an unused counter it admits this request and has {left} left"),
                    delay => format!(
                        "even on an unused counter it holds this request for {}",
                        describe::show_span(delay)
                    ),
                };
                format!("{now}; on a used-up one it {}", beyond(&self.limit, status))
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

//! The availability of an upstream's servers, and its changes: by consecutive failures, probes, time.
//!
//! Each change is one line in the log, with its cause.

use super::upstream_state::{Member, RequestSlot, UpstreamState};
use crate::clock;
use crate::upstream::Upstream;
use crate::upstream::rules::balance_rule::NoneLeft;
use crate::upstream::rules::ejection::ServerFailure;
use crate::upstream::rules::probe_rule::ProbeChange;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Steps in which the share of a returning server grows.
const RAMP_STEPS: u32 = 20;

impl Member {
    /// Is the server available: not failed by probes, not ejected, and with a weight above zero?
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.share > 0 && self.state.health.is_good()
    }

    /// The most concurrent requests of the server, if there is a bound. A connection of HTTP/1.1 carries one.
    #[must_use]
    pub fn most_requests(&self) -> Option<u32> {
        self.server.most_requests()
    }
}

impl UpstreamState {
    /// The members that requests may go to now: the available ones, or all if none is and the file lets all be tried.
    pub fn usable<'a>(&self, members: &'a [Member]) -> impl Iterator<Item = &'a Member> + use<'a> {
        let is_any = members.iter().any(Member::is_available);
        let tries_all = !is_any && !self.refuses.load(Ordering::Relaxed);
        members
            .iter()
            .filter(move |member| tries_all || member.is_available())
    }

    /// Notes that `none_left` of the file is `rule`.
    pub fn refuse_when_none_left(&self, rule: NoneLeft) {
        self.refuses
            .store(rule == NoneLeft::Refuse, Ordering::Relaxed);
        self.changed();
    }
}

impl Upstream {
    /// Notes that a request has failed at `member`. The server is ejected if that is one failure too many.
    #[cold]
    pub fn failed(&self, member: &Member, failure: &ServerFailure<'_>) {
        let Some(rule) = &self.rules.eject else {
            return;
        };
        let (now, ejection) = (clock::uptime(), &member.state.health.ejection);
        let are_others = |client| self.state.clients.are_others(client, now);
        let Some(row) = ejection.failed(rule, failure, are_others, now) else {
            return;
        };
        let state = &self.state;
        let one_after_another = state
            .changing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let members = state.members();
        let weighty = || members.iter().filter(|one| one.share > 0);
        let ejected = weighty().filter(|one| one.state.health.ejection.is_ejected());
        let available = weighty().filter(|one| one.is_available()).count();
        let may = rule.allows(weighty().count(), ejected.count(), available);
        if !may || !member.is_available() {
            return;
        }
        let lasts = ejection.eject(rule, now);
        member.state.health.ejected();
        state.changed();
        drop(one_after_another);
        let (name, server) = (&self.name, &member.state.shown);
        tracing::warn!(
            "upstream {name}: {server} gets no requests for {lasts:?}: {} in a row failed{}, the last with: {}",
            counted(row.failures, "request"),
            if row.is_of_one && row.failures > 1 {
                ", all of one client"
            } else {
                ""
            },
            failure.why
        );
        self.note_none_left();
    }

    /// Notes that a probe of `member` was good, or failed for the cause in `outcome`.
    pub fn probed(&self, member: &Member, outcome: Result<(), &str>) {
        let Some(rule) = &self.rules.health else {
            return;
        };
        let health = &member.state.health;
        let (name, server) = (&self.name, &member.state.shown);
        match (health.probed(rule, outcome.is_ok()), outcome) {
            (Some(ProbeChange::Falls), Err(why)) => {
                self.state.changed();
                tracing::warn!(
                    "upstream {name}: {server} gets no requests: its probes failed, the last with: {why}"
                );
                self.note_none_left();
            }
            (Some(ProbeChange::Rises), _) => {
                // The results of requests count from the end of the good time.
                let now = clock::uptime();
                health.ejection.readmit(now);
                health.is_back(now);
                self.state.changed();
                let rise = counted(rule.rise, "probe");
                tracing::info!(
                    "upstream {name}: {server} gets requests again: {rise} in a row succeeded"
                );
                self.note_none_left();
            }
            (Some(ProbeChange::Steady), _) if health.ejection.is_ejected() => {
                self.readmit(member, "its probes are good");
            }
            _ => {}
        }
    }

    /// Applies changes that depend on time alone: ejections that are over, shares that grow, requests that wait for a
    /// returned server. Called several times a second.
    pub fn tick(&self) {
        let (now, state) = (clock::uptime(), &self.state);
        state.seen.store(now, Ordering::Relaxed);
        let members = state.members();
        let mut is_ramping = false;
        for member in members.iter() {
            let health = &member.state.health;
            if health.ejection.until().is_some_and(|until| until <= now) {
                self.readmit(member, "the time is over");
            }
            if self.rules.health.is_none() && health.unprobed() {
                state.changed();
            }
            let ramp = self.rules.ramp;
            is_ramping |= ramp.is_some_and(|ramp| health.ramped(ramp, now).is_some());
        }
        let step = self
            .rules
            .ramp
            .map_or(Duration::ZERO, |ramp| ramp / RAMP_STEPS);
        let step = clock::micros(step);
        let ramped = state.ramped.load(Ordering::Relaxed);
        if ramped != 0 && (!is_ramping || now >= ramped.saturating_add(step)) {
            state.ramped.store(0, Ordering::Relaxed);
            state.changed();
        }
        if is_ramping && state.ramped.load(Ordering::Relaxed) == 0 {
            state.ramped.store(now, Ordering::Relaxed);
        }
        state.retries.tick(now);
        state.queue.serve(|| RequestSlot::any(state));
        self.note_none_left();
    }

    fn readmit(&self, member: &Member, why: &str) {
        let now = clock::uptime();
        let health = &member.state.health;
        if health.ejection.readmit(now) {
            health.is_back(now);
            self.state.changed();
            let (name, server) = (&self.name, &member.state.shown);
            tracing::info!("upstream {name}: {server} gets requests again: {why}");
            self.note_none_left();
        }
    }

    /// Logs when the last server becomes unavailable, and when one is back.
    fn note_none_left(&self) {
        let members = self.state.members();
        let is_none = !members.is_empty() && !members.iter().any(Member::is_available);
        if self.state.none_left.swap(is_none, Ordering::Relaxed) == is_none {
            return;
        }
        let name = &self.name;
        match (is_none, self.rules.none_left) {
            (true, NoneLeft::TryAll) => {
                tracing::warn!("upstream {name}: no server is available; all are tried anyway");
            }
            (true, NoneLeft::Refuse) => {
                tracing::warn!("upstream {name}: no server is available; requests get 503");
            }
            (false, _) => tracing::info!("upstream {name}: a server is available again"),
        }
    }
}

fn counted(number: u32, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    }
}

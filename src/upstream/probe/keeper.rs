//! Periodic work for upstreams on the control runtime: servers are probed, ejections end, shares grow, states are
//! shown. Each gateway has one keeper; workers get the results from the states.

use crate::clock;
use crate::telemetry::metrics::{Metrics, ProbeResult, ServerReading};
use crate::upstream::rules::probe_rule::ProbeRule;
use crate::upstream::state::server_state::ServerState;
use crate::upstream::state::upstream_state::Member;
use crate::upstream::{Upstream, probe};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The interval of the keeper.
const TICK: Duration = Duration::from_millis(50);
/// The most concurrent probes.
const MOST_PROBES: usize = 256;

/// The upstreams that are kept.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Vec<Arc<Upstream>>>);

impl Kept {
    /// Takes over the upstreams of a file.
    pub fn install(&self, upstreams: &[Arc<Upstream>]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = upstreams.to_vec();
    }

    fn all(&self) -> Vec<Arc<Upstream>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Keeps the upstreams of `kept` for ever.
pub async fn keep(kept: Arc<Kept>, metrics: Arc<Metrics>) {
    let mut keeper = Keeper {
        metrics,
        schedule: HashMap::new(),
        shown: 0,
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        keeper.look(&kept.all());
    }
}

/// The times of the servers' next probes, by their states.
type Schedule = HashMap<usize, NextProbe>;

#[derive(Debug)]
struct NextProbe {
    /// Kept alive, so that no other state has its address.
    _state: Arc<ServerState>,
    due: Instant,
    is_first: bool,
    is_under_way: Arc<AtomicBool>,
    is_used: bool,
}

struct Keeper {
    metrics: Arc<Metrics>,
    schedule: Schedule,
    /// The sum of the generations in the metrics.
    shown: u64,
}

impl Keeper {
    fn look(&mut self, upstreams: &[Arc<Upstream>]) {
        for probe in self.schedule.values_mut() {
            probe.is_used = false;
        }
        for upstream in upstreams {
            upstream.tick();
            if let Some(rule) = &upstream.rules.health {
                self.probe(upstream, rule);
            }
        }
        self.schedule.retain(|_, probe| probe.is_used);
        self.show(upstreams);
    }

    /// Begins the due probes of an upstream.
    fn probe(&mut self, upstream: &Arc<Upstream>, rule: &ProbeRule) {
        let now = clock::now();
        let members = upstream.state.members();
        let all = u32::try_from(members.len()).unwrap_or(u32::MAX).max(1);
        let under_way = |next: &&NextProbe| next.is_under_way.load(Ordering::Relaxed);
        let mut room = MOST_PROBES.saturating_sub(self.schedule.values().filter(under_way).count());
        for (number, member) in (0_u32..).zip(members.iter()) {
            let key = Arc::as_ptr(&member.state).addr();
            let next = self.schedule.entry(key).or_insert_with(|| NextProbe {
                _state: Arc::clone(&member.state),
                due: now,
                is_first: true,
                is_under_way: Arc::default(),
                is_used: true,
            });
            next.is_used = true;
            if next.due > now || room == 0 || next.is_under_way.swap(true, Ordering::Relaxed) {
                continue;
            }
            room -= 1;
            // The first probes are sent at once. The second ones are spread, so that later ones are not simultaneous.
            let pause = if std::mem::take(&mut next.is_first) {
                rule.interval / 2 + rule.interval / 2 * number / all
            } else {
                rule.interval
            };
            next.due = now + jittered(pause);
            tokio::spawn(
                Probing {
                    upstream: Arc::clone(upstream),
                    member: member.clone(),
                    metrics: Arc::clone(&self.metrics),
                    is_under_way: Arc::clone(&next.is_under_way),
                }
                .run(),
            );
        }
    }

    /// Shows the states of all servers in the metrics, if they have changed.
    fn show(&mut self, upstreams: &[Arc<Upstream>]) {
        for upstream in upstreams {
            for member in upstream.state.members().iter() {
                for _ in 0..member.state.health.take_ejections() {
                    self.metrics.ejected(&upstream.name, &member.state.shown);
                }
            }
        }
        let many = upstreams.len() as u64;
        let generations = upstreams.iter().map(|one| one.state.generation());
        let sum = generations.fold(many, u64::wrapping_add).wrapping_add(1);
        if std::mem::replace(&mut self.shown, sum) == sum {
            return;
        }
        let readings = upstreams.iter().flat_map(|upstream| {
            let members = upstream.state.members();
            let each = members.iter().map(|member| ServerReading {
                upstream: upstream.name.to_string(),
                server: member.state.shown.to_string(),
                state: if member.share == 0 {
                    0
                } else {
                    member.state.health.word().number()
                },
            });
            each.collect::<Vec<_>>()
        });
        self.metrics.servers(readings.collect());
    }
}

/// A running probe.
struct Probing {
    upstream: Arc<Upstream>,
    member: Member,
    metrics: Arc<Metrics>,
    is_under_way: Arc<AtomicBool>,
}

impl Probing {
    async fn run(self) {
        let Some(rule) = &self.upstream.rules.health else {
            return;
        };
        let outcome = probe::ask(&self.upstream, &self.member, rule).await;
        let result = if outcome.is_ok() {
            ProbeResult::Good
        } else {
            ProbeResult::Bad
        };
        let (upstream, server) = (&self.upstream.name, &self.member.state.shown);
        self.metrics.probed(upstream, server, result);
        let outcome = match &outcome {
            Ok(()) => Ok(()),
            Err(why) => Err(why.as_str()),
        };
        self.upstream.probed(&self.member, outcome);
        self.is_under_way.store(false, Ordering::Relaxed);
    }
}

/// `time`, varied by up to a tenth.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * fastrand::f64())
}

//! Calls that take several permits of one busy key at once. A separate task makes each call, since the requests that
//! wait for it may leave.

use super::SharedStore;
use crate::clock;
use crate::limit::rate::Cost;
use crate::limit::{LeaseTerms, Limit};
use crate::store::answers::Answers;
use crate::store::check::{Check, Intent};
use crate::store::decider::Decider;
use crate::store::lease::{LeaseCall, LeaseStep};
use crate::store::refusal_cache::CallTimes;
use crate::store::reservation::{Amendment, Reservation};
use crate::telemetry::metrics::Permits;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The most unsuccessful waits of one request, while other requests take the permits, before the request makes its own
/// call.
const PATIENCE: usize = 4;

/// The outcome of the search for a permit.
pub(super) enum LeaseOutcome {
    /// The request is decided.
    Decided(Box<Answers>),
    /// The request makes its own call: by this instant, if it has waited for calls of others.
    Alone(Option<Instant>),
}

impl SharedStore {
    /// Answers for a single limit by an available permit, or by a permit of the call that all waiting requests share.
    pub(super) async fn lease(&self, check: &Check<'_>) -> LeaseOutcome {
        let leases = &self.cache.leases;
        leases.rises(check);
        let (mut waited, mut until) = (None, None);
        for _ in 0..PATIENCE {
            if let Some(refusal) = self.remembered(&[*check]) {
                return LeaseOutcome::Decided(refusal);
            }
            let (answered, turn) = match leases.step(check, waited) {
                LeaseStep::Decided(answer) => {
                    return LeaseOutcome::Decided(Box::new(Answers {
                        at: answer.at,
                        by: answer.by,
                        each: smallvec![answer],
                        outage: None,
                    }));
                }
                LeaseStep::Alone => return LeaseOutcome::Alone(until),
                LeaseStep::Wait(answered, turn) => (answered, turn),
                LeaseStep::Call(answered, turn) => {
                    self.spawn_lease_call(check);
                    (answered, turn)
                }
            };
            // The waits and the following call have one deadline.
            let deadline = *until.get_or_insert_with(|| clock::now() + self.redis.timeout());
            if timeout_at(deadline, answered.notified()).await.is_err() {
                break;
            }
            waited = Some(turn);
        }
        LeaseOutcome::Alone(until)
    }

    /// Starts a task that makes the call for `check`.
    pub(super) fn spawn_lease_call(&self, check: &Check<'_>) {
        let store = self.clone();
        let (limit, key) = (Arc::clone(check.limit), SmallVec::from(check.key));
        tokio::task::spawn_local(async move { store.call_for_lease(&limit, key).await });
    }

    /// Makes one call for all waiting requests, with some permits for further requests that are expected soon.
    async fn call_for_lease(&self, limit: &Arc<Limit>, key: SmallVec<[u8; 16]>) {
        let leases = &self.cache.leases;
        let check = Check::new(limit, &key);
        let Some(terms) = limit.leases() else { return };
        let Some(order) = leases.order(&check, terms) else {
            return;
        };
        if order.units == 0 {
            leases.called(&check, terms, order, None, order.sent);
            return;
        }
        let asks = Check {
            limit: &terms.asks,
            cost: Cost::new(u64::from(order.units)),
            ..check
        };
        let answer = self.redis.measure(&[asks], Intent::Charge).await;
        let call = CallTimes {
            sent: order.sent,
            answered: self.cache.clock.now(),
        };
        self.count_call(&answer, call);
        let brought = answer.ok().and_then(|answers| {
            self.remember(&[check], &answers, call);
            LeaseCall::of(&asks, terms, order, &answers, call.answered)
        });
        let until = leases.called(&check, terms, order, brought, call.answered);
        let Some(brought) = brought else { return };
        let charged = u64::from(brought.charged);
        self.metrics.permits(Permits::Taken, charged);
        if terms.give_back() {
            let lasting = until.since(self.cache.clock.now());
            tokio::time::sleep(Duration::from_micros(lasting)).await;
            self.return_unused(&check, brought);
            // A request that held a permit of the call at the first refund has been decided by now.
            tokio::time::sleep(self.cache.longest()).await;
            self.return_unused(&check, brought);
        }
    }

    /// Refunds the unused units of a call.
    fn return_unused(&self, check: &Check<'_>, call: LeaseCall) {
        let Some(units) = self.cache.leases.unused(check, call) else {
            return;
        };
        self.metrics.permits(Permits::Returned, u64::from(units));
        let unused = Reservation {
            limit: Arc::clone(check.limit),
            key: Box::from(check.key),
            ticket: call.ticket(check.limit, units),
            by: Decider::Redis,
            at: call.charged_at(),
            turn: Duration::ZERO,
        };
        self.amend(&unused, Amendment::Refund);
    }

    /// Refunds all unused units that can be given back.
    pub(super) fn end_leases(&self) {
        for (limit, key, call) in self.cache.leases.last_calls() {
            if limit.leases().is_some_and(LeaseTerms::give_back) {
                self.return_unused(&Check::new(&limit, &key), call);
            }
        }
    }
}

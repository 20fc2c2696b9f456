//! Refusals before a token is verified, where the token decides which route takes the request.
//!
//! A forged token would else cost a signature, however often limits have refused its client. So the
//! limits are looked at that hold on every route that may take the request. Where one of them is known to refuse, the
//! request is refused, and none by a limit that its own route lacks. Nothing is charged, and no store is called.

use super::Worker;
use super::error::ProxyError;
use super::exchange::Exchange;
use super::route_caller;
use super::route_members::RouteMembers;
use super::route_request::RouteRequest;
use crate::admission::{Admission, Plan, RefusalCause};
use crate::clock;
use crate::key::NoIdentity;
use crate::limit::Limit;
use std::ptr;
use std::sync::Arc;

/// The refusal of a request whose token is not verified.
#[derive(Debug)]
pub(super) struct UnverifiedRefusal {
    /// The service that the request has if its client is in no group by its token: one of those that may be its own.
    service: usize,
    plan: Plan,
    admission: Admission,
    cause: RefusalCause,
}

impl Worker {
    /// The route of a request with a token that is not verified yet, where routes ask for groups that go by it.
    ///
    /// # Errors
    /// The refusal, where it is known whichever route takes the request.
    #[cold]
    #[inline(never)]
    pub(super) fn find_by_token(
        &self,
        host: &str,
        path: &str,
        coming: &RouteRequest<'_>,
        members: &RouteMembers<'_>,
        exchange: &Exchange,
    ) -> Result<Option<usize>, Box<UnverifiedRefusal>> {
        let snapshot = &exchange.local.snapshot;
        let table = &snapshot.table;
        let (last, possible) = coming.routes_before_token(members, table, host, path);
        if possible.is_empty() {
            return Ok(last);
        }
        let refusal = last.or(snapshot.unrouted).and_then(|service| {
            let limits = snapshot.shared_early_limits(service, &possible);
            self.refusal_by(&limits, service, coming, exchange)
        });
        match refusal {
            Some(refusal) => Err(refusal),
            None => Ok(table.find(host, path, &coming.parts.method, coming)),
        }
    }

    /// The refusal by one of these limits of the service, where it is known.
    fn refusal_by(
        &self,
        limits: &[&Arc<Limit>],
        position: usize,
        coming: &RouteRequest<'_>,
        exchange: &Exchange,
    ) -> Option<Box<UnverifiedRefusal>> {
        if limits.is_empty() {
            return None;
        }
        let service = exchange.local.service(position);
        let mut plan = Plan::default();
        plan.make_room(service);
        let is_one = |limit: &Limit| limits.iter().any(|one| ptr::eq(Arc::as_ptr(one), limit));
        let (target, parts) = (coming.target, coming.parts);
        route_caller::read_as(&NoIdentity, service, target, parts, exchange, |caller| {
            plan.fill(service, caller, is_one);
        });
        let (decided, by) = self.store.refusal(&plan.checks(service))?;
        let admission = Admission {
            decided: Some(Box::new(decided)),
            by,
        };
        let cause = admission.delay(&plan, service).err()?;
        Some(Box::new(UnverifiedRefusal {
            service: position,
            plan,
            admission,
            cause,
        }))
    }
}

impl UnverifiedRefusal {
    /// Notes the refusal as the request's one decision.
    pub(super) fn note(self: Box<Self>, exchange: &mut Exchange) -> ProxyError {
        exchange.matched(self.service, None);
        exchange.seen = clock::now();
        exchange.plan = self.plan;
        exchange.decided(self.admission, None);
        self.cause.into()
    }
}

//! From a decision to the outcome of its request.

use super::ReplayOutcome;
use crate::admission::{Admission, Plan, RefusalCause};
use crate::limit::verdict::Wait;
use crate::snapshot::Service;
use std::sync::Arc;

/// The outcome of a request whose limits were checked.
pub(super) fn outcome(admission: &Admission, plan: &Plan, service: &Service) -> ReplayOutcome {
    match admission.delay(plan, service) {
        Ok(0) => ReplayOutcome::Admit,
        Ok(wait) => {
            let by = admission.delayed_by();
            let limit = by.and_then(|by| plan.limit(by, service));
            ReplayOutcome::Delay {
                wait,
                limit: limit.map_or_else(Arc::default, |limit| Arc::clone(&limit.name)),
            }
        }
        Err(cause) => refusal(&cause),
    }
}

/// The outcome of a request that its limits refuse.
pub(super) fn refusal(cause: &RefusalCause) -> ReplayOutcome {
    match cause {
        RefusalCause::Limited { limit, wait, .. } => ReplayOutcome::Refuse {
            wait: match wait {
                Wait::Micros(wait) => Some(*wait),
                Wait::Never => None,
            },
            limit: Arc::clone(&limit.name),
            window: limit.window.clone(),
        },
        RefusalCause::MissingKey { limit, .. }
        | RefusalCause::UnknownKey { limit, .. }
        | RefusalCause::BadToken {
            limit: Some(limit), ..
        } => ReplayOutcome::Refuse {
            wait: None,
            limit: Arc::clone(&limit.name),
            window: None,
        },
        // The gateway answers an ambiguous key with 400. The store of a replay is never unavailable, and a log contains
        // no keys of issuers. No route of a replay looks for the customer.
        RefusalCause::AmbiguousKey { .. }
        | RefusalCause::BadToken { limit: None, .. }
        | RefusalCause::MalformedKey { .. }
        | RefusalCause::StoreDown
        | RefusalCause::KeysUnread => ReplayOutcome::NoRoute,
    }
}

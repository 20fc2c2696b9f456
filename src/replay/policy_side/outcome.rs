//! What a decision comes to for its request.

use super::ReplayOutcome;
use crate::limit::verdict::{self, Ruling, Wait};
use crate::proxy::admit::Plan;
use crate::proxy::error::ProxyError;
use crate::snapshot::Service;
use crate::store::StoreDecision;
use std::sync::Arc;

/// What the limits have made of it.
pub(super) fn outcome(decided: &StoreDecision, plan: &Plan, service: &Service) -> ReplayOutcome {
    let name = |index: usize| {
        let limit = plan.limit(index, service);
        let name = limit.map(|limit| Arc::clone(&limit.name));
        (
            name.unwrap_or_default(),
            limit.and_then(|limit| limit.window.clone()),
        )
    };
    match decided.decision.ruling {
        Ruling::Admit { delay: 0 } => ReplayOutcome::Admit,
        Ruling::Admit { delay } => {
            let longest = verdict::VerdictOutcome::Admit { delay };
            let verdicts = &decided.decision.verdicts;
            let by = verdicts.iter().position(|one| one.outcome == longest);
            ReplayOutcome::Delay {
                wait: delay,
                limit: by.map(|by| name(by).0).unwrap_or_default(),
            }
        }
        Ruling::Refuse { by, wait } => {
            let (limit, window) = name(by);
            let wait = match wait {
                Wait::Micros(wait) => Some(wait),
                Wait::Never => None,
            };
            ReplayOutcome::Refuse {
                wait,
                limit,
                window,
            }
        }
    }
}

/// How a request ends that lacks what one of its limits demands.
pub(super) fn turned_away(lack: &ProxyError) -> ReplayOutcome {
    match lack {
        ProxyError::MissingKey { limit, .. }
        | ProxyError::UnknownKey { limit, .. }
        | ProxyError::BadToken { limit, .. } => ReplayOutcome::Refuse {
            wait: None,
            limit: Arc::clone(limit),
            window: None,
        },
        // The gateway answers 400.
        _ => ReplayOutcome::NoRoute,
    }
}

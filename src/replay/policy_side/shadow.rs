//! Answers of limits that do not decide: shadows and candidates.

use super::{PolicySide, limits};
use crate::limit::Limit;
use crate::limit::verdict::{self, Wait};
use std::sync::Arc;

/// The answer of a limit that does not decide.
#[derive(Debug)]
pub(in crate::replay) struct ShadowAnswer<'a> {
    pub(in crate::replay) limit: &'a Arc<Limit>,
    /// The request's key; `None` if the request lacks one and would be refused for that.
    pub(in crate::replay) key: Option<&'a str>,
    pub(in crate::replay) outcome: verdict::VerdictOutcome,
    /// The verdict of the counter, if one was checked.
    pub(in crate::replay) verdict: Option<verdict::Verdict>,
}

impl PolicySide {
    /// The answers of the limits that do not decide, each with its key. If verdicts are not required, the list may be
    /// empty though all such limits admit.
    pub(in crate::replay) fn shadows(&self) -> impl Iterator<Item = ShadowAnswer<'_>> {
        let service = self.service();
        let limit = move |at: usize| service.and_then(|service| service.limits.get(at));
        let decided = self.admission.decided.iter().filter(|_| self.asked);
        let counted = decided
            .flat_map(|decided| &decided.shadows)
            .filter_map(move |shadow| {
                let (limit, key) = self.keys().nth(shadow.index)?;
                Some(ShadowAnswer {
                    limit,
                    key: Some(key),
                    outcome: shadow.verdict?.outcome,
                    verdict: shadow.verdict,
                })
            });
        let keyless = self.plan.keyless().iter().filter_map(move |at| {
            Some(ShadowAnswer {
                limit: limit(*at)?,
                key: None,
                outcome: verdict::VerdictOutcome::Refuse(Wait::Never),
                verdict: None,
            })
        });
        counted.chain(keyless)
    }

    /// The limits of all routes, some of them several times.
    pub(in crate::replay) fn limits(&self) -> impl Iterator<Item = &Arc<Limit>> {
        limits(&self.snapshot)
    }
}

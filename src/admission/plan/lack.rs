//! What a request lacks that a limit, or its route, requires: the request is refused for it once its other limits have
//! counted it.

use super::{LimitPosition, Plan};
use crate::admission::RefusalCause;
use crate::key::{Caller, Doubt, KeyPart, TokenDoubt};
use crate::limit::Limit;
use crate::snapshot::{CustomerUse, Service};
use std::sync::Arc;

/// A requirement of a limit, or of the route, that the request does not meet. Its other limits are checked and charged
/// nevertheless: otherwise a client could guess keys at any rate.
#[derive(Debug)]
pub(super) struct Lack {
    /// The position of the limit among the service's; the first of several such limits. The route comes last.
    limit: usize,
    cause: RefusalCause,
    /// The parts with values that no group knows. These values get no counter.
    unknown: Vec<KeyPart>,
}

impl Plan {
    /// Notes that an upstream may read a value differently on which the limit's key or groups depend.
    #[cold]
    pub(super) fn doubts(&mut self, at: LimitPosition<'_>, doubt: Doubt<'_>, caller: &Caller<'_>) {
        let limit = Arc::clone(at.limit);
        self.lacks(at, || cause(Some(limit), doubt, caller));
    }

    /// Marks the request for refusal if its credentials do not say whose it is, where more than limits looks for the
    /// customer: a field or the choice of a server, as `service` says, or a condition of a route, which has found
    /// credentials of different customers. The choice of a server hangs no other answer on a credential.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_for_customer(
        &mut self,
        service: &Service,
        is_contradictory: bool,
        caller: &Caller<'_>,
    ) {
        if self.lack().is_some() {
            return;
        }
        let doubt = match service.customer_use {
            CustomerUse::Limits => None,
            CustomerUse::Choice | CustomerUse::Identity => caller.customer_doubt(&mut self.keys),
        };
        let cause = match doubt {
            Some(doubt) if service.customer_use == CustomerUse::Identity => {
                cause(None, doubt, caller)
            }
            Some(Doubt::Several(part)) if part.is_customer() => different_customers(),
            _ if is_contradictory => different_customers(),
            _ => return,
        };
        self.note().lack = Some(Lack {
            limit: usize::MAX,
            cause,
            unknown: Vec::new(),
        });
        self.forget_ids();
    }

    /// Marks the request for refusal because of the limit, if the limit decides.
    #[cold]
    pub(super) fn lacks(&mut self, at: LimitPosition<'_>, cause: impl FnOnce() -> RefusalCause) {
        let LimitPosition { index, limit } = at;
        if !limit.mode.decides() {
            return self.note().keyless.push(index);
        }
        let findings = self.note();
        let unknown = match findings.lack.take() {
            Some(lack) if lack.limit <= index => return findings.lack = Some(lack),
            Some(lack) => lack.unknown,
            None => Vec::new(),
        };
        findings.lack = Some(Lack {
            limit: index,
            cause: cause(),
            unknown,
        });
    }

    /// Removes the limits that would count by a value that no group knows: `limit` refuses the request because of
    /// `part`, or because of other parts of its key as well.
    #[cold]
    pub(super) fn leave_out(
        &mut self,
        service: &Service,
        limit: &Limit,
        part: &KeyPart,
        caller: &Caller<'_>,
    ) {
        if self.lack().is_none() {
            return;
        }
        let mut unknown = limit.by.unknown_parts(caller, &mut self.keys);
        if !unknown.contains(part) {
            unknown.push(part.clone());
        }
        self.limits.retain(|planned| {
            let by = &service.limits[planned.limit].by;
            by.unknown.is_some() || !by.parts.iter().any(|part| unknown.contains(part))
        });
        if let Some(lack) = &mut self.note().lack {
            lack.unknown.append(&mut unknown);
        }
    }

    /// The part of the limit's key whose value no group knows, so that the value gets no counter.
    #[must_use]
    pub fn unknown_part(&self, limit: &Limit) -> Option<&KeyPart> {
        let mut unknown = self.findings.as_ref()?.lack.as_ref()?.unknown.iter();
        unknown.find(|part| limit.by.unknown.is_none() && limit.by.parts.contains(part))
    }

    /// The cause for which the request is refused if none of its limits refuses it.
    #[must_use]
    pub fn lack(&self) -> Option<&RefusalCause> {
        Some(&self.findings.as_ref()?.lack.as_ref()?.cause)
    }

    /// Takes the cause out, for the answer.
    pub fn take_lack(&mut self) -> Option<RefusalCause> {
        Some(self.findings.as_mut()?.lack.take()?.cause)
    }
}

fn different_customers() -> RefusalCause {
    RefusalCause::AmbiguousKey {
        limit: None,
        part: KeyPart::Customer,
    }
}

/// The cause for which the limit, or without one the route, refuses a request in doubt.
fn cause(limit: Option<Arc<Limit>>, doubt: Doubt<'_>, caller: &Caller<'_>) -> RefusalCause {
    match doubt {
        Doubt::Several(part) => RefusalCause::AmbiguousKey {
            limit,
            part: part.clone(),
        },
        Doubt::Malformed(part) => RefusalCause::MalformedKey {
            limit,
            part: part.clone(),
        },
        Doubt::Untrusted(part) => match caller.identity.doubt() {
            Some(TokenDoubt::KeysUnread) => RefusalCause::KeysUnread,
            why => RefusalCause::BadToken {
                limit,
                part: part.clone(),
                why: why.unwrap_or(TokenDoubt::Untrusted),
            },
        },
    }
}

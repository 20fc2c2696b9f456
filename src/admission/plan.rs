//! The limits that apply to one request, each with its key.

use super::refusal_cause::RefusalCause;
use super::request_cost::{cost, repeat_id};
use crate::key::TokenDoubt;
use crate::key::{Caller, Doubt, KeyOutcome, KeyPart, Memberships, RepeatId};
use crate::limit::rate::Cost;
use crate::limit::verdict::INLINE_LIMITS;
use crate::limit::{Limit, Preflights};
use crate::snapshot::Service;
use crate::store::Check;
use smallvec::SmallVec;
use std::sync::Arc;

/// The limits that apply to one request, each with its key.
#[derive(Debug, Default)]
pub struct Plan {
    keys: Vec<u8>,
    limits: SmallVec<[PlannedCheck; INLINE_LIMITS]>,
    /// Positions of limits that do not decide, and would refuse the request for want of their key, or of a known one.
    keyless: Vec<usize>,
    /// Limits that do not hold since the request is in one of their groups, by position, with that group's name.
    spared: Vec<(usize, Arc<str>)>,
    /// Why it is turned away, whatever the limits say that can be asked.
    lack: Option<Box<Lack>>,
}

/// What a request lacks that a limit demands. Its other limits are asked and charged nevertheless: else a client that
/// guesses keys could do so as fast as it likes.
#[derive(Debug)]
struct Lack {
    /// Position of that limit among the service's: of several it is the first.
    limit: usize,
    cause: RefusalCause,
    /// The parts with values that no group knows. No counter is made of them.
    unknown: Vec<KeyPart>,
}

#[derive(Debug, Clone, Copy)]
struct PlannedCheck {
    /// Position among the service's limits.
    limit: usize,
    /// Position among the limit's tiers of the one that holds.
    tier: Option<usize>,
    start: usize,
    end: usize,
    cost: Cost,
    id: Option<RepeatId>,
}

/// A limit of a service, with its position there.
#[derive(Debug, Clone, Copy)]
struct LimitPosition<'a> {
    index: usize,
    limit: &'a Arc<Limit>,
}

/// What a log knows of a request beyond its line.
#[derive(Debug)]
pub struct LoggedValues<C, K> {
    /// What the request took from a limit that lets the request name its cost.
    pub cost: C,
    /// Writes the key of a limit, as it was counted then; false where the log does not know it.
    pub key: K,
}

impl PlannedCheck {
    /// The limit, with the numbers that hold for the request.
    fn limit<'a>(&self, service: &'a Service) -> &'a Arc<Limit> {
        let limit = &service.limits[self.limit];
        match self.tier {
            None => limit,
            Some(tier) => &limit.tiers[tier].limit,
        }
    }
}

impl Plan {
    /// Writes the keys of all limits that apply.
    #[must_use]
    pub fn of(service: &Service, caller: &Caller<'_>) -> Self {
        let mut plan = Self::with_room(service);
        plan.fill(service, caller, |_| true);
        plan
    }

    /// Nothing yet, and room for all that may come.
    pub(crate) fn with_room(service: &Service) -> Self {
        Self {
            keys: Vec::with_capacity(64 * service.limits.len()),
            ..Self::default()
        }
    }

    /// Writes the keys of `those` limits that apply.
    pub(crate) fn fill(
        &mut self,
        service: &Service,
        caller: &Caller<'_>,
        those: impl Fn(&Limit) -> bool,
    ) {
        let values = LoggedValues {
            cost: |_: &Limit| None,
            key: |_: &Limit, _: &mut Vec<u8>| false,
        };
        self.write(service, caller, those, &values);
    }

    /// The limits in the order of the service again, after they were written in another.
    pub(crate) fn sort(&mut self) {
        self.limits.sort_unstable_by_key(|planned| planned.limit);
        self.keyless.sort_unstable();
    }

    /// Plans anew, in place, for a logged request, of which the log knows these `values`.
    pub fn refill(
        &mut self,
        service: &Service,
        caller: &Caller<'_>,
        values: &LoggedValues<
            impl Fn(&Limit) -> Option<Cost>,
            impl Fn(&Limit, &mut Vec<u8>) -> bool,
        >,
    ) {
        self.keys.clear();
        self.limits.clear();
        self.spared.clear();
        self.keyless.clear();
        self.lack = None;
        self.write(service, caller, |_| true, values);
    }

    fn write(
        &mut self,
        service: &Service,
        caller: &Caller<'_>,
        those: impl Fn(&Limit) -> bool,
        values: &LoggedValues<
            impl Fn(&Limit) -> Option<Cost>,
            impl Fn(&Limit, &mut Vec<u8>) -> bool,
        >,
    ) {
        let is_preflight = caller.is_preflight();
        let mut standing = Memberships::default();
        for (index, limit) in service.limits.iter().enumerate() {
            let at = LimitPosition { index, limit };
            if !those(limit) || self.spares(at, caller, &mut standing) {
                continue;
            }
            if is_preflight && limit.answers.preflights == Preflights::Free {
                self.push_preflight(at, caller);
                continue;
            }
            let start = self.keys.len();
            let found = if (values.key)(limit, &mut self.keys) {
                limit.by.recognise(caller, &mut self.keys, start)
            } else {
                limit.by.write(caller, &mut self.keys)
            };
            match found {
                // It would be a fresh counter for every guess.
                KeyOutcome::Key if self.is_of_unknown(limit) => self.keys.truncate(start),
                KeyOutcome::Key => {
                    self.push(at, caller, start, &mut standing, &values.cost);
                }
                KeyOutcome::Skip => {}
                KeyOutcome::Refuse(part) => {
                    self.lacks(at, || RefusalCause::MissingKey {
                        limit: Arc::clone(limit),
                        part: part.clone(),
                    });
                }
                KeyOutcome::Unknown(part) => {
                    self.lacks(at, || RefusalCause::UnknownKey {
                        limit: Arc::clone(limit),
                        part: part.clone(),
                    });
                    self.leave_out(service, part);
                }
                KeyOutcome::Doubt(doubt) => self.doubts(at, doubt, caller),
            }
        }
        if self.lack.is_some() {
            self.forget_ids();
        }
    }

    /// A request that is turned away repeats nothing, and none repeats it: guesses would go free under one id.
    #[cold]
    fn forget_ids(&mut self) {
        for planned in &mut self.limits {
            planned.id = None;
        }
    }

    /// Plans a limit that a preflight does not count on as other requests do. No tier of it holds, and no id.
    #[cold]
    fn push_preflight(&mut self, at: LimitPosition<'_>, caller: &Caller<'_>) {
        let LimitPosition { index, limit } = at;
        let start = self.keys.len();
        limit.write_preflight(caller, &mut self.keys);
        self.limits.push(PlannedCheck {
            limit: index,
            tier: None,
            start,
            end: self.keys.len(),
            cost: cost(limit, caller),
            id: None,
        });
    }

    /// Does the limit not hold for the request?
    fn spares<'a>(
        &mut self,
        at: LimitPosition<'a>,
        caller: &Caller<'_>,
        standing: &mut Memberships<'a>,
    ) -> bool {
        let LimitPosition { index, limit } = at;
        let Some(not) = &limit.exempt else {
            return false;
        };
        if not.covers(caller) {
            return true;
        }
        match not.group(standing, caller, &mut self.keys) {
            Ok(None) => false,
            Ok(Some(group)) => {
                self.spared.push((index, Arc::clone(&group.name)));
                true
            }
            Err(doubt) => {
                self.doubts(at, doubt, caller);
                // It counts as a request of no group.
                !limit.mode.decides()
            }
        }
    }

    /// Plans a limit whose key has been written, from `start` to the end.
    fn push<'a>(
        &mut self,
        at: LimitPosition<'a>,
        caller: &Caller<'_>,
        start: usize,
        standing: &mut Memberships<'a>,
        logged_cost: impl Fn(&Limit) -> Option<Cost>,
    ) {
        let LimitPosition { index, limit } = at;
        let tier = if limit.tiers.is_empty() {
            Ok(None)
        } else {
            limit.tier_of(standing, caller, &mut self.keys, start)
        };
        let tier = match tier {
            Ok(tier) => tier,
            Err(doubt) => {
                self.doubts(at, doubt, caller);
                if !limit.mode.decides() {
                    return self.keys.truncate(start);
                }
                None
            }
        };
        let limit = tier.map_or(limit, |tier| &limit.tiers[tier].limit);
        let cost = match (&limit.price, &limit.dedupe) {
            (None, None) => limit.cost,
            _ => logged_cost(limit).unwrap_or_else(|| cost(limit, caller)),
        };
        self.limits.push(PlannedCheck {
            limit: index,
            tier,
            start,
            end: self.keys.len(),
            cost,
            id: repeat_id(limit, cost, caller),
        });
    }

    /// An upstream may read otherwise what the limit counts by, or what its groups go by.
    #[cold]
    fn doubts(&mut self, at: LimitPosition<'_>, doubt: Doubt<'_>, caller: &Caller<'_>) {
        let limit = Arc::clone(at.limit);
        self.lacks(at, || match doubt {
            Doubt::Several(part) => RefusalCause::AmbiguousKey {
                limit,
                part: part.clone(),
            },
            Doubt::Unbelieved(part) => RefusalCause::BadToken {
                limit,
                part: part.clone(),
                why: caller.identity.doubt().unwrap_or(TokenDoubt::Unbelieved),
            },
        });
    }

    /// The request is to be turned away for the limit, if that decides anything.
    #[cold]
    fn lacks(&mut self, at: LimitPosition<'_>, cause: impl FnOnce() -> RefusalCause) {
        let LimitPosition { index, limit } = at;
        if !limit.mode.decides() {
            return self.keyless.push(index);
        }
        let unknown = match self.lack.take() {
            Some(lack) if lack.limit <= index => return self.lack = Some(lack),
            Some(lack) => lack.unknown,
            None => Vec::new(),
        };
        self.lack = Some(Box::new(Lack {
            limit: index,
            cause: cause(),
            unknown,
        }));
    }

    /// No group knows the request's value of `part`, and a limit refuses it for that: none counts by it.
    #[cold]
    fn leave_out(&mut self, service: &Service, part: &KeyPart) {
        let Some(lack) = &mut self.lack else { return };
        lack.unknown.push(part.clone());
        self.limits.retain(|planned| {
            let by = &service.limits[planned.limit].by;
            by.unknown.is_some() || !by.parts.contains(part)
        });
    }

    /// Does the limit count by a part with a value that no group knows, and makes no counter of it?
    fn is_of_unknown(&self, limit: &Limit) -> bool {
        self.lack.as_ref().is_some_and(|lack| {
            let mut unknown = lack.unknown.iter();
            limit.by.unknown.is_none() && unknown.any(|part| limit.by.parts.contains(part))
        })
    }

    /// Why the request is turned away, if it is, where none of its limits refuses it.
    #[must_use]
    pub fn lack(&self) -> Option<&RefusalCause> {
        self.lack.as_ref().map(|lack| &lack.cause)
    }

    /// Takes that cause, to be answered.
    pub fn take_lack(&mut self) -> Option<RefusalCause> {
        self.lack.take().map(|lack| lack.cause)
    }

    /// Does no limit apply?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Do all limits of the service apply that decide, with their own numbers?
    #[must_use]
    pub fn is_whole(&self, service: &Service) -> bool {
        let decides = |position: usize| service.limits[position].mode.decides();
        let all = self.limits.len() == service.limits.len()
            || self.positions().filter(|at| decides(*at)).count()
                == (0..service.limits.len()).filter(|at| decides(*at)).count();
        all && self.limits.iter().all(|planned| planned.tier.is_none())
    }

    /// Positions in the service of limits that do not decide, and would refuse the request for its key.
    #[must_use]
    pub fn keyless(&self) -> &[usize] {
        &self.keyless
    }

    /// What to ask of the store.
    #[must_use]
    pub fn checks<'a>(&'a self, service: &'a Service) -> SmallVec<[Check<'a>; INLINE_LIMITS]> {
        self.limits
            .iter()
            .map(|planned| Check {
                limit: planned.limit(service),
                key: &self.keys[planned.start..planned.end],
                cost: planned.cost,
                id: planned.id,
            })
            .collect()
    }

    /// The limits that apply, in order: those that decide, then the others.
    #[must_use]
    pub fn limits<'a>(&self, service: &'a Service) -> SmallVec<[&'a Arc<Limit>; INLINE_LIMITS]> {
        self.limits
            .iter()
            .map(|planned| planned.limit(service))
            .collect()
    }

    /// The limits that apply, one by one.
    pub(super) fn each_limit<'a>(&self, service: &'a Service) -> impl Iterator<Item = &'a Limit> {
        self.limits.iter().map(|planned| &**planned.limit(service))
    }

    /// Limit number `index` of the plan, with the numbers that hold for the request.
    #[must_use]
    pub fn limit<'a>(&self, index: usize, service: &'a Service) -> Option<&'a Arc<Limit>> {
        Some(self.limits.get(index)?.limit(service))
    }

    /// Limits that a group of the request's has changed: their positions in the service, and the group whose numbers
    /// hold, or whose members the limit does not hold for.
    pub fn groups<'a>(
        &'a self,
        service: &'a Service,
    ) -> impl Iterator<Item = (usize, &'a Arc<str>)> {
        let tiers = self.limits.iter().filter_map(|planned| {
            let group = planned.limit(service).group.as_ref()?;
            Some((planned.limit, group))
        });
        tiers.chain(self.spared.iter().map(|(limit, group)| (*limit, group)))
    }

    /// Each limit's position in the service.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.limits.iter().map(|planned| planned.limit)
    }

    /// Each limit's position in the service, with its cost.
    pub(crate) fn costs(&self) -> impl Iterator<Item = (usize, Cost)> {
        let planned = self.limits.iter();
        planned.map(|planned| (planned.limit, planned.cost))
    }

    /// Each limit's position in the service, with its key as text and its cost.
    pub fn keys(&self) -> impl Iterator<Item = (usize, &str, Cost)> {
        self.limits.iter().map(|planned| {
            // Keys are written as ASCII.
            let key =
                std::str::from_utf8(&self.keys[planned.start..planned.end]).unwrap_or_default();
            (planned.limit, key, planned.cost)
        })
    }
}

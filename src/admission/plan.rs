//! The limits that apply to one request, each with its key.
//!
//! ```text
//! lack  what the request lacks that a limit or its route requires
//! ```

mod lack;

use super::refusal_cause::RefusalCause;
use super::request_cost::{cost, repeat_id};
use crate::key::{Caller, KeyOutcome, Memberships, RepeatId};
use crate::limit::rate::Cost;
use crate::limit::tier::NumbersChoice;
use crate::limit::verdict::INLINE_LIMITS;
use crate::limit::{Limit, Preflights};
use crate::snapshot::Service;
use crate::store::Check;
use lack::Lack;
use smallvec::SmallVec;
use std::sync::Arc;

/// The limits that apply to one request, each with its key.
#[derive(Debug, Default)]
pub struct Plan {
    keys: Vec<u8>,
    limits: SmallVec<[PlannedCheck; INLINE_LIMITS]>,
    /// Boxed, so that the plan, which lies in every exchange, is small.
    findings: Option<Box<PlanFindings>>,
}

/// Findings that only few requests have.
#[derive(Debug, Default)]
struct PlanFindings {
    /// Positions of limits that do not decide, and would refuse the request because it lacks their key, or because no
    /// group knows the key.
    keyless: Vec<usize>,
    /// Limits that do not apply because the request is in one of their groups: the position of each, and the group's
    /// name.
    spared: Vec<(usize, Arc<str>)>,
    /// The cause for which the request is refused, regardless of its other limits' decisions.
    lack: Option<Lack>,
    /// Positions of limits that charge repeats once, and the request's id for each.
    ids: Vec<(usize, RepeatId)>,
}

#[derive(Debug, Clone, Copy)]
struct PlannedCheck {
    /// Position among the service's limits.
    limit: usize,
    /// Whose numbers apply.
    numbers: NumbersChoice,
    start: usize,
    end: usize,
    cost: Cost,
}

/// A limit of a service, with its position there.
#[derive(Debug, Clone, Copy)]
struct LimitPosition<'a> {
    index: usize,
    limit: &'a Arc<Limit>,
}

/// Values that a log has about a request beyond the request's line.
#[derive(Debug)]
pub struct LoggedValues<C, K> {
    /// The units that the request took from a limit whose requests name their cost.
    pub cost: C,
    /// Writes the key of a limit, as counted at the time; returns false if the log does not have the key.
    pub key: K,
}

impl PlannedCheck {
    /// The limit, with the numbers that apply to the request.
    fn limit<'a>(&self, service: &'a Service) -> &'a Arc<Limit> {
        service.limits[self.limit].with_choice(self.numbers)
    }
}

impl Plan {
    /// Becomes an empty plan, with room for all limits that may come. A plan is written where it lives, because it is
    /// large.
    #[inline]
    pub(crate) fn make_room(&mut self, service: &Service) {
        self.clear();
        self.keys.reserve(64 * service.limits.len());
    }

    /// Empties the plan, and keeps its memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.limits.clear();
        self.findings = None;
    }

    /// Writes the keys of those limits that apply and that `those` selects.
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

    /// Restores the order of the service, after the limits were written in another order.
    pub(crate) fn sort(&mut self) {
        self.limits.sort_unstable_by_key(|planned| planned.limit);
        if let Some(findings) = &mut self.findings {
            findings.keyless.sort_unstable();
        }
    }

    /// Plans all limits that apply to a logged request, whose log has these `values`, in an empty plan.
    pub fn refill(
        &mut self,
        service: &Service,
        caller: &Caller<'_>,
        values: &LoggedValues<
            impl Fn(&Limit) -> Option<Cost>,
            impl Fn(&Limit, &mut Vec<u8>) -> bool,
        >,
    ) {
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
                // A counter for such a key would be a fresh counter for every guess.
                KeyOutcome::Key if self.unknown_part(limit).is_some() => self.keys.truncate(start),
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
                    self.leave_out(service, limit, part, caller);
                }
                KeyOutcome::Doubt(doubt) => self.doubts(at, doubt, caller),
            }
        }
        if self.lack().is_some() {
            self.forget_ids();
        }
    }

    fn note(&mut self) -> &mut PlanFindings {
        self.findings.get_or_insert_default()
    }

    /// Forgets the ids: a refused request repeats no request, and no request repeats it. Otherwise guesses would be
    /// free under one id.
    #[cold]
    fn forget_ids(&mut self) {
        self.note().ids.clear();
    }

    /// Plans a limit that counts a preflight on a separate counter. The preflight gets no tier of the limit, and no id.
    #[cold]
    fn push_preflight(&mut self, at: LimitPosition<'_>, caller: &Caller<'_>) {
        let LimitPosition { index, limit } = at;
        let start = self.keys.len();
        limit.write_preflight(caller, &mut self.keys);
        self.limits.push(PlannedCheck {
            limit: index,
            numbers: NumbersChoice::Limit,
            start,
            end: self.keys.len(),
            cost: cost(limit, caller),
        });
    }

    /// Does the limit not apply to the request?
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
                self.note().spared.push((index, Arc::clone(&group.name)));
                true
            }
            Err(doubt) => {
                self.doubts(at, doubt, caller);
                // The request then counts as a member of no group.
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
        let numbers = if limit.tiers.is_empty() && limit.customer_numbers.is_none() {
            Ok(NumbersChoice::Limit)
        } else {
            limit.choose(standing, caller, &mut self.keys, start)
        };
        let numbers = match numbers {
            Ok(numbers) => numbers,
            Err(doubt) => {
                self.doubts(at, doubt, caller);
                if !limit.mode.decides() {
                    return self.keys.truncate(start);
                }
                NumbersChoice::Limit
            }
        };
        let limit = limit.with_choice(numbers);
        let cost = match (&limit.price, &limit.dedupe) {
            (None, None) => limit.cost,
            _ => logged_cost(limit).unwrap_or_else(|| cost(limit, caller)),
        };
        self.limits.push(PlannedCheck {
            limit: index,
            numbers,
            start,
            end: self.keys.len(),
            cost,
        });
        if let Some(id) = repeat_id(limit, cost, caller) {
            self.note().ids.push((index, id));
        }
    }

    /// Does no limit apply?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Do all deciding limits of the service apply, with their own numbers?
    #[must_use]
    pub fn is_whole(&self, service: &Service) -> bool {
        let decides = |position: usize| service.limits[position].mode.decides();
        let all = self.limits.len() == service.limits.len()
            || self.positions().filter(|at| decides(*at)).count()
                == (0..service.limits.len()).filter(|at| decides(*at)).count();
        let mut planned = self.limits.iter();
        all && planned.all(|planned| planned.numbers == NumbersChoice::Limit)
    }

    /// Positions in the service of limits that do not decide, and would refuse the request because of its key.
    #[must_use]
    pub fn keyless(&self) -> &[usize] {
        let findings = self.findings.as_ref();
        findings.map_or(&[], |findings| &findings.keyless)
    }

    /// The checks for the store.
    #[must_use]
    pub fn checks<'a>(&'a self, service: &'a Service) -> SmallVec<[Check<'a>; INLINE_LIMITS]> {
        self.limits
            .iter()
            .map(|planned| Check {
                limit: planned.limit(service),
                key: &self.keys[planned.start..planned.end],
                cost: planned.cost,
                id: self.id(planned.limit),
            })
            .collect()
    }

    /// The id of the request for the limit at this position.
    #[inline]
    fn id(&self, limit: usize) -> Option<RepeatId> {
        let mut ids = self.findings.as_ref()?.ids.iter();
        let (_, id) = ids.find(|(of, _)| *of == limit)?;
        Some(*id)
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

    /// Limit number `index` of the plan, with the numbers that apply to the request.
    #[must_use]
    pub fn limit<'a>(&self, index: usize, service: &'a Service) -> Option<&'a Arc<Limit>> {
        Some(self.limits.get(index)?.limit(service))
    }

    /// The limits that a group of the request has changed: their positions in the service, and the group. Either the
    /// group's numbers apply, or the limit does not apply to the group's members.
    pub fn groups<'a>(
        &'a self,
        service: &'a Service,
    ) -> impl Iterator<Item = (usize, &'a Arc<str>)> {
        let tiers = self.limits.iter().filter_map(|planned| {
            let group = planned.limit(service).group.as_ref()?;
            Some((planned.limit, group))
        });
        let spared = self.findings.iter().flat_map(|findings| &findings.spared);
        tiers.chain(spared.map(|(limit, group)| (*limit, group)))
    }

    /// Does the request's customer have numbers of its own in the limit at this position of the service?
    #[must_use]
    pub fn has_customer_numbers(&self, limit: usize) -> bool {
        let mut planned = self.limits.iter();
        let planned = planned.find(|planned| planned.limit == limit);
        planned.is_some_and(|planned| matches!(planned.numbers, NumbersChoice::Customer(_)))
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

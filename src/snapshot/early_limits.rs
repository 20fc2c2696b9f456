//! Limits that may refuse a request before its token is verified, if the token decides which route matches.
//!
//! Such a limit does not depend on the token, and counts alike on every route that has it. A request that such a limit
//! refuses on all possible routes is refused regardless of its token.

use super::{Service, Snapshot};
use crate::key::{KeyPart, Sameness, UnknownKey};
use crate::limit::Limit;
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;

impl Snapshot {
    /// The early limits of the service `last` that all services of `others` have too.
    #[must_use]
    pub fn shared_early_limits(&self, last: usize, others: &[usize]) -> SmallVec<[&Arc<Limit>; 4]> {
        let is_shared = |limit: &&Arc<Limit>| {
            let mut others = others.iter().map(|other| &self.services[*other]);
            others.all(|other| other.early().any(|one| Arc::ptr_eq(one, limit)))
        };
        self.services[last].early().filter(is_shared).collect()
    }
}

impl Service {
    fn early(&self) -> impl Iterator<Item = &Arc<Limit>> {
        self.early_limits.iter().map(|at| &self.limits[*at])
    }

    /// Finds the service's early limits.
    pub fn find_early_limits(&mut self) {
        let refused = self.refused_parts();
        let all = self.limits.iter().zip(0..);
        let early = all.filter(|(limit, _)| self.is_early(limit, &refused));
        self.early_limits = early.map(|(_, position)| position).collect();
    }

    fn is_early(&self, limit: &Limit, refused: &HashSet<&KeyPart>) -> bool {
        let may_leave_out = || {
            let mut parts = limit.by.parts.iter();
            limit.by.unknown.is_none() && parts.any(|part| refused.contains(part))
        };
        let needs_body = |of: Sameness| of == Sameness::Request;
        limit.mode.decides()
            && !limit.asks_token()
            && !parts(limit).any(|part| self.decides_over(part))
            && !self.is_field_of_identity(limit)
            && !limit.dedupe.iter().any(|dedupe| needs_body(dedupe.of))
            && !may_leave_out()
    }

    /// Does the value of this part depend on the route, because the route drops fields that identify clients to its
    /// servers?
    fn decides_over(&self, part: &KeyPart) -> bool {
        let is_claimed = |name| {
            let identity = self.identity.as_ref();
            identity.is_some_and(|identity| identity.claims(name))
        };
        part.is_of_route()
            || part.field().is_some_and(is_claimed)
            || part.is_customer() && self.identity.is_some()
    }

    /// Does the limit read its cost or an id from such a field?
    fn is_field_of_identity(&self, limit: &Limit) -> bool {
        let Some(identity) = &self.identity else {
            return false;
        };
        let price = limit.price.iter().map(|price| &price.header);
        let ids = limit.dedupe.iter().map(|dedupe| &dedupe.field.0);
        price.chain(ids).any(|name| identity.claims(name))
    }

    /// The parts whose values a limit of the service refuses if no group knows them. Such values have no counter of
    /// another limit that counts by the part.
    fn refused_parts(&self) -> HashSet<&KeyPart> {
        let refuses = |limit: &&Arc<Limit>| {
            let unknown = limit.by.unknown.as_ref();
            limit.mode.decides()
                && unknown.is_some_and(|known| known.otherwise == UnknownKey::Refuse)
        };
        let limits = self.limits.iter().filter(refuses);
        let groups = limits.clone().flat_map(|limit| &limit.by.unknown);
        let credentials = groups.flat_map(|known| known.groups.iter().flatten());
        let parts = limits.flat_map(|limit| &limit.by.parts);
        parts.chain(credentials.map(|group| &group.by)).collect()
    }
}

/// The parts that a limit, its tiers and its exemption depend on.
fn parts(limit: &Limit) -> impl Iterator<Item = &KeyPart> {
    let tiers = limit.tiers.iter().map(|tier| &tier.group.by);
    let exempt = limit.exempt.iter().flat_map(|exempt| &exempt.groups);
    let groups = tiers.chain(exempt.map(|group| &group.by));
    limit.by.parts.iter().chain(groups)
}

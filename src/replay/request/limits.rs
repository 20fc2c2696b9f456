//! Keys, costs and groups by limit, as a line of the access log has them.

use super::{LoggedRequest, number};
use crate::replay::json::{self, Value};
use crate::telemetry::access_log::Reason;
use std::borrow::Cow;

impl<'a> LoggedRequest<'a> {
    /// The key that `limit` counted the request under, by the access log.
    pub(in crate::replay) fn logged_key(&self, limit: &str) -> Option<Cow<'a, str>> {
        // Of several keys of one limit, the last counts.
        let mut keys = self.keys.iter().rev();
        match keys.find(|(name, _)| name.is(limit))? {
            (_, Value::Text(key)) => key.read().ok(),
            _ => None,
        }
    }

    /// Did `limit`, which has no key in the access log, refuse the request since no group knew the key? A limit that
    /// only counts would have refused, and no line states the cause.
    pub(in crate::replay) fn was_unknown_to(&self, limit: &str) -> bool {
        let has_refused = self.reason == Some(Reason::UnknownKey) && self.limit == limit;
        has_refused || self.would_be_refused_by(limit)
    }

    /// Would `limit` have refused the request if it did not only count, by the access log?
    fn would_be_refused_by(&self, limit: &str) -> bool {
        let mut names = json::entries(self.would_refuse).flatten();
        names.any(|name| matches!(name, Value::Text(name) if name.is(limit)))
    }

    /// Was the request's token untrusted, by the access log?
    pub(in crate::replay) fn was_doubted(&self) -> bool {
        self.reason == Some(Reason::BadToken)
    }

    /// Did this group change a limit for the request, by the access log?
    pub(in crate::replay) fn is_logged_in(&self, group: &str) -> bool {
        let mut groups = json::members(self.groups).flatten();
        groups.any(|(_, name)| matches!(name, Value::Text(name) if name.is(group)))
    }

    /// The cost that `limit` charged the request, by the access log.
    pub(in crate::replay) fn logged_cost(&self, limit: &str) -> Option<u64> {
        let costs = json::members(self.costs).flatten();
        let (_, cost) = costs.filter(|(name, _)| name.is(limit)).last()?;
        number(cost, 0, "costs").ok()
    }
}

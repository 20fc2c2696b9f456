//! Keys, costs and groups by limit, as the access log's line has them.

use super::super::json::{self, Value};
use super::{LoggedRequest, number};
use std::borrow::Cow;

impl<'a> LoggedRequest<'a> {
    /// The key that the access log says `limit` counted it under.
    pub(in crate::replay) fn logged_key(&self, limit: &str) -> Option<Cow<'a, str>> {
        // The last of one name holds.
        let mut keys = self.keys.iter().rev();
        match keys.find(|(name, _)| name.is(limit))? {
            (_, Value::Text(key)) => key.read().ok(),
            _ => None,
        }
    }

    /// Does the access log say that `limit` refused it since no group knew its key?
    pub(in crate::replay) fn was_unknown_to(&self, limit: &str) -> bool {
        self.reason == "unknown_key" && self.limit == limit
    }

    /// Does the access log say that its token was not believed?
    pub(in crate::replay) fn was_doubted(&self) -> bool {
        self.reason == "bad_token"
    }

    /// Does the access log say that this group changed one of its limits?
    pub(in crate::replay) fn is_logged_in(&self, group: &str) -> bool {
        let mut groups = json::members(self.groups).flatten();
        groups.any(|(_, name)| matches!(name, Value::Text(name) if name.is(group)))
    }

    /// The cost that the access log says `limit` took for it.
    pub(in crate::replay) fn logged_cost(&self, limit: &str) -> Option<u32> {
        let costs = json::members(self.costs).flatten();
        let (_, cost) = costs.filter(|(name, _)| name.is(limit)).last()?;
        number(cost, 0, "costs").ok()
    }
}

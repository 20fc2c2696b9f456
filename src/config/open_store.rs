//! The warning of a Redis that needs no password, which only a probe of the store finds.

use super::diagnostic::{Code, Details as _, Findings, Severity};
use super::{Compiled, document};

impl Compiled {
    /// Adds a warning of each store that lets any client in, by its address. `ignore_warnings` of the file applies.
    pub fn warn_of_open_stores<'p>(&mut self, places: impl Iterator<Item = &'p str>) {
        let mut found = Findings::default();
        for place in places {
            let message = format!(
                "any client that reaches {place} may change its counters, since its user `default` needs no password"
            );
            let warning = found.warning(Code::OpenStore, message).help(
                "switch that user off (`user default off`) and add one for the gateway, as in deploy/redis/users.acl; docs/redis.md says how",
            );
            if let Some(span) = &self.store_at {
                warning.at(span, "a probe without a user and a password was let in");
            }
        }
        document::ignore(&self.ignoring, &mut found, false);
        let found = found.into_inner().into_iter();
        let (warnings, ignored): (Vec<_>, Vec<_>) =
            found.partition(|one| one.severity == Severity::Warning);
        self.warnings.extend(warnings);
        self.ignored.extend(ignored);
    }
}

//! The warnings that only a probe of the store finds: about a Redis that needs no password, and about a Redis that
//! evicts counters. Notes that the file ignores.

use crate::config::report::{Code, Details as _, Findings, Severity};
use crate::config::{Compiled, document};
use crate::limit::Limit;

impl Compiled {
    /// Adds a warning for each store that accepts clients without a password, by its address. `ignore_warnings` of the
    /// file applies.
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
        self.add_found(found);
    }

    /// Adds a warning for each store that evicts counters, by its address and its policy. `ignore_warnings` of the file
    /// applies.
    pub fn warn_of_evicting_stores<'p>(
        &mut self,
        places: impl Iterator<Item = (&'p str, &'p str)>,
    ) {
        let mut found = Findings::default();
        for (place, policy) in places {
            let message =
                format!("{place} forgets counters when its memory is full, and limits start anew");
            let warning = found.warning(Code::EvictingStore, message).help(
                "set `maxmemory-policy noeviction`, or give the counters a Redis of their own",
            );
            if let Some(span) = &self.store_at {
                warning.at(span, format!("its `maxmemory-policy` is {policy}"));
            }
        }
        self.add_found(found);
    }

    /// Does the file ignore notes about `limit` under this code?
    #[must_use]
    pub fn ignores(&self, code: Code, limit: &Limit) -> bool {
        document::ignores(&self.ignoring, code, &(limit.place..limit.place + 1))
    }

    fn add_found(&mut self, mut found: Findings) {
        document::ignore(&self.ignoring, &mut found, false);
        let found = found.into_inner().into_iter();
        let (warnings, ignored): (Vec<_>, Vec<_>) =
            found.partition(|one| one.severity == Severity::Warning);
        self.warnings.extend(warnings);
        self.ignored.extend(ignored);
    }
}

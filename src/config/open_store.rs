//! The warning of a Redis that needs no password, which only a probe of the store finds.

use super::diagnostic::{Code, Diagnostic, Severity};
use super::{Compiled, document};

impl Compiled {
    /// Adds a warning of each store that lets any client in, by its address. `ignore_warnings` of the file applies.
    pub fn warn_of_open_stores<'p>(&mut self, places: impl Iterator<Item = &'p str>) {
        let mut found: Vec<Diagnostic> = places.map(open_store).collect();
        if let Some(span) = &self.store_at {
            let label = "a probe without a user and a password was let in";
            found = found.into_iter().map(|one| one.at(span, label)).collect();
        }
        document::ignore(&self.ignoring, &mut found, false);
        let (warnings, ignored): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|one| one.severity == Severity::Warning);
        self.warnings.extend(warnings);
        self.ignored.extend(ignored);
    }
}

fn open_store(place: &str) -> Diagnostic {
    let message = format!(
        "any client that reaches {place} may change its counters, since its user `default` needs no password"
    );
    Diagnostic::warning(Code::OpenStore, message).help(
        "switch that user off (`user default off`) and add one for the gateway, as in deploy/redis/users.acl; docs/redis.md says how",
    )
}

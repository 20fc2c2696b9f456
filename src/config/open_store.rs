//! What is found wrong by asking those that the file names: warnings as all others are, ignored where the file says so.

use super::diagnostic::{Code, Diagnostic, Severity};
use super::{Compiled, document};

impl Compiled {
    /// Adds a warning of each Redis that lets anybody in, by where it is.
    pub fn warn_of_open_stores<'p>(&mut self, places: impl Iterator<Item = &'p str>) {
        let mut found: Vec<Diagnostic> = places.map(open_store).collect();
        if let Some(span) = &self.store_at {
            let label = "asked just now, without a user and a password";
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
        "whoever reaches {place} may do there what only the gateway should, since its user `default` needs no password"
    );
    Diagnostic::warning(Code::OpenStore, message).help(
        "switch it off (`user default off`) beside a user for the gateway, as in deploy/redis/users.acl; docs/redis.md says how",
    )
}

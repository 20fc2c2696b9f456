//! Leases where there are none.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::document::Limit;
use crate::limit::{self, Leasing};

/// Permits are to be taken ahead where none are given.
pub(super) fn unleased(
    written: &Limit,
    limits: Vec<limit::Limit>,
    found: &mut Vec<Diagnostic>,
) -> Vec<limit::Limit> {
    let asked = written.lease.at().filter(|at| at.value != Leasing::Off);
    if let (Some(lease), Some(why)) = (asked, limits.first().and_then(limit::Limit::why_unleased)) {
        found.push(
            Diagnostic::warning(
                Code::Conflict,
                format!("limit `{}` gives no leases", written.name.value),
            )
            .at(&lease.span, why)
            .help("leave `lease` out: every request asks Redis"),
        );
    }
    limits
}

//! Leases where there are none.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::document::Limit;
use crate::limit::{self, LeaseSetting};

/// Permits are to be taken ahead where none are given.
pub(super) fn unleased(
    written: &Limit,
    limits: Vec<limit::Limit>,
    found: &mut Vec<Diagnostic>,
) -> Vec<limit::Limit> {
    let asked = written
        .lease
        .at()
        .filter(|at| at.value != LeaseSetting::Off);
    // Of a list of rates some may be leased.
    let whys: Option<Vec<_>> = limits.iter().map(limit::Limit::why_unleased).collect();
    if let (Some(lease), Some(why)) = (asked, whys.and_then(|whys| whys.first().copied())) {
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

//! Pages of lists: `count` entries behind the one that `after` names.

use super::{Call, bad_parameter};
use crate::admin::answers::problem::Problem;

/// Entries of a page, if `count` is not written.
const USUAL: usize = 50;
/// The most entries of a page.
const MOST: usize = 500;

/// The page of `all` that a call asks for, and what `after` of the next page is. Entries have names, each another.
///
/// # Errors
/// If a parameter has a value that it does not take.
pub(in crate::admin) fn page<T>(
    call: &Call,
    all: Vec<T>,
    name: impl Fn(&T) -> &str,
) -> Result<(Vec<T>, Option<String>), Problem> {
    let count = match call.parameter("count") {
        None => USUAL,
        Some(text) => {
            let count = text.parse().ok();
            count
                .filter(|count| (1..=MOST).contains(count))
                .ok_or_else(|| bad_parameter(format!("`count` is a number from 1 to {MOST}")))?
        }
    };
    let start = match call.parameter("after") {
        None => 0,
        Some(after) => {
            let found = all.iter().position(|one| name(one) == after);
            1 + found.ok_or_else(|| {
                bad_parameter("`after` is the `next` of a page, and that entry is gone".to_owned())
            })?
        }
    };
    let is_last = all.len() <= start + count;
    let rows: Vec<T> = all.into_iter().skip(start).take(count).collect();
    let next = rows.last().filter(|_| !is_last);
    let next = next.map(|last| name(last).to_owned());
    Ok((rows, next))
}

//! The cost of a request at each of its limits, and the id that marks a repeat, both read from the request's fields.

use crate::client::spelled;
use crate::key::{Caller, IdError, PriceError, RepeatId, Sameness};
use crate::limit::Limit;
use crate::limit::dedupe::Dedupe;
use crate::limit::rate::Cost;
use crate::telemetry::log::Throttle;
use std::time::Duration;

/// Throttles warnings about costs that cannot be read, since clients may send such costs at any rate.
static MISQUOTED: Throttle = Throttle::every(Duration::from_secs(10));

/// Throttles warnings about ids that cannot be read.
static NO_ID: Throttle = Throttle::every(Duration::from_secs(10));

/// The units that the request takes from `limit`.
pub(super) fn cost(limit: &Limit, caller: &Caller<'_>) -> Cost {
    let Some(price) = &limit.price else {
        return limit.cost;
    };
    let (units, misquoted) = price.of(caller.fields);
    if let Some(misquoted) = misquoted
        && let Some(more) = MISQUOTED.pass()
    {
        warn_of(limit, misquoted, caller, more);
    }
    Cost::new(units)
}

/// The id that identifies repeats of the request, if `limit` charges repeats once and the request has an id.
#[inline]
pub(super) fn repeat_id(limit: &Limit, cost: Cost, caller: &Caller<'_>) -> Option<RepeatId> {
    let dedupe = limit.dedupe.as_ref()?;
    id_of(dedupe, limit, cost, caller)
}

fn id_of(dedupe: &Dedupe, limit: &Limit, cost: Cost, caller: &Caller<'_>) -> Option<RepeatId> {
    match dedupe.field.of(caller.fields) {
        Ok(id) => {
            let (id, path) = (id?, caller.location.path()?);
            let method = caller.method.as_str();
            let id = RepeatId::of(method, &path, cost.units(), id);
            match dedupe.of {
                Sameness::Path => Some(id),
                Sameness::Request => {
                    let (host, query) = (caller.location.host(), caller.location.query());
                    id.covering(&host, query, &caller.content)
                }
            }
        }
        Err(no_id) => {
            warn_of_no_id(limit, no_id, caller);
            None
        }
    }
}

#[cold]
fn warn_of_no_id(limit: &Limit, no_id: IdError, caller: &Caller<'_>) {
    let (Some(dedupe), Some(more)) = (&limit.dedupe, NO_ID.pass()) else {
        return;
    };
    let (field, client) = (&dedupe.field.0, spelled(caller.address));
    let (name, what) = (&limit.name, no_id.as_str());
    tracing::warn!("{field} of {client} is {what}; limit {name} charges the request{more}");
}

#[cold]
fn warn_of(
    limit: &Limit,
    misquoted: PriceError,
    caller: &Caller<'_>,
    more: crate::telemetry::log::More,
) {
    let Some(price) = &limit.price else { return };
    let (field, client) = (&price.header, spelled(caller.address));
    let (name, what, max) = (&limit.name, misquoted.as_str(), price.max);
    tracing::warn!("{field} of {client} is {what}; limit {name} charges its maximum, {max}{more}");
}

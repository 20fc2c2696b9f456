//! `GET /v1/limits`, `GET /v1/limits/{limit}`: the limits of the file in force.

use super::answers::limits::LimitsAnswer;
use super::answers::problem::Problem;
use super::call::paging::page;
use super::call::{AdminResponse, Call, json};

/// All limits, in pages.
pub(super) fn list(call: &Call) -> Result<AdminResponse, Problem> {
    let all = call.state.file.limits().into_iter().map(|one| one.limit);
    let (limits, next) = page(call, all.collect(), |limit| &limit.name)?;
    json(&LimitsAnswer { limits, next })
}

/// One limit.
pub(super) fn one(call: &Call) -> Result<AdminResponse, Problem> {
    let all = call.state.file.limits();
    let found = all.iter().find(|one| one.limit.name == call.segment);
    if let Some(found) = found {
        return json(found);
    }
    let closest = all
        .iter()
        .map(|one| &one.limit.name)
        .min_by_key(|name| strsim::damerau_levenshtein(name, &call.segment));
    let problem = Problem::unknown(
        "unknown_limit",
        "the file in force has no limit of that name",
    );
    Err(match closest {
        Some(name) => problem.help(format!("did you mean `{name}`?")),
        None => problem,
    })
}

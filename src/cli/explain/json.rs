//! An explanation for programs.

use super::counters::{CounterState, LiveVerdict};
use super::outlook::{ExpectedAnswer, LimitOutlook};
use super::request::{AppliedLimit, Explanation, KeyResult, Routing};
use super::text::spelled;
use crate::key::client_ip::{AddressReason, Walk};
use crate::limit::verdict::{VerdictOutcome, Wait};
use serde_json::{Value, json};

/// The whole explanation as one object.
pub(super) fn object(explanation: &Explanation) -> Value {
    let routing = explanation.routing.as_ref();
    let (status, by, reason, limits) = match &explanation.answer {
        ExpectedAnswer::Itself(status, why) => (Some(status), "gateway", Some(why), None),
        ExpectedAnswer::Route(status, says, limits)
        | ExpectedAnswer::Lacking(status, says, limits) => {
            (Some(status), "gateway", Some(says), Some(limits))
        }
        ExpectedAnswer::Upstream(limits) => (None, "upstream", None, Some(limits)),
    };
    let held = match limits {
        Some(LimitOutlook::Room(delay)) => Some(delay),
        Some(LimitOutlook::None | LimitOutlook::Unasked) | None => None,
    };
    json!({
        "method": explanation.method.as_str(),
        "target": explanation.target,
        "host": routing.map(|routing| &routing.host),
        "path": routing.map(|routing| json!({ "matched": routing.matched, "forwarded": routing.forwarded })),
        "client": client(&explanation.client, &explanation.peer.to_string()),
        "route": routing.and_then(route),
        "near": routing.map(|routing| {
            let near = routing.near.iter();
            near.map(|near| json!({ "route": &*near.name, "at": near.place, "why": near.why })).collect::<Vec<_>>()
        }),
        "dropped": routing.map(|routing| {
            let lost = routing.lost.iter();
            lost.map(|lost| json!({ "field": lost.name.as_str(), "why": lost.why.to_string() })).collect::<Vec<_>>()
        }),
        "token": routing.and_then(|routing| routing.token).map(|why| why.as_str()),
        "limits": routing.map(|routing| routing.limits.iter().map(limit).collect::<Vec<_>>()),
        "answer": { "by": by, "status": status, "reason": reason, "held_us": held },
    })
}

fn client(walk: &Walk, peer: &str) -> Value {
    let (why, field) = match walk.why {
        AddressReason::NobodyTrusted => ("nobody_trusted", None),
        AddressReason::Stranger => ("peer_not_trusted", None),
        AddressReason::Unsaid => ("trusted_peer_names_nobody", None),
        AddressReason::Said(field) => ("walked", Some(spelled(field))),
        AddressReason::Disagree(field) => ("fields_disagree", Some(spelled(field))),
    };
    let hops = walk.hops.iter().map(|hop| {
        let address = hop.address.map(|address| address.to_string());
        json!({ "field": spelled(hop.field), "address": address, "trusted": hop.trusted })
    });
    json!({
        "address": walk.client.to_string(),
        "peer": peer,
        "why": why,
        "field": field,
        "hops": hops.collect::<Vec<_>>(),
    })
}

fn route(routing: &Routing) -> Option<Value> {
    let route = routing.route.as_ref()?;
    Some(json!({
        "name": &*route.name,
        "at": route.place,
        "upstream": route.upstream.as_deref(),
        "servers": route.servers,
    }))
}

fn now(left: &CounterState) -> Value {
    match left {
        CounterState::Units {
            remaining,
            of,
            reset,
        } => json!({ "remaining": remaining, "of": of, "reset_us": reset }),
        CounterState::Unknown => json!({ "known": false }),
        CounterState::Failed(why) => json!({ "error": why }),
    }
}

fn outcome(outcome: VerdictOutcome) -> &'static str {
    match outcome {
        VerdictOutcome::Admit { delay: 0 } => "admit",
        VerdictOutcome::Admit { .. } => "delay",
        VerdictOutcome::Refuse(_) => "refuse",
    }
}

/// How long it is held, or refused; nothing where that is not known.
fn wait(now: &LiveVerdict) -> Option<u64> {
    match now.outcome {
        VerdictOutcome::Admit { delay } => Some(delay),
        VerdictOutcome::Refuse(Wait::Micros(wait)) if now.is_exact => Some(wait),
        VerdictOutcome::Refuse(_) => None,
    }
}

fn limit(held: &AppliedLimit) -> Value {
    let mut limit = json!({
        "name": &*held.limit.name,
        "mode": held.limit.mode.as_str(),
        "window": held.limit.window.as_deref(),
        "at": held.place,
        "means": held.means,
        "by": held.by,
    });
    match &held.key {
        KeyResult::Skipped | KeyResult::Exempt(_) => {
            limit["applies"] = false.into();
            limit["exempt"] = matches!(held.key, KeyResult::Exempt(_)).into();
            if let KeyResult::Exempt(group) = &held.key {
                limit["group"] = group.as_deref().into();
            }
        }
        KeyResult::Ambiguous(part) => {
            limit["applies"] = true.into();
            limit["ambiguous"] = part.as_str().into();
        }
        KeyResult::Absent(part) => {
            limit["applies"] = true.into();
            limit["absent"] = part.as_str().into();
        }
        KeyResult::Unknown(part) => {
            limit["applies"] = true.into();
            limit["unknown"] = part.as_str().into();
        }
        KeyResult::Unbelieved(part) => {
            limit["applies"] = true.into();
            limit["unbelieved"] = part.as_str().into();
        }
        KeyResult::LeftOut(part) => {
            limit["applies"] = false.into();
            limit["exempt"] = false.into();
            limit["left_out"] = part.as_str().into();
        }
        KeyResult::Counted {
            key,
            cost,
            misquoted,
            fresh,
            ..
        } => {
            limit["applies"] = true.into();
            limit["group"] = held.tier.as_ref().map(|(group, _)| &**group).into();
            limit["tier"] = held.tier.as_ref().map(|(_, means)| means.as_str()).into();
            limit["key"] = key.as_str().into();
            limit["cost"] = (*cost).into();
            limit["misquoted"] = misquoted.map(|one| one.as_str()).into();
            limit["outlook"] = held.outlook(fresh).into();
            limit["leased"] = held.leased.as_deref().into();
            if let Some(left) = &held.left {
                limit["now"] = now(left);
                if let Some(gets) = &held.now {
                    limit["now"]["outcome"] = outcome(gets.outcome).into();
                    limit["now"]["wait_us"] = wait(gets).into();
                    limit["now"]["takes"] = gets.takes.into();
                }
            }
        }
    }
    limit
}

//! An explanation for programs.

use super::explanation::{
    AppliedLimit, CountedKey, CounterState, ExpectedAnswer, Explanation, KeyFault, KeyResult,
    LimitOutlook, LiveVerdict, Routing,
};
use super::server_choice::ServerChoice;
use super::text::spelled;
use crate::client;
use crate::key::client_ip::{AddressReason, Walk};
use crate::limit::verdict::{VerdictOutcome, Wait};
use serde_json::{Value, json};

/// The whole explanation as one object.
pub(super) fn object(explanation: &Explanation) -> Value {
    let routing = explanation.routing.as_ref();
    json!({
        "method": explanation.method.as_str(),
        "target": explanation.target,
        "host": routing.map(|routing| &routing.host),
        "path": routing.map(|routing| json!({ "matched": routing.matched, "forwarded": routing.forwarded })),
        "client": walk(&explanation.client, &client::spelled(explanation.peer)),
        "tls": explanation.handshake,
        "route": routing.and_then(route),
        "near": routing.map(|routing| {
            let all = routing.candidates.iter();
            all.map(|one| json!({ "route": &*one.name, "at": one.place, "why": one.why })).collect::<Vec<_>>()
        }),
        "dropped": routing.map(|routing| {
            let all = routing.stripped.iter();
            all.map(|one| json!({ "field": one.name.as_str(), "why": one.why.to_string() })).collect::<Vec<_>>()
        }),
        "server": routing.and_then(|routing| routing.server.as_ref()).map(ServerChoice::json),
        "asked_host": routing.and_then(|routing| routing.asked_host.as_deref()),
        "identity": routing.map(|routing| {
            let all = routing.identity.iter();
            all.map(|(name, value)| json!({ "field": name.as_str(), "value": value })).collect::<Vec<_>>()
        }),
        "customer": routing.and_then(|routing| routing.customer.as_ref()).map(|customer| {
            let groups: Vec<&str> = customer.groups.iter().map(|(name, _)| &**name).collect();
            let places: Vec<Option<&str>> = customer.groups.iter().map(|(_, at)| at.as_deref()).collect();
            json!({ "name": customer.name, "groups": groups, "at": places, "has_credential": customer.has_credential })
        }),
        "limits_before_token": routing.map(|routing| {
            let all = routing.before_token.iter();
            all.map(|name| &**name).collect::<Vec<&str>>()
        }),
        "token": routing.and_then(|routing| routing.token).map(|why| why.as_str()),
        "unknown": explanation.unknown,
        "limits": routing.map(|routing| routing.limits.iter().map(limit).collect::<Vec<_>>()),
        "answer": match &explanation.handshake {
            Some(handshake) if handshake.is_refused => {
                json!({ "by": "handshake", "status": null, "reason": "refused", "held_us": null })
            }
            _ => answer(&explanation.answer),
        },
    })
}

fn answer(answer: &ExpectedAnswer) -> Value {
    let held = match answer.limits {
        Some(LimitOutlook::Room(delay)) => Some(delay),
        Some(LimitOutlook::None | LimitOutlook::Unasked) | None => None,
    };
    match &answer.gateway_answer {
        Some(gateway_answer) => {
            json!({ "by": "gateway", "status": gateway_answer.status, "reason": gateway_answer.reason, "held_us": held })
        }
        None if answer.is_unknown => {
            json!({ "by": "unknown", "status": null, "reason": null, "held_us": held })
        }
        None => json!({ "by": "upstream", "status": null, "reason": null, "held_us": held }),
    }
}

fn walk(walk: &Walk, peer: &str) -> Value {
    let (why, field) = match walk.why {
        AddressReason::NobodyTrusted => ("nobody_trusted", None),
        AddressReason::Stranger => ("peer_not_trusted", None),
        AddressReason::Unsaid => ("trusted_peer_names_nobody", None),
        AddressReason::Said(field) => ("walked", Some(spelled(walk, field))),
        AddressReason::Disagree(field) => ("fields_disagree", Some(spelled(walk, field))),
    };
    let hops = walk.hops.iter().map(|hop| {
        let address = hop.address.map(|address| address.to_string());
        json!({ "field": spelled(walk, hop.field), "address": address, "trusted": hop.trusted })
    });
    json!({
        "address": client::spelled(walk.client),
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

fn state(state: &CounterState) -> Value {
    match state {
        CounterState::Units {
            remaining,
            of,
            reset,
            ..
        } => json!({ "remaining": remaining, "of": of, "reset_us": reset }),
        CounterState::Blocked { left } => json!({ "blocked_us": left }),
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

/// The time for which the request is held, or until it would be admitted; `None` if unknown.
fn wait(live: &LiveVerdict) -> Option<u64> {
    match live.outcome {
        VerdictOutcome::Admit { delay } => Some(delay),
        VerdictOutcome::Refuse(Wait::Micros(wait)) if live.is_exact => Some(wait),
        VerdictOutcome::Refuse(_) => None,
    }
}

fn limit(applied: &AppliedLimit) -> Value {
    let mut limit = json!({
        "name": &*applied.limit.name,
        "mode": applied.limit.mode.as_str(),
        "window": applied.limit.window.as_deref(),
        "at": applied.place,
        "means": applied.means,
        "by": applied.by,
        "applies": true,
    });
    let of_key = match &applied.key {
        KeyResult::Skipped => json!({ "applies": false, "exempt": false }),
        KeyResult::Exempt(group) => {
            json!({ "applies": false, "exempt": true, "group": group.as_deref() })
        }
        KeyResult::Faulty(fault @ KeyFault::LeftOut, part) => {
            json!({ "applies": false, "exempt": false, (fault.as_str()): part })
        }
        KeyResult::Faulty(fault, part) => json!({ (fault.as_str()): part }),
        KeyResult::Counted(counted) => charge(applied, counted),
    };
    for (name, value) in of_key.as_object().into_iter().flatten() {
        limit[name] = value.clone();
    }
    limit
}

/// The cost of the request, and the counter that it charges.
fn charge(applied: &AppliedLimit, counted: &CountedKey) -> Value {
    // A customer's own numbers come before those of a tier.
    let tier = applied.tier.as_ref().filter(|_| applied.numbers.is_none());
    let mut charge = json!({
        "group": tier.map(|(group, _)| &**group),
        "tier": tier.map(|(_, means)| means),
        "own": applied.numbers.as_ref().map(|numbers| {
            json!({ "place": numbers.place, "means": numbers.means })
        }),
        "key": counted.key,
        "cost": counted.cost,
        "misquoted": counted.misquoted.map(|one| one.as_str()),
        "outlook": applied.outlook(&counted.fresh),
        "leased": applied.leased,
    });
    if let Some(read) = &applied.state {
        charge["now"] = state(read);
        if let Some(live) = &applied.live {
            charge["now"]["outcome"] = outcome(live.outcome).into();
            charge["now"]["wait_us"] = wait(live).into();
            charge["now"]["takes"] = live.takes.into();
        }
    }
    charge
}

//! An explanation for people.

use super::counters::CounterState;
use super::outlook::{ExpectedAnswer, LimitOutlook};
use super::request::{ASSUMED_HOST, AppliedLimit, ChosenRoute, Explanation, KeyResult, Routing};
use super::stripped_fields::StrippedField;
use crate::config::describe;
use crate::key::client_ip::{AddressReason, Field, Walk};
use crate::limit::verdict::{VerdictOutcome, Wait};
use std::fmt::Write as _;
use std::net::IpAddr;

/// More routes than this that came near are counted, not shown.
const MOST_NEAR: usize = 5;

/// The whole explanation.
pub(super) fn text(explanation: &Explanation) -> String {
    let Explanation {
        method,
        target,
        peer,
        client,
        routing,
        answer,
    } = explanation;
    let mut out = format!("{method} {target} from {peer}\n\n");
    if let Some(routing) = routing {
        route(routing, &mut out);
    }
    line(&mut out, "client", &walked(client, *peer));
    if let Some(routing) = routing {
        for (at, StrippedField { name, why }) in routing.lost.iter().enumerate() {
            let title = if at == 0 { "dropped" } else { "" };
            line(&mut out, title, &format!("{name}, since {why}"));
        }
        let matched = &routing.matched;
        let path = match &routing.forwarded {
            None => format!("{matched}: matched; nothing is forwarded"),
            Some(same) if same == matched => format!("{matched}: matched, and forwarded"),
            Some(other) => format!("{matched}: matched; forwarded as {other}"),
        };
        line(&mut out, "path", &path);
        if let Some(why) = routing.token {
            let why = format!("claims nothing: it is {}", why.as_str());
            line(&mut out, "token", &why);
        }
        for (at, held) in routing.limits.iter().enumerate() {
            limit(held, if at == 0 { "limits" } else { "" }, &mut out);
        }
        if routing.limits.is_empty() {
            line(&mut out, "limits", "none");
        }
    }
    line(&mut out, "answer", &ending(answer));
    out
}

/// Writing into a string cannot fail.
fn line(out: &mut String, title: &str, text: &str) {
    let _ = writeln!(out, "{title:8}{text}");
}

fn at(place: Option<&str>) -> String {
    place.map_or(String::new(), |place| format!(" ({place})"))
}

fn route(routing: &Routing, out: &mut String) {
    let host = if routing.host_assumed {
        format!("{ASSUMED_HOST}, since no other was given with --host")
    } else {
        routing.host.clone()
    };
    line(out, "host", &host);
    let chosen = match &routing.route {
        None => "none: no route takes it".to_owned(),
        Some(ChosenRoute {
            name,
            place,
            upstream,
            servers,
        }) => {
            let to = upstream
                .as_ref()
                .map_or("answers itself".into(), |upstream| {
                    format!("to upstream {upstream}: {}", servers.join(", "))
                });
            format!("{name}{} {to}", at(place.as_deref()))
        }
    };
    line(out, "route", &chosen);
    for near in routing.near.iter().take(MOST_NEAR) {
        let place = at(near.place.as_deref());
        line(out, "", &format!("not {}{place}: {}", near.name, near.why));
    }
    if let Some(more @ 1..) = routing.near.len().checked_sub(MOST_NEAR) {
        line(out, "", &format!("nor {more} more that came near"));
    }
}

/// The client's address and why.
fn walked(walk: &Walk, peer: IpAddr) -> String {
    let client = walk.client;
    let hops = |field: Field| {
        let hops = walk.hops.iter().filter(|hop| hop.field == field);
        let shown: Vec<String> = hops
            .map(|hop| match (hop.address, hop.trusted) {
                (Some(address), true) => format!("{address} is trusted"),
                (Some(address), false) => format!("{address} is not"),
                (None, _) => "an entry that is no address ends it".to_owned(),
            })
            .collect();
        shown.join(", ")
    };
    match walk.why {
        AddressReason::NobodyTrusted => {
            format!("{client}: the peer's own, since [server] trust names nobody")
        }
        AddressReason::Stranger => {
            format!("{client}: the peer's own, since [server] trust does not name it")
        }
        AddressReason::Unsaid => {
            format!("{client}: the peer's own; it is trusted, and names nobody else")
        }
        AddressReason::Said(field) => format!(
            "{client}: {peer} is trusted, and {} is walked from the right: {}",
            spelled(field),
            hops(field)
        ),
        AddressReason::Disagree(field) => format!(
            "{client}: X-Forwarded-For ({}) and Forwarded ({}) name different clients, and {} is believed; \
             say in [server] trust_field which of them your proxies write",
            hops(Field::XForwardedFor),
            hops(Field::Forwarded),
            spelled(field)
        ),
    }
}

pub(super) fn spelled(field: Field) -> &'static str {
    match field {
        Field::XForwardedFor => "X-Forwarded-For",
        Field::Forwarded => "Forwarded",
    }
}

fn limit(held: &AppliedLimit, title: &str, out: &mut String) {
    let limit = &held.limit;
    let window = limit.window.as_ref();
    let window = window.map_or(String::new(), |window| format!(" {window}"));
    let name = format!("{}{window}{}", limit.shown(), at(held.place.as_deref()));
    line(out, title, &format!("{name}: {}", held.means));
    let by = &held.by;
    match &held.key {
        KeyResult::Skipped => line(
            out,
            "",
            &format!("  does not apply: the request has no {by}"),
        ),
        KeyResult::Exempt(None) => line(out, "", "  does not apply: it exempts such requests"),
        KeyResult::Exempt(Some(group)) => {
            let why =
                format!("  does not apply: it exempts group {group}, and the client is in it");
            line(out, "", &why);
        }
        KeyResult::Ambiguous(part) => {
            let refuses = if limit.mode.decides() {
                "refuses with 400"
            } else {
                "would refuse, and refuses nobody"
            };
            line(
                out,
                "",
                &format!("  {refuses}: {part} came several times and differs"),
            );
        }
        KeyResult::LeftOut(part) => {
            let why = format!("  is not asked: nobody knows the request's {part}");
            line(out, "", &why);
        }
        KeyResult::Absent(part) | KeyResult::Unknown(part) | KeyResult::Unbelieved(part) => {
            let refuses = if limit.mode.decides() {
                "refuses"
            } else {
                "would refuse, and refuses nobody"
            };
            let why = match &held.key {
                KeyResult::Unknown(_) => format!("no group knows the request's {part}"),
                KeyResult::Unbelieved(_) => {
                    format!("{part} is asked for, and the request's token is not believed")
                }
                _ => format!("the request has no {part}"),
            };
            line(out, "", &format!("  {refuses}: {why}"));
        }
        KeyResult::Counted {
            key,
            cost,
            misquoted,
            fresh,
            ..
        } => {
            match &held.tier {
                Some((group, means)) => {
                    line(
                        out,
                        "",
                        &format!("  for group {group}, which the client is in: {means}"),
                    );
                }
                None if !limit.tiers.is_empty() => {
                    let groups = limit.tiers.iter().map(|tier| &*tier.group.name);
                    let groups = groups.collect::<Vec<_>>().join(", ");
                    line(
                        out,
                        "",
                        &format!("  for everyone: the client is not in {groups}"),
                    );
                }
                None => {}
            }
            let key = match key.as_str() {
                "" => "on its one counter".to_owned(),
                key => format!("by {by} on the key {key}"),
            };
            let why = misquoted.zip(limit.price.as_ref());
            let why = why.map_or(String::new(), |(misquoted, price)| {
                format!(
                    ", the most, since {} is {}",
                    price.header,
                    misquoted.as_str()
                )
            });
            line(out, "", &format!("  counts {cost}{why}, {key}"));
            line(out, "", &format!("  {}", held.outlook(fresh)));
            if let Some(leased) = &held.leased {
                line(out, "", &format!("  {leased}"));
            }
            if let Some(left) = &held.left {
                line(out, "", &format!("  {}{}", now(left), gets(held, *cost)));
            }
        }
    }
}

/// What the running gateway said.
fn now(left: &CounterState) -> String {
    match left {
        CounterState::Units {
            remaining,
            of,
            reset: 0,
        } => format!("now: {remaining} of {of} left"),
        CounterState::Units {
            remaining,
            of,
            reset,
        } => format!(
            "now: {remaining} of {of} left, all of it in {}",
            describe::rounded_up(*reset)
        ),
        CounterState::Unknown => "now: the running gateway has no such limit".to_owned(),
        CounterState::Failed(why) => format!("now: it could not be looked at: {why}"),
    }
}

/// What this request gets from what is left.
fn gets(held: &AppliedLimit, cost: u32) -> String {
    let Some(now) = held.now else {
        return String::new();
    };
    let wait = match now.outcome {
        VerdictOutcome::Admit { .. } if now.takes == 0 && cost > 0 => {
            return "; this takes nothing of it, since another refuses".to_owned();
        }
        VerdictOutcome::Admit { delay: 0 } => return format!("; this takes {}", now.takes),
        VerdictOutcome::Admit { delay } => {
            let delay = describe::rounded_up(delay);
            return format!("; this takes {}, and is held for {delay}", now.takes);
        }
        VerdictOutcome::Refuse(wait) => wait,
    };
    let until = match wait {
        Wait::Micros(wait) if now.is_exact => {
            format!(", for another {}", describe::rounded_up(wait))
        }
        Wait::Micros(_) | Wait::Never => String::new(),
    };
    if held.limit.mode.decides() {
        format!("; refuses this with {}{until}", held.status())
    } else {
        format!("; would refuse this{until}, and refuses nobody")
    }
}

fn ending(answer: &ExpectedAnswer) -> String {
    let (what, limits) = match answer {
        ExpectedAnswer::Itself(status, why) => return format!("{status} by the gateway: {why}"),
        ExpectedAnswer::Upstream(limits) => ("the upstream's".to_owned(), *limits),
        ExpectedAnswer::Route(status, says, limits) => {
            (format!("{status} by the gateway: {says}"), *limits)
        }
        ExpectedAnswer::Lacking(status, why, limits) => return lacking(*status, why, *limits),
    };
    match limits {
        LimitOutlook::None => format!("{what}; no limit applies"),
        LimitOutlook::Unasked => {
            format!("{what}, unless a limit refuses; nothing was counted here")
        }
        LimitOutlook::Room(0) => {
            format!("{what}; every limit has room for it now, and nothing was counted here")
        }
        LimitOutlook::Room(delay) => format!(
            "{what}, after it was held for {}; nothing was counted here",
            describe::rounded_up(delay)
        ),
    }
}

/// How a request ends that lacks what one of its limits demands. The others are asked and charged.
fn lacking(status: u16, why: &str, limits: LimitOutlook) -> String {
    let what = format!("{status} by the gateway: {why}");
    match limits {
        LimitOutlook::None => format!("{what}; no other limit counts it"),
        LimitOutlook::Unasked => format!(
            "{what}; the other limits count it, and where one refuses its answer goes first; nothing was counted here"
        ),
        LimitOutlook::Room(0) => format!(
            "{what}; the other limits count it and have room for it now; nothing was counted here"
        ),
        LimitOutlook::Room(delay) => format!(
            "{what}, after it was held for {}; the other limits count it; nothing was counted here",
            describe::rounded_up(delay)
        ),
    }
}

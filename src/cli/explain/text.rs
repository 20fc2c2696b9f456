//! An explanation for people.

use super::explanation::{
    AppliedLimit, ChosenRoute, CountedKey, CounterState, ExpectedAnswer, ExplainedCustomer,
    ExplainedNumbers, Explanation, KeyFault, KeyResult, LimitOutlook, LiveVerdict, Routing,
    StrippedField,
};
use super::handshake::HandshakeOutlook;
use super::request::ASSUMED_HOST;
use crate::client;
use crate::clock;
use crate::config::describe;
use crate::key::TokenDoubt;
use crate::key::client_ip::{AddressReason, Field, Walk};
use crate::limit::verdict::{VerdictOutcome, Wait};
use http::HeaderName;
use std::fmt::Write as _;

/// Candidates beyond this number are counted, not shown.
const MOST_CANDIDATES: usize = 5;

/// The whole explanation.
pub(super) fn explanation_text(explanation: &Explanation) -> String {
    let Explanation {
        method,
        target,
        peer,
        client,
        unknown,
        handshake,
        routing,
        answer,
    } = explanation;
    let peer = client::spelled(*peer);
    let mut out = format!("{method} {target} from {peer}\n\n");
    for (title, text) in handshake.iter().flat_map(HandshakeOutlook::lines) {
        line(&mut out, title, &text);
    }
    if handshake
        .as_ref()
        .is_some_and(|handshake| handshake.is_refused)
    {
        line(&mut out, "answer", "none, since the handshake is refused");
        return out;
    }
    if let Some(routing) = routing {
        route(routing, &mut out);
    }
    line(&mut out, "client", &walk(client, &peer));
    if let Some(routing) = routing {
        request(routing, &mut out);
        for (at, applied) in routing.limits.iter().enumerate() {
            limit(applied, if at == 0 { "limits" } else { "" }, &mut out);
        }
        if routing.limits.is_empty() {
            line(&mut out, "limits", "none");
        }
    }
    for (at, unknown) in unknown.iter().enumerate() {
        let title = if at == 0 { "unknown" } else { "" };
        line(&mut out, title, unknown.text());
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
        None => "none: no route takes the request".to_owned(),
        Some(ChosenRoute {
            name,
            place,
            upstream,
            servers,
        }) => {
            let to = match upstream {
                None => "answers itself".to_owned(),
                Some(upstream) => format!("to upstream {upstream}: {}", servers.join(", ")),
            };
            format!("{name}{} {to}", at(place.as_deref()))
        }
    };
    line(out, "route", &chosen);
    for candidate in routing.candidates.iter().take(MOST_CANDIDATES) {
        let place = at(candidate.place.as_deref());
        let text = format!("not {}{place}: {}", candidate.name, candidate.why);
        line(out, "", &text);
    }
    if let Some(more @ 1..) = routing.candidates.len().checked_sub(MOST_CANDIDATES) {
        line(out, "", &format!("nor {more} more routes that are similar"));
    }
}

/// The fields, the path and the token of the request.
fn request(routing: &Routing, out: &mut String) {
    for (at, StrippedField { name, why }) in routing.stripped.iter().enumerate() {
        let title = if at == 0 { "dropped" } else { "" };
        line(out, title, &format!("{name}, since {why}"));
    }
    let matched = &routing.matched;
    let path = match &routing.forwarded {
        None => format!("{matched}: matched; nothing is forwarded"),
        Some(same) if same == matched => format!("{matched}: matched, and forwarded"),
        Some(other) => format!("{matched}: matched; forwarded as {other}"),
    };
    line(out, "path", &path);
    if let Some(server) = &routing.server {
        line(out, "server", &server.text());
    }
    if let Some(host) = &routing.asked_host {
        line(
            out,
            "asks",
            &format!("for {host}, in place of the client's host"),
        );
    }
    if let Some(customer) = &routing.customer {
        line(out, "is", &customer_text(customer));
    }
    for (at, (name, value)) in routing.identity.iter().enumerate() {
        let title = if at == 0 { "tells" } else { "" };
        let text = match value {
            Some(value) => format!("{name}: {value}"),
            None => format!("{name} is not sent: there is no verified value for it"),
        };
        line(out, title, &text);
    }
    if !routing.before_token.is_empty() {
        let names = routing.before_token.join(", ");
        let text = format!(
            "checked after {names}, limits of all routes that may take the request: no signature is verified if these limits are known to refuse"
        );
        line(out, "token", &text);
    }
    if let Some(why) = routing.token {
        let why = match why {
            TokenDoubt::KeysUnread => {
                "is not verified: its issuer's keys are at a URL, and were not read".to_owned()
            }
            why => format!("claims nothing: it is {}", why.as_str()),
        };
        line(out, "token", &why);
    }
}

/// The client's address, and the reason for this address.
fn walk(walk: &Walk, peer: &str) -> String {
    let client = client::spelled(walk.client);
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
            format!("{client}: the peer's own, since [server] trust names no network")
        }
        AddressReason::Stranger => {
            format!("{client}: the peer's own, since [server] trust does not name it")
        }
        AddressReason::Unsaid => {
            format!("{client}: the peer's own; the peer is trusted, and names no client")
        }
        AddressReason::Said(Field::Single) => format!(
            "{client}: {peer} is trusted, and its {} names the client: {}",
            spelled(walk, Field::Single),
            hops(Field::Single)
        ),
        AddressReason::Said(field) => format!(
            "{client}: {peer} is trusted, and {} is read from the right: {}",
            spelled(walk, field),
            hops(field)
        ),
        AddressReason::Disagree(field) => format!(
            "{client}: X-Forwarded-For ({}) and Forwarded ({}) name different clients, and {} is trusted; say in [server] trust_field which of the two fields your proxies write",
            hops(Field::XForwardedFor),
            hops(Field::Forwarded),
            spelled(walk, field)
        ),
    }
}

pub(super) fn spelled(walk: &Walk, field: Field) -> &str {
    match field {
        Field::XForwardedFor => "X-Forwarded-For",
        Field::Forwarded => "Forwarded",
        Field::Single => walk.single.as_ref().map_or("", HeaderName::as_str),
    }
}

fn limit(applied: &AppliedLimit, title: &str, out: &mut String) {
    let limit = &applied.limit;
    let window = limit.window.as_ref();
    let window = window.map_or(String::new(), |window| format!(" {window}"));
    let name = format!("{}{window}{}", limit.shown(), at(applied.place.as_deref()));
    line(out, title, &format!("{name}: {}", applied.means));
    let mut detail = |text: &str| line(out, "", &format!("  {text}"));
    match &applied.key {
        KeyResult::Skipped => {
            let by = &applied.by;
            detail(&format!("does not apply: the request has no {by}"));
        }
        KeyResult::Exempt(None) => detail("does not apply: the limit exempts such requests"),
        KeyResult::Exempt(Some(group)) => detail(&format!(
            "does not apply: the limit exempts group {group}, which the client is in"
        )),
        KeyResult::Faulty(fault, part) => {
            let decides = applied.limit.mode.decides();
            detail(&key_fault(*fault, part, decides));
        }
        KeyResult::Counted(counted) => {
            tier(applied).iter().for_each(|text| detail(text));
            detail(&charge(applied, counted));
            detail(&applied.outlook(&counted.fresh));
            if let Some(leased) = &applied.leased {
                detail(leased);
            }
            if let Some(read) = &applied.state {
                let gets = applied.live.map(|live| gets(applied, &live, counted.cost));
                detail(&format!("{}{}", state(read), gets.unwrap_or_default()));
            }
        }
    }
}

/// The reason why the limit has no key for the request.
fn key_fault(fault: KeyFault, part: &str, decides: bool) -> String {
    let refuses = match fault {
        _ if !decides => "would refuse, but lets the request pass",
        KeyFault::Ambiguous | KeyFault::Malformed | KeyFault::DifferentCustomers => {
            "refuses with 400"
        }
        _ => "refuses",
    };
    match fault {
        KeyFault::LeftOut => format!("is not asked: no group knows the request's {part}"),
        KeyFault::Ambiguous => {
            format!("{refuses}: {part} came several times with different values")
        }
        KeyFault::Malformed => format!("{refuses}: {part} is malformed"),
        KeyFault::DifferentCustomers => {
            format!("{refuses}: the request has credentials of different customers")
        }
        KeyFault::Unknown => format!("{refuses}: no group knows the request's {part}"),
        KeyFault::Absent => format!("{refuses}: the request has no {part}"),
        KeyFault::KeysUnread => {
            format!("counts by {part}, which the token states: this cannot be verified here")
        }
        KeyFault::Untrusted => {
            format!("{refuses}: {part} is needed, and the request's token is not trusted")
        }
    }
}

/// `customer acme, pro, pro-keys.txt:17; gold, gold.txt:3`.
fn customer_text(customer: &ExplainedCustomer) -> String {
    let groups = customer.groups.iter().map(|(group, place)| match place {
        Some(place) => format!("{group}, {place}"),
        None => group.to_string(),
    });
    let mut text = format!("customer {}", customer.name);
    for (position, group) in groups.enumerate() {
        text.push_str(if position == 0 { ", " } else { "; " });
        text.push_str(&group);
    }
    if !customer.has_credential {
        text.push_str("; no credential is known for it");
    }
    text
}

/// The numbers of the customer or the tier that apply, if the limit has any.
fn tier(applied: &AppliedLimit) -> Option<String> {
    if let Some(numbers) = &applied.numbers {
        let ExplainedNumbers {
            customer,
            place,
            means,
        } = numbers;
        return Some(format!("own numbers of {customer} ({place}): {means}"));
    }
    if let Some((group, means)) = &applied.tier {
        return Some(format!(
            "for group {group}, which the client is in: {means}"
        ));
    }
    let groups = applied.limit.tiers.iter().map(|tier| &*tier.group.name);
    let groups = groups.collect::<Vec<_>>().join(", ");
    (!groups.is_empty()).then(|| format!("for everyone: the client is not in {groups}"))
}

/// The cost of the request, and the counter that it charges.
fn charge(applied: &AppliedLimit, counted: &CountedKey) -> String {
    let key = match counted.key.as_str() {
        "" => "on its one counter".to_owned(),
        key => format!("by {} on the key {key}", applied.by),
    };
    let why = counted.misquoted.zip(applied.limit.price.as_ref());
    let why = why.map_or(String::new(), |(misquoted, price)| {
        let (header, fault) = (&price.header, misquoted.as_str());
        format!(", the most, since {header} is {fault}")
    });
    format!("counts {}{why}, {key}", counted.cost)
}

/// The state of the counter in the running gateway.
fn state(state: &CounterState) -> String {
    match state {
        CounterState::Units {
            remaining,
            of,
            reset: 0,
            ..
        } => format!("now: {remaining} of {of} left"),
        CounterState::Units {
            remaining,
            of,
            reset,
            ..
        } => format!(
            "now: {remaining} of {of} left, all of it in {}",
            describe::rounded_up(*reset)
        ),
        CounterState::Blocked { left } => format!(
            "now: the key is blocked for another {}, until {}",
            describe::rounded_up(*left),
            describe::show_instant(clock::wall().plus(*left + 999_999).seconds())
        ),
        CounterState::Unknown => "now: the running gateway has no such limit".to_owned(),
        CounterState::Failed(why) => format!("now: the counter could not be read: {why}"),
    }
}

/// The counter's verdict on the request.
fn gets(applied: &AppliedLimit, live: &LiveVerdict, cost: u64) -> String {
    let takes = live.takes;
    let wait = match live.outcome {
        VerdictOutcome::Admit { .. } if takes == 0 && cost > 0 => {
            return "; the request takes nothing of it, since another limit refuses".to_owned();
        }
        VerdictOutcome::Admit { delay: 0 } => return format!("; the request takes {takes}"),
        VerdictOutcome::Admit { delay } => {
            let delay = describe::rounded_up(delay);
            return format!("; the request takes {takes}, and is held for {delay}");
        }
        VerdictOutcome::Refuse(wait) => wait,
    };
    let until = match wait {
        Wait::Micros(wait) if live.is_exact => {
            format!(", for another {}", describe::rounded_up(wait))
        }
        Wait::Micros(_) | Wait::Never => String::new(),
    };
    if applied.limit.mode.decides() {
        format!("; refuses the request with {}{until}", applied.status())
    } else {
        format!("; would refuse the request{until}, but lets it pass")
    }
}

fn ending(answer: &ExpectedAnswer) -> String {
    let gateway_answer = answer.gateway_answer.as_ref();
    if answer.is_unknown {
        return unknown_ending(answer.limits);
    }
    let what = gateway_answer.map_or("the upstream's".to_owned(), |gateway_answer| {
        format!(
            "{} by the gateway: {}",
            gateway_answer.status, gateway_answer.reason
        )
    });
    let Some(limits) = answer.limits else {
        return what;
    };
    if gateway_answer.is_some_and(|gateway_answer| gateway_answer.is_lack) {
        return lacking(&what, limits);
    }
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

/// The end of a request that depends on unknown facts.
fn unknown_ending(limits: Option<LimitOutlook>) -> String {
    let what = "not known, since it depends on what is unknown above";
    match limits {
        Some(LimitOutlook::Unasked | LimitOutlook::Room(_)) => {
            format!(
                "{what}; the other limits count it, and if one refuses, its answer is sent instead"
            )
        }
        Some(LimitOutlook::None) | None => what.to_owned(),
    }
}

/// The end of a request that does not meet a requirement of one of its limits. The other limits are checked, and charge
/// the request.
fn lacking(what: &str, limits: LimitOutlook) -> String {
    match limits {
        LimitOutlook::None => format!("{what}; no other limit counts it"),
        LimitOutlook::Unasked => format!(
            "{what}; the other limits count it, and if one refuses, its answer is sent instead; nothing was counted here"
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

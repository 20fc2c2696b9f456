//! The notes of `check`: the combined meaning of the limits, and the gaps that they leave.

mod costs;
mod counting;
mod forged_tokens;
pub(super) mod shares;
mod translators;
mod written_values;

use super::orders;
use crate::config::Compiled;
use crate::config::outline::time_text;
use crate::key::{FinalStatus, KeyCase, KeyPart, MemberForm, MeterPlace, MissingKey, UnknownKey};
use crate::limit::{Limit, Mode, Scope};
use crate::snapshot::Service;
use crate::store::{Backend, OnDown};

/// All notes on the file.
pub(super) fn list_notes(compiled: &Compiled) -> Vec<String> {
    let known = [store(compiled), scope(compiled)].into_iter().flatten();
    let known = known.map(str::to_owned);
    let kept = kept_connections(compiled);
    let folders = orders::notes(compiled).into_iter();
    let folders = folders.map(|note| compiled.hide(&note));
    let known = known.chain(kept).chain(translators::list_notes(compiled));
    let known = known.chain(folders);
    let shares = shares::list_notes(compiled).into_iter();
    let shares = shares.map(|note| compiled.hide(&note));
    known.chain(of_limits(compiled)).chain(shares).collect()
}

/// The requirement for a load balancer in front, if there may be one: without its own shorter idle time it sends
/// requests into connections that are just being closed.
fn kept_connections(compiled: &Compiled) -> Option<String> {
    let outline = &compiled.outline;
    let has_one = outline.names_keep_alive || !outline.trust.is_empty();
    has_one.then(|| {
        format!(
            "connections are kept for {} between two requests (`keep_alive`); a balancer in front must close its idle connections sooner",
            time_text(outline.keep_alive)
        )
    })
}

/// The notes on the keys that limits count by, and on how they count.
pub(super) fn of_limits(compiled: &Compiled) -> Vec<String> {
    let known = [bytes(compiled), digests(compiled)].into_iter().flatten();
    let notes = known.chain(certificates(compiled)).chain(guesses(compiled));
    let notes = notes.chain(forged_tokens::list_notes(compiled));
    let notes = notes.chain(counting::list_notes(compiled));
    let notes = notes.chain(written_values::list_notes(compiled));
    let notes = notes.chain(costs::list_notes(compiled));
    notes.map(|note| compiled.hide(&note)).collect()
}

/// The fields that are counted byte for byte, although their server may treat several spellings as one.
fn bytes(compiled: &Compiled) -> Option<String> {
    let limits = compiled.outline.limits.iter();
    let mut names: Vec<&str> = limits
        .filter(|limit| limit.by.case == KeyCase::Sensitive)
        .flat_map(|limit| &limit.by.parts)
        .filter(|part| !part.is_credential())
        .filter_map(|part| Some(part.field()?.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| {
        format!(
            "counted byte for byte: {}; if a server reads several spellings as one value, a client has a counter for each spelling",
            names.join(", ")
        )
    })
}

/// Groups by a credential: the digests are made of one spelling of the credential.
fn digests(compiled: &Compiled) -> Option<String> {
    let mut groups = compiled.outline.groups.iter();
    let group = groups.find(|group| group.by.is_credential())?;
    Some(format!(
        "members of group {} are looked up with their scheme in small letters and one blank: write the digest of `bearer TOKEN`",
        group.name
    ))
}

/// The dependencies of limits and groups that use clients' certificates.
fn certificates(compiled: &Compiled) -> Vec<String> {
    let outline = &compiled.outline;
    let limits = outline.limits.iter();
    let limits = limits.flat_map(|limit| {
        let parts = limit.by.parts.iter();
        parts.map(move |part| (format!("limit {}", limit.name), part))
    });
    let groups = outline.groups.iter();
    let groups = groups.map(|group| (format!("group {}", group.name), &group.by));
    let keyed_by: Vec<(String, &KeyPart)> = limits
        .chain(groups)
        .filter(|(_, part)| part.is_of_certificate())
        .collect();
    let offers = compiled.offers.iter().flatten();
    let identities = offers.flat_map(|offer| offer.identities());
    let checks: Vec<_> = identities
        .filter_map(|identity| identity.client())
        .collect();
    let trust_alike = checks
        .windows(2)
        .all(|pair| pair[0].authorities_digest() == pair[1].authorities_digest());
    let mut notes = Vec::new();
    for (name, part) in keyed_by {
        if checks.is_empty() {
            notes.push(format!(
                "{name} uses `{part}`, and no identity of a listener has `client`: no request has a certificate"
            ));
        } else if part.members() == MemberForm::Fingerprint {
            notes.push(format!(
                "{name} uses `{part}`: a client with a renewed certificate starts afresh; with `tls:subject` it would not"
            ));
        } else if !trust_alike && name.starts_with("group ") {
            notes.push(format!(
                "{name} uses `{part}`, and identities trust different authorities: a certificate with the subject of a member is a member, whichever of them signed it; use `tls:fingerprint` to tell such certificates apart"
            ));
        }
    }
    notes
}

/// Limits whose 401 answers are free, since no other limit of their route counts them.
fn guesses(compiled: &Compiled) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let services = compiled.snapshot.services.iter();
    for (limit, idle) in services.filter_map(free_guesses) {
        let idle = match idle.as_slice() {
            [] => String::new(),
            idle => format!(" ({})", idle.join(", ")),
        };
        let note = format!(
            "a request that {} answers 401 is counted by no other limit{idle}, so guesses cost nothing; a limit by ip would count them",
            limit.name
        );
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// The first limit of the route that refuses requests for their key while every other limit may lack its key or charge
/// nothing; and the reasons for the latter.
fn free_guesses(service: &Service) -> Option<(&Limit, Vec<String>)> {
    let mut limits = service.limits.iter();
    limits.find_map(|limit| {
        if !limit.mode.decides() || !turns_away(limit) {
            return None;
        }
        let others = service.limits.iter();
        let others = others.filter(|other| other.mode != Mode::Candidate);
        let others = others.filter(|other| !other.by.can_be_absent());
        let idle: Option<Vec<String>> = others.map(|other| is_free(other, limit)).collect();
        let mut idle = idle?;
        // The rates of one limit appear once.
        idle.dedup();
        Some((&**limit, idle))
    })
}

/// Does the limit answer 401 for a key?
fn turns_away(limit: &Limit) -> bool {
    let known = limit.by.unknown.as_ref();
    limit.by.missing == MissingKey::Refuse
        || known.is_some_and(|known| known.otherwise == UnknownKey::Refuse)
        || limit.asks_token()
}

/// The reason why `limit` may charge nothing for a guess at the key of `guessed`, if there is one.
fn is_free(limit: &Limit, guessed: &Limit) -> Option<String> {
    let name = &limit.name;
    let methods = |limit: &Limit| match &limit.exempt {
        Some(exempt) => exempt.methods.clone(),
        None => Vec::new(),
    };
    let also = methods(guessed);
    let exempt = methods(limit);
    // A request that both limits exempt gets no 401.
    let exempt = exempt.iter().find(|method| !also.contains(method));
    let least = match (limit.meter.as_ref().map(|meter| &meter.place), &limit.price) {
        // The gateway's own 401 has a cost, too.
        (Some(MeterPlace::Status(costs)), _) => costs.of(FinalStatus::of(guessed.answers.keyless)),
        (_, Some(price)) if price.may_peek => 0,
        (_, Some(price)) => price.default,
        (_, None) => limit.cost.units(),
    };
    if !limit.mode.decides() {
        Some(format!("{name} is a shadow"))
    } else if limit.rule.concurrency().is_some() {
        Some(format!("{name} counts what is in flight"))
    } else if least == 0 {
        Some(format!("{name} may cost 0"))
    } else {
        exempt.map(|method| format!("{name} exempts {method}"))
    }
}

/// The meaning of `scope = "gateway"` for several gateways.
pub(super) fn scope(compiled: &Compiled) -> Option<&'static str> {
    let mut limits = compiled.outline.limits.iter();
    let has_local = limits.any(|limit| limit.scope == Scope::Gateway);
    has_local.then_some(
        "limits with scope = \"gateway\" are counted by each gateway alone, so N gateways together admit N times as much",
    )
}

/// The meaning of `on_down` while Redis cannot be reached.
pub(super) fn store(compiled: &Compiled) -> Option<&'static str> {
    let store = &compiled.boot.store;
    let mut limits = compiled.outline.limits.iter();
    let limited = limits.any(|limit| limit.scope == Scope::Cluster && limit.on_down.is_none());
    match (&store.source, store.on_down) {
        (Backend::Redis(_), OnDown::Local) if limited => Some(
            "while Redis is away each gateway counts alone, as one of the N known gateways: together they admit each limit once, but one request in each gateway where a burst or a window's limit is smaller than N",
        ),
        (Backend::Redis(_), OnDown::Open) if limited => {
            Some("while Redis is away no request is limited (on_down = \"open\")")
        }
        (Backend::Redis(_), OnDown::Closed) if limited => {
            Some("while Redis is away limited requests are answered 503 (on_down = \"closed\")")
        }
        _ => None,
    }
}

//! The notes on costs that the answer decides, and on charges that it gives back.

use super::counting::with_tiers;
use crate::config::Compiled;
use crate::key::{FinalStatus, GrpcStatus, Meter, MeterPlace, OnSilent};
use crate::limit::Limit;
use std::collections::HashSet;

/// All these notes.
pub(super) fn list_notes(compiled: &Compiled) -> Vec<String> {
    let mut seen: HashSet<String> = HashSet::new();
    let limits = compiled.outline.limits.iter();
    let limits = limits.filter(|limit| limit.mode.decides());
    let all = limits.flat_map(|limit| with_tiers(limit.name.to_string(), limit));
    let notes = all.flat_map(|(name, limit)| {
        let notes = [
            free_guesses(&name, limit),
            crowded_out(&name, limit),
            silence(&name, limit),
        ];
        notes.into_iter().flatten()
    });
    // The rates of one limit have the same note.
    notes.filter(|note| seen.insert(note.clone())).collect()
}

/// A limit that gives back what a guess at a password or a key has cost.
fn free_guesses(name: &str, limit: &Limit) -> Option<String> {
    let http = [401, 403].map(|status| (status.to_string(), FinalStatus::of(status)));
    let calls = [GrpcStatus::UNAUTHENTICATED, GrpcStatus::PERMISSION_DENIED]
        .map(|status| (format!("grpc-{}", status.0), FinalStatus::of_call(status)));
    let statuses: Vec<String> = http
        .into_iter()
        .chain(calls)
        .filter(|(_, status)| limit.refund_on.statuses.has(*status))
        .map(|(name, _)| name)
        .collect();
    (!statuses.is_empty()).then(|| {
        let statuses = statuses.join(" and ");
        format!(
            "limit {name} gives {statuses} back: guesses at a password or a key are free there; let another limit count them"
        )
    })
}

/// A limit whose greatest cost is charged before the answer is known.
fn crowded_out(name: &str, limit: &Limit) -> Option<String> {
    let MeterPlace::Status(costs) = &limit.meter.as_ref()?.place else {
        return None;
    };
    let greatest = costs.greatest();
    let together = limit.rule.most() / greatest.max(1);
    Some(format!(
        "limit {name} charges {greatest} until the answer is known: more than {together} requests of a key at once are refused, honest ones, too"
    ))
}

/// What an answer without a number costs.
fn silence(name: &str, limit: &Limit) -> Option<String> {
    let meter: &Meter = limit.meter.as_ref()?;
    let estimate = limit.cost.units();
    match (&meter.place, meter.on_silent) {
        (MeterPlace::Status(_), _) => None,
        (MeterPlace::Header(_), OnSilent::Max) => Some(format!(
            "limit {name} charges {} for a successful answer whose field has no number",
            meter.max
        )),
        (MeterPlace::Json(_), OnSilent::Max) => Some(format!(
            "limit {name} charges {} for a successful answer that has no readable number: encoded bodies, and streams whose client did not ask for the number, cost that much",
            meter.max
        )),
        (MeterPlace::Json(_), OnSilent::Estimate) if meter.max > estimate => Some(format!(
            "limit {name} charges {estimate} for a successful answer that has no readable number: a client that can bring that about (an encoding, a stream without its number) pays no more; `on_silent = \"max\"` charges the most"
        )),
        (_, OnSilent::Estimate) => None,
    }
}

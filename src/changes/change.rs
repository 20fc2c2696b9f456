//! A change as it is shown.

use super::payload::ChangePayload;
use super::request::CounterBefore;
use crate::clock::Timestamp;
use crate::store::changes::{ChangeEntry, Coverage};
use serde::Serialize;

/// A change, as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperatorChange {
    /// The id.
    pub id: String,
    /// `reset`.
    pub kind: &'static str,
    /// The limit's name.
    pub limit: String,
    /// The key.
    pub key: String,
    /// One group, if not all.
    pub group: Option<String>,
    /// One rate of a list, if not all.
    pub window: Option<String>,
    /// The author.
    pub by: String,
    /// `token` or `certificate`.
    pub via: String,
    /// The instant, RFC 3339 in UTC.
    pub at: String,
    /// The end; a reset has none.
    pub until: Option<String>,
    /// Other numbers; a reset has none.
    pub numbers: Option<String>,
    /// What the first counter had before.
    pub before: Option<CounterBefore>,
    /// The author's remark.
    pub note: Option<String>,
    /// The number of the change.
    pub version: u64,
    /// How many gateways have taken it over, in the answer to its author.
    pub taken_by: Option<u32>,
    /// How many gateways there are, in the answer to its author.
    pub gateways: Option<u32>,
    /// `all_gateways` or `this_gateway`.
    pub scope: &'static str,
    /// Was it made before, under the same id?
    pub repeated: bool,
    /// `holds` or `ended`.
    pub state: &'static str,
    /// The instant of its end, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// All changes that a gateway knows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangeView {
    /// The number of the last change.
    pub version: u64,
    /// The changes: those that hold, then those that have ended in the last hour.
    pub changes: Vec<OperatorChange>,
    /// OperatorChanges that do not fit the present file.
    pub suspended: Vec<OperatorChange>,
}

/// The circumstances of a shown change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances {
    pub(super) version: u64,
    pub(super) coverage: Option<Coverage>,
    pub(super) scope: &'static str,
    pub(super) repeated: bool,
}

/// One gateway, which has the change.
pub(super) const ALONE: Coverage = Coverage {
    taken_by: 1,
    gateways: 1,
};

impl OperatorChange {
    /// The change of an entry.
    pub(super) fn of(entry: &ChangeEntry, payload: &ChangePayload, at: Circumstances) -> Self {
        let payload = payload.clone();
        Self {
            id: payload.id,
            kind: entry.kind.word(),
            limit: payload.limit,
            key: payload.key,
            group: payload.group,
            window: payload.window,
            by: payload.by,
            via: payload.via,
            at: rfc3339(entry.born),
            until: None,
            numbers: None,
            before: payload.before,
            note: payload.note,
            version: at.version,
            taken_by: at.coverage.map(|coverage| coverage.taken_by),
            gateways: at.coverage.map(|coverage| coverage.gateways),
            scope: at.scope,
            repeated: at.repeated,
            state: "holds",
            ended: None,
        }
    }
}

/// An instant as text, to the millisecond.
pub(super) fn rfc3339(at: Timestamp) -> String {
    let micros = i64::try_from(at.micros()).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_shown_in_utc() {
        let at = Timestamp::from_micros(1_795_731_362_633_353);
        assert_eq!(rfc3339(at), "2026-11-26T22:16:02.633Z");
    }
}

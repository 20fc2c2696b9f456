//! The costs of requests that their responses state: in a field, or in a body that passes through.

use crate::key::{JsonCost, MOST_COST, Meter, MeterPlace, OnSilent, PriceError};
use crate::limit::Limit;
use crate::proxy::limits::json_probe::{EventProbe, JsonProbe};
use crate::store::Reservation;
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::{CostReport, LimitMetrics};
use http::{HeaderMap, header};
use std::sync::Arc;
use std::time::Duration;

/// Throttles the warnings about fields that are not numbers: every response may have one.
static NONSENSE: Throttle = Throttle::every(Duration::from_secs(10));

/// A body that is read as it passes, for a charge that waits for a number in it.
#[derive(Debug)]
pub(in crate::proxy) struct BodyMeter {
    pub(in crate::proxy) charge: Reservation,
    pub(in crate::proxy) text: BodyFormat,
}

/// A body in which members are looked up.
#[derive(Debug)]
pub(in crate::proxy) enum BodyFormat {
    Json(JsonProbe),
    EventProbe(EventProbe),
}

/// The cost that a response stated for one limit.
#[derive(Debug)]
pub(in crate::proxy) struct ResponseCost {
    /// The limit.
    pub(in crate::proxy) limit: Arc<Limit>,
    /// Did the response state a number?
    pub(in crate::proxy) report: CostReport,
    /// The true number, if the response stated one.
    pub(in crate::proxy) units: Option<u64>,
}

impl ResponseCost {
    /// The cost of `limit` in the response's head.
    pub(in crate::proxy) fn in_head(limit: &Arc<Limit>, meter: &Meter, fields: &HeaderMap) -> Self {
        match meter.of(fields) {
            Ok(units) => Self::of(limit, units),
            Err(wrong) => {
                warn(limit, meter, wrong);
                Self::unreadable(limit)
            }
        }
    }

    /// The cost for a response that stated these units, or none.
    fn of(limit: &Arc<Limit>, units: Option<u64>) -> Self {
        let report = match units {
            Some(_) => CostReport::Number,
            None => CostReport::Nothing,
        };
        let limit = Arc::clone(limit);
        Self {
            limit,
            report,
            units,
        }
    }

    /// Warns if so many consecutive answers had no number that the configured place is probably wrong.
    pub(in crate::proxy) fn warn_of_silence(&self, metrics: &LimitMetrics) {
        let said = match self.report {
            CostReport::Number => true,
            CostReport::Nothing | CostReport::Unreadable | CostReport::SilentMax => false,
            // The cost might have come later.
            CostReport::Left => return,
        };
        let meter = self.limit.meter.as_ref().filter(|one| one.tells_silence);
        let (Some(silent), Some(meter)) = (metrics.cost_said(said), meter) else {
            return;
        };
        let (name, place) = (&self.limit.name, meter.name());
        let place = match &meter.place {
            MeterPlace::Header(_) => format!("in the field `{place}`"),
            MeterPlace::Json(cost) if cost.members().len() > 1 => {
                format!("in the members `{place}` of JSON")
            }
            MeterPlace::Json(_) => format!("in the member `{place}` of JSON"),
            // Every answer has a status.
            MeterPlace::Status(_) => return,
        };
        let charged = match meter.on_silent {
            OnSilent::Max => "`max`, as `on_silent` says",
            OnSilent::Estimate => "its estimate",
        };
        tracing::warn!(
            "cost-never-said: {silent} answers in a row had no number {place}, by which limit {name} charges: each was charged {charged}; is the name right?"
        );
    }

    /// The cost that the final status has.
    pub(in crate::proxy) fn by_status(limit: &Arc<Limit>, units: u64) -> Self {
        Self::of(limit, Some(units))
    }

    /// The cost of a request that has no final status: what it was charged stays.
    pub(in crate::proxy) fn left(limit: &Arc<Limit>) -> Self {
        Self {
            report: CostReport::Left,
            ..Self::of(limit, None)
        }
    }

    /// A cost in whose place the response has something other than a number.
    pub(in crate::proxy) fn unreadable(limit: &Arc<Limit>) -> Self {
        Self {
            report: CostReport::Unreadable,
            ..Self::of(limit, None)
        }
    }
}

/// Warns of a value that is not a number: the charge stays at its estimate.
fn warn(limit: &Limit, meter: &Meter, wrong: PriceError) {
    if let Some(more) = NONSENSE.pass() {
        let (what, name) = (wrong.as_str(), &limit.name);
        let place = meter.name();
        tracing::warn!("{place} of a response is {what}; limit {name} stays at its estimate{more}");
    }
}

impl BodyFormat {
    /// The format of a response's body, in which the members of `cost` are looked up. `None` if the body cannot be read:
    /// it is encoded, or neither JSON nor an event stream.
    pub(in crate::proxy) fn of(cost: &Arc<JsonCost>, fields: &HeaderMap) -> Option<Self> {
        let encoded = fields
            .get_all(header::CONTENT_ENCODING)
            .iter()
            .any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
        let kind = fields.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let kind = kind.to_ascii_lowercase();
        let members = JsonProbe::of(cost);
        match &*kind {
            _ if encoded => None,
            "text/event-stream" => Some(Self::EventProbe(EventProbe::with(members))),
            "application/x-ndjson" | "application/jsonl" => Some(Self::Json(members.in_lines())),
            "application/json" => Some(Self::Json(members)),
            other if other.ends_with("+json") => Some(Self::Json(members)),
            _ => None,
        }
    }
}

impl BodyMeter {
    /// Reads a piece of the body.
    pub(in crate::proxy) fn read(&mut self, bytes: &[u8]) {
        match &mut self.text {
            BodyFormat::Json(members) => members.read(bytes),
            BodyFormat::EventProbe(events) => events.read(bytes),
        }
    }

    /// Ends the body, and returns the cost that it stated for its charge. A client that `has_left` may have stopped
    /// between the numbers of several members: such numbers state no cost.
    #[must_use]
    pub(in crate::proxy) fn end(&self, has_left: bool) -> ResponseCost {
        let limit = &self.charge.limit;
        let members = match &self.text {
            BodyFormat::Json(members) => members,
            BodyFormat::EventProbe(events) => events.members(),
        };
        let meter = limit.meter.as_ref();
        let units = members.units();
        if units.is_none() && members.is_odd() {
            if let Some(meter) = meter {
                warn(limit, meter, PriceError::Malformed);
            }
            return ResponseCost::unreadable(limit);
        }
        let units = units.filter(|_| !has_left || members.is_complete());
        let most = meter.map_or(MOST_COST, |meter| meter.max);
        ResponseCost::of(limit, units.map(|units| units.min(most)))
    }
}

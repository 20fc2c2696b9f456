//! Charges that come back: after a server's error, or when the request is given up before anything was forwarded; and those
//! that are settled when the response says what its request has cost.

use super::error::ProxyError;
use super::response_cost::{self, BodyMeter, ResponseCost};
use crate::key::{MeterPlace, OnLeave};
use crate::limit::{RefundCondition, rate};
use crate::store::{Charge, Decider, Store};
use crate::telemetry::metrics::CostReport;
use http::{HeaderMap, StatusCode};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a request has paid to limits that may give it back. Each charge goes back once, or never.
#[derive(Debug)]
pub(super) struct Refunds {
    store: Store,
    by: Decider,
    charges: RefCell<Vec<Charge>>,
    forwarded: Cell<bool>,
    /// Something of the answer's body has passed.
    begun: Cell<bool>,
    /// Those that wait for a number in the body.
    readings: RefCell<Vec<BodyMeter>>,
    told: RefCell<Vec<ResponseCost>>,
}

impl Refunds {
    /// Keeps `charges`.
    #[must_use]
    pub(super) fn keep(store: &Store, by: Decider, charges: Vec<Charge>) -> Rc<Self> {
        Rc::new(Self {
            store: store.clone(),
            by,
            charges: RefCell::new(charges),
            forwarded: Cell::new(false),
            begun: Cell::new(false),
            readings: RefCell::default(),
            told: RefCell::default(),
        })
    }

    /// Keeps more: places in queues whose turn has come.
    pub(super) fn keep_more(&self, charges: impl IntoIterator<Item = Charge>) {
        self.charges.borrow_mut().extend(charges);
    }

    /// From here on the upstream may have seen the request.
    pub(super) fn forwarded(&self) {
        self.forwarded.set(true);
    }

    /// The upstream answered with this status and these fields.
    pub(super) fn answered(&self, status: u16, fields: &HeaderMap) {
        if (500..600).contains(&status) {
            self.give(|gives| gives.errors, |charge| self.settle(charge, fields));
        } else {
            self.give(|_| false, |charge| self.settle(charge, fields));
        }
    }

    /// A piece of the response's body passes.
    pub(super) fn passes(&self, bytes: &[u8]) {
        self.begun.set(true);
        for reading in self.readings.borrow_mut().iter_mut() {
            reading.read(bytes);
        }
    }

    /// The response is over, or nobody reads on, where its client has `left`: what it has said so far counts, and where that
    /// is nothing a client that has left is charged what the limit says.
    pub(super) fn over(&self, left: bool) {
        let left = left && self.begun.get();
        for reading in self.readings.take() {
            let (charge, told, units) = reading.end();
            match (told, units) {
                (CostReport::Nothing, None) if left && let Some(most) = most(&charge) => {
                    self.correct(&charge, CostReport::Left, Some(most));
                }
                _ => self.correct(&charge, told, units),
            }
        }
    }

    /// What the response has told each limit that asked.
    pub(super) fn told(&self) -> Vec<ResponseCost> {
        self.told.take()
    }

    /// The gateway answers itself.
    pub(super) fn failed(&self, error: &ProxyError) {
        match error {
            // A limit refuses what was charged where its turn would have come too late.
            ProxyError::ClientGone
            | ProxyError::Draining
            | ProxyError::TooManyHeld
            | ProxyError::Limited { .. } => self.given_up(),
            // Whatever status the file has for it: no server was asked, and guesses count.
            ProxyError::MissingKey { .. }
            | ProxyError::UnknownKey { .. }
            | ProxyError::BadToken { .. } => {}
            _ if matches!(
                error.status(),
                StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
            ) =>
            {
                self.give(|gives| gives.errors, drop);
            }
            _ => {}
        }
    }

    /// Nobody waits for an answer any more.
    pub(super) fn given_up(&self) {
        if !self.forwarded.get() {
            self.give(|gives| gives.cancels, drop);
        }
    }

    fn give(&self, which: impl Fn(RefundCondition) -> bool, rest: impl Fn(Charge)) {
        let charges = self.charges.take();
        for charge in charges {
            if which(charge.limit.refund_on) {
                self.store.refund(charge, self.by);
            } else {
                rest(charge);
            }
        }
    }

    /// Makes a charge the true one, now or when the body has told it.
    fn settle(&self, charge: Charge, fields: &HeaderMap) {
        let Some(meter) = &charge.limit.meter else {
            return;
        };
        if let MeterPlace::Header(_) = meter.place {
            let (told, units) = response_cost::in_head(&charge.limit, meter, fields);
            return self.correct(&charge, told, units);
        }
        match BodyMeter::begin(charge, fields) {
            Ok(reading) => self.readings.borrow_mut().push(reading),
            Err(charge) => self.correct(&charge, CostReport::Unreadable, None),
        }
    }

    fn correct(&self, charge: &Charge, told: CostReport, units: Option<u32>) {
        if let Some(units) = units {
            self.store.correct(charge, rate::Cost::new(units), self.by);
        }
        self.told.borrow_mut().push(ResponseCost {
            limit: charge.limit.clone(),
            told,
            units,
        });
    }
}

/// What is charged where the client leaves before the body has said anything; nothing where the estimate stays. A limit that
/// names no most takes all that it holds.
fn most(charge: &Charge) -> Option<u32> {
    let meter = charge.limit.meter.as_ref()?;
    match meter.on_leave {
        OnLeave::Estimate => None,
        OnLeave::Max if meter.max < u32::MAX => Some(meter.max),
        OnLeave::Max => Some(u32::try_from(charge.limit.rule.most()).unwrap_or(u32::MAX)),
    }
}

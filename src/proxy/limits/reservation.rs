//! The charges of an admitted request that are not final: slots, which are freed at its end, and charges that its end
//! refunds or its response settles.
//!
//! A reservation ends once: committed unchanged, settled at the cost that the response states, or refunded. A dropped
//! reservation is refunded if nothing was forwarded.

use crate::admission::{OpenCharges, RefusalCause, RequestEnd};
use crate::key::{MeterPlace, OnLeave};
use crate::limit::rate::Cost;
use crate::proxy::error::ProxyError;
use crate::proxy::grpc::GrpcCall;
use crate::proxy::limits::held_slots::HeldSlots;
use crate::proxy::limits::response_cost::{BodyFormat, BodyMeter, ResponseCost};
use crate::store::{Amendment, Reservation, Store};
use crate::telemetry::metrics::CostReport;
use http::HeaderMap;
use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::Rc;

/// The charges of one request that are not final.
#[derive(Debug)]
pub(in crate::proxy) struct Reservations {
    store: Store,
    /// The slots, freed when the request ends.
    slots: RefCell<Option<HeldSlots>>,
    /// The charges that are not final yet.
    charges: RefCell<Vec<Reservation>>,
    /// The upstream may have seen the request.
    forwarded: Cell<bool>,
    /// A piece of the answer's body has passed.
    begun: Cell<bool>,
    /// Charges of a gRPC call that its end may refund, with the costs that the head of its answer has stated.
    undecided: RefCell<Vec<(Reservation, Option<ResponseCost>)>>,
    /// Charges that wait for a number in the answer's body.
    meters: RefCell<Vec<BodyMeter>>,
    costs: RefCell<Vec<ResponseCost>>,
}

impl Reservations {
    /// Takes the slots and the refundable charges from `charges`. Returns `None` if there are none of them, and no
    /// place in a queue, which may be refunded after its turn.
    #[must_use]
    pub(in crate::proxy) fn keep(store: &Store, charges: &mut OpenCharges) -> Option<Rc<Self>> {
        if charges.is_empty() {
            return None;
        }
        Some(Rc::new(Self {
            store: store.clone(),
            slots: RefCell::new(HeldSlots::keep(store, mem::take(&mut charges.slots))),
            charges: RefCell::new(mem::take(&mut charges.refundable)),
            forwarded: Cell::new(false),
            begun: Cell::new(false),
            undecided: RefCell::default(),
            meters: RefCell::default(),
            costs: RefCell::default(),
        }))
    }

    /// Adds the places in queues whose turn has come.
    pub(in crate::proxy) fn keep_places(&self, places: impl IntoIterator<Item = Reservation>) {
        let places = places.into_iter();
        self.charges
            .borrow_mut()
            .extend(places.filter(|place| RequestEnd::Abandoned.refunds(&place.limit)));
    }

    /// Frees the slots.
    pub(in crate::proxy) fn free_slots(&self) {
        if let Some(slots) = self.slots.take() {
            slots.free(&self.store);
        }
    }

    /// Notes that the upstream may see the request from now on.
    pub(in crate::proxy) fn forwarded(&self) {
        self.forwarded.set(true);
    }

    /// Makes the charges final as they are.
    pub(in crate::proxy) fn commit(&self) {
        self.end(RequestEnd::Answered);
    }

    /// Notes that the upstream answered with these fields, perhaps with its own error.
    pub(in crate::proxy) fn answered(&self, is_error: bool, fields: &HeaderMap) {
        let end = if is_error {
            RequestEnd::ServerError
        } else {
            RequestEnd::Answered
        };
        for charge in self.charges.take() {
            if end.refunds(&charge.limit) {
                self.store.amend(&charge, Amendment::Refund);
            } else {
                self.settle(charge, fields);
            }
        }
    }

    /// Notes that the upstream answered a gRPC call, perhaps with its own error; the status may be still to come.
    #[cold]
    #[inline(never)]
    pub(in crate::proxy) fn call_answered(
        &self,
        call: &GrpcCall,
        fields: &HeaderMap,
        is_error: bool,
    ) {
        if !call.is_open() {
            return self.answered(is_error, fields);
        }
        for charge in self.charges.take() {
            if RequestEnd::ServerError.refunds(&charge.limit) {
                let meter = charge.limit.meter.as_ref();
                let cost = meter.map(|meter| match &meter.place {
                    MeterPlace::Header(_) => ResponseCost::in_head(&charge.limit, meter, fields),
                    // gRPC messages are not JSON.
                    MeterPlace::Json(_) => ResponseCost::unreadable(&charge.limit),
                });
                self.undecided.borrow_mut().push((charge, cost));
            } else {
                self.settle(charge, fields);
            }
        }
    }

    /// Notes that a gRPC call whose status was still to come is over, perhaps with a server error.
    pub(in crate::proxy) fn call_ended(&self, is_error: bool) {
        for (charge, cost) in self.undecided.take() {
            if is_error {
                self.store.amend(&charge, Amendment::Refund);
            } else if let Some(cost) = cost {
                self.correct(&charge, cost);
            }
        }
    }

    /// Notes that the gateway answers by itself, to a failure that the client may have caused.
    pub(in crate::proxy) fn failed(&self, error: &ProxyError, is_clients: bool) {
        self.end(match error {
            _ if is_clients => RequestEnd::Answered,
            // The limit refuses a request that was charged, since its turn would have come too late.
            ProxyError::ClientGone
            | ProxyError::Draining
            | ProxyError::TooManyHeld
            | ProxyError::DeadlineExceeded
            | ProxyError::Refused(RefusalCause::Limited { .. })
                if !self.forwarded.get() =>
            {
                RequestEnd::Abandoned
            }
            // Such a request counts as answered, for any status in the file: no server was contacted, and guesses
            // count.
            ProxyError::Refused(_) => RequestEnd::Answered,
            // The client has set too short a timeout, which is not a server error.
            ProxyError::DeadlineExceeded => RequestEnd::Answered,
            // No server could be contacted, or none gave a valid answer in time.
            ProxyError::Upstream(_) => RequestEnd::ServerError,
            _ => RequestEnd::Answered,
        });
    }

    fn end(&self, end: RequestEnd) {
        let charges = self.charges.take().into_iter();
        for charge in charges.filter(|charge| end.refunds(&charge.limit)) {
            self.store.amend(&charge, Amendment::Refund);
        }
    }

    /// Notes a piece of the response's body.
    pub(in crate::proxy) fn passes(&self, bytes: &[u8]) {
        self.begun.set(true);
        for meter in self.meters.borrow_mut().iter_mut() {
            meter.read(bytes);
        }
    }

    /// Notes that the response is over, or that its client has `left`. The numbers so far count; if there are none, a
    /// client that has left is charged by the limit's `on_leave`.
    pub(in crate::proxy) fn over(&self, left: bool) {
        self.call_ended(false);
        let left = left && self.begun.get();
        for meter in self.meters.take() {
            let mut cost = meter.end();
            if left
                && cost.report == CostReport::Nothing
                && let Some(most) = most(&meter.charge)
            {
                (cost.report, cost.units) = (CostReport::Left, Some(most));
            }
            self.correct(&meter.charge, cost);
        }
    }

    /// The costs that the response stated, for each limit that reads one.
    pub(in crate::proxy) fn costs(&self) -> Vec<ResponseCost> {
        self.costs.take()
    }

    /// Settles a charge at the true cost, now or when the body has stated it.
    fn settle(&self, charge: Reservation, fields: &HeaderMap) {
        let Some(meter) = &charge.limit.meter else {
            return;
        };
        let limit = &charge.limit;
        let cost = match &meter.place {
            MeterPlace::Header(_) => ResponseCost::in_head(limit, meter, fields),
            MeterPlace::Json(names) => match BodyFormat::of(names, fields) {
                Some(text) => return self.meters.borrow_mut().push(BodyMeter { charge, text }),
                None => ResponseCost::unreadable(limit),
            },
        };
        self.correct(&charge, cost);
    }

    fn correct(&self, charge: &Reservation, cost: ResponseCost) {
        if let Some(units) = cost.units {
            let truth = Amendment::Settlement(Cost::new(units));
            self.store.amend(charge, truth);
        }
        self.costs.borrow_mut().push(cost);
    }
}

impl Drop for Reservations {
    fn drop(&mut self) {
        self.free_slots();
        if !self.forwarded.get() {
            self.end(RequestEnd::Abandoned);
        }
    }
}

/// The charge of a client that leaves before the body has stated a cost; `None` if the estimate stays. For a limit
/// without a `max` it is the limit's whole capacity.
fn most(charge: &Reservation) -> Option<u32> {
    let meter = charge.limit.meter.as_ref()?;
    match meter.on_leave {
        OnLeave::Estimate => None,
        OnLeave::Max if meter.max < u32::MAX => Some(meter.max),
        OnLeave::Max => Some(u32::try_from(charge.limit.rule.most()).unwrap_or(u32::MAX)),
    }
}

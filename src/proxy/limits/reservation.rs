//! The charges of an admitted request that are not final: slots, which are freed at its end, and charges that its end
//! refunds or its response settles.
//!
//! A reservation ends once: committed unchanged, settled at the cost that the response or its status states, or refunded. A dropped
//! reservation is refunded if nothing was forwarded.

use crate::admission::{OpenCharges, RefusalCause, RequestEnd};
use crate::key::{FinalStatus, MOST_COST, MeterPlace, OnLeave, OnSilent};
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

/// The end of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum BodyEnd {
    /// The body is complete.
    Whole,
    /// The client prevented the end.
    Left,
    /// The server, or the gateway's stop, prevented the end.
    Broken,
}

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
    /// The answer has a status of success.
    success: Cell<bool>,
    /// Charges of a gRPC call that its end may refund or settle, with the costs that the head of its answer has stated.
    undecided: RefCell<Vec<(Reservation, Option<ResponseCost>)>>,
    /// Charges that wait for a number in the answer's body.
    meters: RefCell<Vec<BodyMeter>>,
    /// Charges whose cost the answer does not state. The end of its body decides whether the estimate stays.
    silent: RefCell<Vec<(Reservation, ResponseCost)>>,
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
            success: Cell::new(false),
            undecided: RefCell::default(),
            meters: RefCell::default(),
            silent: RefCell::default(),
            costs: RefCell::default(),
        }))
    }

    /// Adds the places in queues whose turn has come.
    pub(in crate::proxy) fn keep_places(&self, places: impl IntoIterator<Item = Reservation>) {
        let places = places.into_iter();
        self.charges
            .borrow_mut()
            .extend(places.filter(|place| RequestEnd::Abandoned(None).refunds(&place.limit)));
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

    /// Notes that the gateway answers by itself, with this status. Charges that are still open are final.
    pub(in crate::proxy) fn replied(&self, status: FinalStatus) {
        self.end(RequestEnd::OwnAnswer(status));
    }

    /// Notes that the upstream answered with these fields; `end` says how.
    pub(in crate::proxy) fn answered(&self, end: RequestEnd, fields: &HeaderMap) {
        self.note_success(end);
        for charge in self.charges.take() {
            if end.refunds(&charge.limit) {
                self.store.amend(&charge, Amendment::Refund);
            } else {
                self.settle(charge, end, fields);
            }
        }
    }

    /// Notes that the upstream answered a gRPC call; the status may be still to come.
    #[cold]
    #[inline(never)]
    pub(in crate::proxy) fn call_answered(
        &self,
        call: &GrpcCall,
        fields: &HeaderMap,
        end: RequestEnd,
    ) {
        if !call.is_open() {
            return self.answered(end, fields);
        }
        self.note_success(end);
        for charge in self.charges.take() {
            let meter = charge.limit.meter.as_ref();
            if charge.limit.is_by_status() || charge.limit.refund_on.asks_status() {
                let cost = meter.and_then(|meter| match &meter.place {
                    MeterPlace::Header(_) => {
                        Some(ResponseCost::in_head(&charge.limit, meter, fields))
                    }
                    MeterPlace::Json(_) => Some(ResponseCost::unreadable(&charge.limit)),
                    MeterPlace::Status(_) => None,
                });
                self.undecided.borrow_mut().push((charge, cost));
            } else {
                self.settle(charge, end, fields);
            }
        }
    }

    /// Notes that a gRPC call whose status was still to come is over; `end` says how.
    pub(in crate::proxy) fn call_ended(&self, end: RequestEnd) {
        for (charge, cost) in self.undecided.take() {
            if end.refunds(&charge.limit) {
                self.store.amend(&charge, Amendment::Refund);
            } else if let Some(cost) = cost {
                self.note(charge, cost);
            } else {
                self.settle_by_status(&charge, end);
            }
        }
    }

    /// Notes that the gateway answers by itself with `status`, to a failure that the client may have caused.
    pub(in crate::proxy) fn failed(
        &self,
        error: &ProxyError,
        status: FinalStatus,
        is_clients: bool,
    ) {
        let unsent = !self.forwarded.get();
        self.end(match error {
            _ if is_clients => RequestEnd::Kept,
            ProxyError::Refused(RefusalCause::Limited { .. }) => RequestEnd::Limited,
            // No server was contacted, and guesses count, whatever is refunded.
            ProxyError::Refused(_) => RequestEnd::Guess(status),
            ProxyError::ClientGone | ProxyError::DeadlineExceeded if unsent => {
                RequestEnd::Abandoned(None)
            }
            ProxyError::Draining | ProxyError::TooManyHeld if unsent => {
                RequestEnd::Abandoned(Some(status))
            }
            // The client has left, has set too short a timeout, or has broken its own request off.
            ProxyError::DeadlineExceeded
            | ProxyError::ClientGone
            | ProxyError::BodyStopped
            | ProxyError::BodyTooSlow
            | ProxyError::BodyMalformed => RequestEnd::Kept,
            // No server could be contacted, or none gave a valid answer in time.
            ProxyError::Upstream(_) => RequestEnd::Answered(status),
            _ => RequestEnd::OwnAnswer(status),
        });
    }

    fn end(&self, end: RequestEnd) {
        for charge in self.charges.take() {
            if end.refunds(&charge.limit) {
                self.store.amend(&charge, Amendment::Refund);
            } else {
                self.settle_by_status(&charge, end);
            }
        }
    }

    fn note_success(&self, end: RequestEnd) {
        let status = end.status();
        let is_success = status.is_some_and(|status| (200..300).contains(&status.http));
        self.success.set(is_success);
    }

    /// Notes a piece of the response's body.
    pub(in crate::proxy) fn passes(&self, bytes: &[u8]) {
        self.begun.set(true);
        for meter in self.meters.borrow_mut().iter_mut() {
            meter.read(bytes);
        }
    }

    /// Notes that the response's body ends so. The numbers so far count. If there are none, the limit's `on_leave` or
    /// `on_silent` decides.
    pub(in crate::proxy) fn over(&self, end: BodyEnd) {
        self.call_ended(RequestEnd::Kept);
        let end = if self.begun.get() {
            end
        } else {
            BodyEnd::Broken
        };
        for meter in self.meters.take() {
            let cost = meter.end(end == BodyEnd::Left);
            self.correct(&meter.charge, self.unsaid(&meter.charge, cost, end));
        }
        for (charge, cost) in self.silent.take() {
            self.correct(&charge, self.unsaid(&charge, cost, end));
        }
    }

    /// The cost of an answer whose body has ended so, where it has stated none.
    fn unsaid(&self, charge: &Reservation, mut cost: ResponseCost, end: BodyEnd) -> ResponseCost {
        let Some(meter) = &charge.limit.meter else {
            return cost;
        };
        let is_dear = meter.on_silent == OnSilent::Max;
        let said = match end {
            _ if cost.report == CostReport::Number => None,
            BodyEnd::Left
                if is_dear && self.success.get()
                    || cost.report == CostReport::Nothing && meter.is_in_json() =>
            {
                most(charge).map(|most| (CostReport::Left, most))
            }
            BodyEnd::Whole if is_dear && self.success.get() => {
                Some((CostReport::SilentMax, meter.max))
            }
            _ => None,
        };
        if let Some((report, units)) = said {
            (cost.report, cost.units) = (report, Some(units));
        }
        cost
    }

    /// The costs that the response stated, for each limit that reads one.
    pub(in crate::proxy) fn costs(&self) -> Vec<ResponseCost> {
        self.costs.take()
    }

    /// Settles a charge at the true cost, now or when the body has stated it.
    fn settle(&self, charge: Reservation, end: RequestEnd, fields: &HeaderMap) {
        let Some(meter) = &charge.limit.meter else {
            return;
        };
        let limit = &charge.limit;
        let cost = match &meter.place {
            MeterPlace::Status(_) => return self.settle_by_status(&charge, end),
            MeterPlace::Header(_) => ResponseCost::in_head(limit, meter, fields),
            MeterPlace::Json(cost) => match BodyFormat::of(cost, fields) {
                Some(text) => return self.meters.borrow_mut().push(BodyMeter { charge, text }),
                None => ResponseCost::unreadable(limit),
            },
        };
        self.note(charge, cost);
    }

    /// Settles a charge whose cost depends on the status. The charge stays where no status counts.
    fn settle_by_status(&self, charge: &Reservation, end: RequestEnd) {
        let meter = charge.limit.meter.as_ref();
        if let Some(MeterPlace::Status(costs)) = meter.map(|meter| &meter.place) {
            let cost = match end.status() {
                Some(status) => ResponseCost::by_status(&charge.limit, costs.of(status)),
                None => ResponseCost::left(&charge.limit),
            };
            self.correct(charge, cost);
        }
    }

    /// Notes a cost that the head has stated, or has not. Where silence may cost the most, the body's end is awaited.
    fn note(&self, charge: Reservation, cost: ResponseCost) {
        let meter = charge.limit.meter.as_ref();
        let is_dear = meter.is_some_and(|meter| meter.on_silent == OnSilent::Max);
        if is_dear && cost.report != CostReport::Number {
            self.silent.borrow_mut().push((charge, cost));
        } else {
            self.correct(&charge, cost);
        }
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
            self.end(RequestEnd::Abandoned(None));
        }
    }
}

/// The charge of a client that leaves before the body has stated a cost; `None` if the estimate stays. For a limit
/// without a `max` it is the limit's whole capacity.
fn most(charge: &Reservation) -> Option<u64> {
    let meter = charge.limit.meter.as_ref()?;
    match meter.on_leave {
        OnLeave::Estimate => None,
        OnLeave::Max if meter.max < MOST_COST => Some(meter.max),
        OnLeave::Max => Some(charge.limit.rule.most()),
    }
}

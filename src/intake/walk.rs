//! The walk: the one place that defines the order in which a request is examined, from its head to its plan.
//!
//! It never waits and never asks a store. A point where the walk must wait is a [`Stop`]: the walk names what it needs,
//! and continues from there at the next call.

use super::early_answer::{EarlyAnswer, IntakeError};
use super::facts::{ClientReadings, EarlyLimits, RequestFacts};
use super::recorder::Recorder;
use crate::limit::Limit;
use crate::snapshot::{CustomerUse, Service, Snapshot};

/// Generates from the list of steps everything that depends on their order: their numbers, the list as a value, and the
/// program that executes them. In the program each step is known at compile time, so that a request needs no jump
/// table.
macro_rules! order {
    ($($(#[$doc:meta])* $step:ident,)+) => {
        /// One step of the examination. Its number is its place in the order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Step {
            $($(#[$doc])* $step,)+
        }

        /// The order of the steps.
        pub const ORDER: [Step; [$(Step::$step),+].len()] = [$(Step::$step),+];

        impl RequestWalk {
            /// Continues to the next stop, or to the end.
            ///
            /// # Errors
            /// The cause for which the request gets no plan.
            #[inline]
            pub fn go_on(
                &mut self,
                snapshot: &Snapshot,
                facts: &mut impl RequestFacts,
                recorder: &mut impl Recorder,
            ) -> Result<Stop, IntakeError> {
                let from = self.at;
                $(
                    if from <= Step::$step as usize
                        && let Some(stop) = self.take(Step::$step, snapshot, facts, recorder)?
                    {
                        self.at = Step::$step as usize + 1;
                        return Ok(stop);
                    }
                )+
                self.end(recorder)
            }
        }
    };
}

order! {
    /// Was a fault found before the head was read? If so: 400.
    Framing,
    /// May the head be forwarded, and which host does it address? On failure: 400, 414, 431, 501.
    Head,
    /// The timeout of a gRPC call. On failure: 400.
    CallDeadline,
    /// Fields that nothing behind may read are gone. Else 400, where `Connection` names too many.
    DropFields,
    /// `OPTIONS *`, and requests that may not be forwarded further: 204.
    EndsHere,
    /// A certification authority requests a challenge text: 200. This step stops the walk.
    ChallengeText,
    /// The listener sends all requests on to https: 308, or 400 without a host.
    Redirect,
    /// The host belongs on another connection: 421.
    Connection,
    /// A limit that all possible routes share may refuse before a token is verified: 429. This step stops the walk.
    EarlyRoute,
    /// The route lookup. On failure: 400, 404, and 503 if the token's keys have not been read.
    Route,
    /// The route requires a certificate: 403.
    Certificate,
    /// Fields that identify the client to servers are dropped.
    DropIdentity,
    /// A descriptor for the server's connection, so that no request is charged that could not be forwarded. This step
    /// stops the walk.
    OpenFile,
    /// The beginning of the body, for limits that recognise repeats by it. This step stops the walk.
    BodyBeginning,
    /// Limits that do not depend on the token may refuse before it is verified: 429. This step stops the walk.
    EarlyPlan,
    /// The limits that apply, each with its key.
    Plan,
}

/// The position of the first step for a line of a log, whose early answers have been given.
const BEHIND_EARLY_ANSWERS: usize = Step::EarlyRoute as usize;

/// The need of a walk before it continues, or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The request is answered with the challenge text that a certification authority requests, if there is one.
    ChallengeText,
    /// Is the request already refused by the limits planned so far, for the service at this position? Only verdicts
    /// that are known without a call count.
    EarlyQuestion(usize),
    /// Is a descriptor available for the connection to a server? If not, the request ends here.
    OpenFile,
    /// The caller must read the beginning of the body and put it into the facts.
    BodyBeginning,
    /// The gateway's own answer ends the walk.
    Answer(EarlyAnswer),
    /// The walk is complete: the limits that apply are planned.
    Planned,
}

/// An unfinished walk.
#[derive(Debug)]
pub struct RequestWalk {
    /// The next position in the order.
    at: usize,
    early: EarlyLimits,
    /// The position of the service that gets the request.
    service: usize,
    /// The lookups that are needed again.
    readings: ClientReadings,
    /// The limits that do not depend on the token are planned.
    is_begun: bool,
}

impl RequestWalk {
    /// The walk of a head.
    #[must_use]
    pub fn of_head() -> Self {
        Self {
            at: 0,
            early: EarlyLimits::Unneeded,
            service: 0,
            readings: ClientReadings::default(),
            is_begun: false,
        }
    }

    /// The walk of a line of a log, which begins after the early answers.
    #[must_use]
    pub fn of_line() -> Self {
        Self {
            at: BEHIND_EARLY_ANSWERS,
            ..Self::of_head()
        }
    }

    /// Goes on as [`go_on`](Self::go_on) does, in this order. It is for `tests/intake`, which exchange two steps to see
    /// that a request would notice, and which compare both programs.
    ///
    /// # Errors
    /// The cause for which the request gets no plan.
    #[doc(hidden)]
    pub fn go_on_in(
        &mut self,
        order: &[Step],
        snapshot: &Snapshot,
        facts: &mut impl RequestFacts,
        recorder: &mut impl Recorder,
    ) -> Result<Stop, IntakeError> {
        while let Some(step) = order.get(self.at) {
            self.at += 1;
            if let Some(stop) = self.take(*step, snapshot, facts, recorder)? {
                return Ok(stop);
            }
        }
        self.end(recorder)
    }

    #[inline]
    fn end(&mut self, recorder: &mut impl Recorder) -> Result<Stop, IntakeError> {
        if let Some(reading) = self.readings.token.take() {
            recorder.token(reading);
        }
        let readings = &mut self.readings;
        if let Some(reading) = readings.customer.take().or(readings.route_customer.take()) {
            recorder.customer(reading);
        }
        Ok(Stop::Planned)
    }

    #[inline(always)]
    fn take(
        &mut self,
        step: Step,
        snapshot: &Snapshot,
        facts: &mut impl RequestFacts,
        recorder: &mut impl Recorder,
    ) -> Result<Option<Stop>, IntakeError> {
        let service = |walk: &Self| -> &Service { &snapshot.services[walk.service] };
        match step {
            Step::Framing => facts.framing(recorder)?,
            Step::Head => facts.head()?,
            Step::CallDeadline => facts.call_deadline(recorder)?,
            Step::DropFields => facts.drop_fields(snapshot, recorder)?,
            Step::EndsHere => {
                return Ok(facts.spend_hop().then_some(Stop::Answer(EarlyAnswer::Here)));
            }
            Step::ChallengeText if facts.looks_for_text() => {
                return Ok(Some(Stop::ChallengeText));
            }
            Step::Redirect => {
                let location = facts.https_location()?;
                return Ok(location.map(|there| Stop::Answer(EarlyAnswer::Redirect(there))));
            }
            Step::Connection if !facts.is_on_its_connection() => {
                return Err(IntakeError::Misdirected);
            }
            Step::EarlyRoute => {
                self.early = facts.early_limits(snapshot, recorder.plan());
                if let EarlyLimits::Planned(service) = self.early {
                    return Ok(Some(Stop::EarlyQuestion(service)));
                }
            }
            Step::Route => {
                let found = facts.route(snapshot, self.early, &mut self.readings, recorder)?;
                self.service = found.or(snapshot.unrouted).ok_or(IntakeError::NoRoute)?;
                recorder.routed(self.service);
            }
            Step::Certificate if service(self).asks_certificate && facts.lacks_certificate() => {
                return Err(IntakeError::CertificateRequired);
            }
            Step::DropIdentity => self.drop_identity(snapshot, facts, recorder),
            Step::OpenFile if service(self).is_forwarded() => return Ok(Some(Stop::OpenFile)),
            Step::BodyBeginning if service(self).compares_bodies && facts.has_body() => {
                return Ok(Some(Stop::BodyBeginning));
            }
            Step::EarlyPlan if service(self).asks_token && facts.has_token(snapshot) => {
                let stop = self.plan_without_token(service(self), snapshot, facts, recorder);
                return Ok(Some(stop));
            }
            Step::Plan => self.plan(service(self), snapshot, facts, recorder),
            // The step found nothing.
            Step::ChallengeText
            | Step::Connection
            | Step::Certificate
            | Step::OpenFile
            | Step::BodyBeginning
            | Step::EarlyPlan => {}
        }
        Ok(None)
    }

    #[inline]
    fn drop_identity(
        &mut self,
        snapshot: &Snapshot,
        facts: &mut impl RequestFacts,
        recorder: &mut impl Recorder,
    ) {
        let service = &snapshot.services[self.service];
        facts.drop_identity(service, &mut self.readings, recorder);
    }

    /// Plans the limits that do not ask for the token. The other limits do. A forged token is then no dearer for the
    /// gateway than any other request.
    #[cold]
    #[inline(never)]
    fn plan_without_token(
        &mut self,
        service: &Service,
        snapshot: &Snapshot,
        facts: &impl RequestFacts,
        recorder: &mut impl Recorder,
    ) -> Stop {
        let plan = recorder.plan();
        plan.make_room(service);
        let without = |limit: &Limit| !limit.asks_token();
        facts.fill(snapshot, service, &mut self.readings, plan, without);
        self.is_begun = true;
        Stop::EarlyQuestion(self.service)
    }

    /// Plans the limits that apply, or the remaining ones.
    #[inline]
    fn plan(
        &mut self,
        service: &Service,
        snapshot: &Snapshot,
        facts: &impl RequestFacts,
        recorder: &mut impl Recorder,
    ) {
        let looks =
            service.customer_use != CustomerUse::Limits || self.readings.has_contradiction();
        if service.limits.is_empty() && !looks {
            return;
        }
        let plan = recorder.plan();
        if self.is_begun {
            facts.fill(
                snapshot,
                service,
                &mut self.readings,
                plan,
                Limit::asks_token,
            );
            plan.sort();
        } else {
            plan.make_room(service);
            facts.fill(snapshot, service, &mut self.readings, plan, |_| true);
        }
        if looks {
            facts.look_for_customer(snapshot, service, &mut self.readings, plan);
        }
    }
}

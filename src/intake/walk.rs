//! The walk: the one place that knows in which order a request is looked at, from its head to its plan.
//!
//! It never waits and never asks a store. What has to be waited for is a [`Stop`]: the walk says what it needs, and goes
//! on from there when it is called again.

use super::early_answer::{EarlyAnswer, IntakeError};
use super::facts::{EarlyLimits, RequestFacts};
use super::recorder::Recorder;
use crate::key::token::TokenReading;
use crate::limit::Limit;
use crate::snapshot::{Service, Snapshot};

/// Makes of the list of looks what goes by their order: their numbers, the list as a value, and the program that goes
/// through it. In the program each look is known when it is compiled, and a request jumps through no table.
macro_rules! order {
    ($($(#[$doc:meta])* $step:ident,)+) => {
        /// One look at a request. Its number is its place in the order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Step {
            $($(#[$doc])* $step,)+
        }

        /// The order of the looks.
        pub const ORDER: [Step; [$(Step::$step),+].len()] = [$(Step::$step),+];

        impl RequestWalk {
            /// Goes on to the next stop, or to the end.
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
                        && let Some(stop) = self.look(Step::$step, snapshot, facts, recorder)?
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
    /// Was a fault found before the head was read? Else 400.
    Framing,
    /// May the head be forwarded, and whom does it address? Else 400, 414, 431, 501.
    Head,
    /// The time that a call of gRPC has. Else 400.
    CallDeadline,
    /// Fields that nothing behind may read are gone. Else 400, where `Connection` names too many.
    DropFields,
    /// `OPTIONS *`, and what may travel no further: 204.
    EndsHere,
    /// A certification authority looks for a text: 200. Stops.
    ChallengeText,
    /// The listener sends all requests on to https: 308, or 400 without a host.
    Redirect,
    /// The host belongs on another connection: 421.
    Connection,
    /// A limit of every possible route may refuse before a token is verified: 429. Stops.
    EarlyRoute,
    /// The route. Else 400, 404, and 503 where the token's keys have not been read.
    Route,
    /// The route asks for a certificate: 403.
    Certificate,
    /// Fields that tell servers about the client are gone.
    DropIdentity,
    /// An open file for the server's connection, so that no request is charged that could not be forwarded. Stops.
    OpenFile,
    /// The beginning of the body, for limits that tell repeats by it. Stops.
    BodyBeginning,
    /// Limits without the token may refuse before it is verified: 429. Stops.
    EarlyPlan,
    /// The limits that apply, each with its key.
    Plan,
}

/// The position of the first look at a line of a log, whose early answers have been given.
const BEHIND_EARLY_ANSWERS: usize = Step::EarlyRoute as usize;

/// What a walk needs before it goes on, or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The request is answered with the text that a certification authority looks for, if there is one.
    ChallengeText,
    /// Is the request refused already by what is planned so far, for the service at this position? Only what is known
    /// without a call counts.
    EarlyQuestion(usize),
    /// Is there an open file for the connection to a server? Else the request ends here.
    OpenFile,
    /// The beginning of the body is to be read, and the facts are to know it.
    BodyBeginning,
    /// The gateway's own answer ends the walk.
    Answer(EarlyAnswer),
    /// The walk has come to its end: the limits that apply are planned.
    Planned,
}

/// A walk under way.
#[derive(Debug)]
pub struct RequestWalk {
    /// The next position in the order.
    at: usize,
    early: EarlyLimits,
    /// The position of the service that takes the request.
    service: usize,
    /// What the verification of the request's token has yielded.
    reading: Option<TokenReading>,
    /// The limits that do not ask for the token are planned.
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
            reading: None,
            is_begun: false,
        }
    }

    /// The walk of a line of a log, which begins behind the early answers.
    #[must_use]
    pub fn of_line() -> Self {
        Self {
            at: BEHIND_EARLY_ANSWERS,
            ..Self::of_head()
        }
    }

    /// Goes on as [`go_on`](Self::go_on) does, in this order. It is for `tests/intake`, which exchange two looks to see
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
            if let Some(stop) = self.look(*step, snapshot, facts, recorder)? {
                return Ok(stop);
            }
        }
        self.end(recorder)
    }

    #[inline]
    fn end(&mut self, recorder: &mut impl Recorder) -> Result<Stop, IntakeError> {
        if let Some(reading) = self.reading.take() {
            recorder.token(reading);
        }
        Ok(Stop::Planned)
    }

    #[inline(always)]
    fn look(
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
                let is_here = facts.spend_hop();
                return Ok(is_here.then_some(Stop::Answer(EarlyAnswer::Here)));
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
                let found = facts.route(snapshot, self.early, &mut self.reading, recorder)?;
                let found = found.or(snapshot.unrouted);
                self.service = found.ok_or(IntakeError::NoRoute)?;
                recorder.routed(self.service);
            }
            Step::Certificate if service(self).asks_certificate && facts.lacks_certificate() => {
                return Err(IntakeError::CertificateRequired);
            }
            Step::DropIdentity => facts.drop_identity(service(self), recorder),
            Step::OpenFile if service(self).is_forwarded() => return Ok(Some(Stop::OpenFile)),
            Step::BodyBeginning if service(self).compares_bodies && facts.has_body() => {
                return Ok(Some(Stop::BodyBeginning));
            }
            Step::EarlyPlan if service(self).asks_token && facts.has_token(snapshot) => {
                let stop = self.plan_without_token(service(self), snapshot, facts, recorder);
                return Ok(Some(stop));
            }
            Step::Plan => self.plan(service(self), snapshot, facts, recorder),
            // The answer of the look was no.
            Step::ChallengeText
            | Step::Connection
            | Step::Certificate
            | Step::OpenFile
            | Step::BodyBeginning
            | Step::EarlyPlan => {}
        }
        Ok(None)
    }

    /// Plans the limits that do not ask for the token. Others do. A forged token is then no dearer for the gateway
    /// than any other request.
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
        facts.fill(snapshot, service, &mut self.reading, plan, without);
        self.is_begun = true;
        Stop::EarlyQuestion(self.service)
    }

    /// Plans the limits that apply, or those that are left.
    #[inline]
    fn plan(
        &mut self,
        service: &Service,
        snapshot: &Snapshot,
        facts: &impl RequestFacts,
        recorder: &mut impl Recorder,
    ) {
        if service.limits.is_empty() {
            return;
        }
        let plan = recorder.plan();
        if self.is_begun {
            facts.fill(
                snapshot,
                service,
                &mut self.reading,
                plan,
                Limit::asks_token,
            );
            plan.sort();
        } else {
            plan.make_room(service);
            facts.fill(snapshot, service, &mut self.reading, plan, |_| true);
        }
    }
}

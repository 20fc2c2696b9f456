//! The inputs of the walk, for both sources of requests: a head on a connection, or a line of a log.

use super::early_answer::IntakeError;
use super::peer::ConnectionPeer;
use super::recorder::Recorder;
use crate::admission::Plan;
use crate::key::token::TokenReading;
use crate::key::{CustomerReading, ShownCertificate};
use crate::limit::Limit;
use crate::snapshot::{Service, Snapshot};
use http::HeaderValue;
use std::borrow::Cow;
use std::rc::Rc;

/// The known facts about the connection of a head.
pub trait ConnectionFacts {
    /// The far end of the connection.
    fn peer(&self) -> ConnectionPeer;

    /// Does its listener redirect all requests to `https`?
    fn redirects(&self) -> bool;

    /// May the connection serve requests for a host? `host` is called only if the answer depends on the host.
    fn may_serve<'h>(&self, host: impl FnOnce() -> Cow<'h, str>) -> bool;

    /// The verified certificate that the client has shown.
    fn certificate(&self) -> Option<ShownCertificate<'_>>;

    /// The customer that the request is assumed to be of, without a credential: only `explain` assumes one.
    fn assumed_customer(&self) -> Option<&str> {
        None
    }

    /// May the gateway have challenge texts for certification authorities?
    fn may_have_texts(&self) -> bool;
}

/// The result for the limits that apply before a request's token is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyLimits {
    /// The token does not decide which route takes the request.
    Unneeded,
    /// Regardless of the token, this route matches the request, or none.
    Decided(Option<usize>),
    /// The limits that all possible routes share are planned, for the service at this position.
    Planned(usize),
}

/// The results of the lookups of a walk that are needed again: a token is verified once, and a customer looked up once.
#[derive(Debug, Default)]
pub struct ClientReadings {
    /// The result of the verification of the request's token.
    pub token: Option<TokenReading>,
    /// The customer of the request, as long as the request is as it was when it was looked at.
    pub customer: Option<Rc<CustomerReading>>,
    /// The customer that a condition of a route has found.
    pub route_customer: Option<Rc<CustomerReading>>,
}

impl ClientReadings {
    /// Has a condition of a route found credentials of different customers?
    #[inline]
    #[must_use]
    pub fn has_contradiction(&self) -> bool {
        let found = self.route_customer.as_deref();
        found.is_some_and(|found| *found == CustomerReading::Different)
    }
}

/// The source of what the walk reads: one method for each step. The methods with a default are those that a line of a log
/// leaves out: it does not have their facts, or its early answers have been given.
pub trait RequestFacts {
    /// Returns the fault of the framing that was found before the head was read.
    fn framing(&mut self, _recorder: &mut impl Recorder) -> Result<(), IntakeError> {
        Ok(())
    }

    /// Checks the head, and reads the host that it addresses.
    fn head(&mut self) -> Result<(), IntakeError> {
        Ok(())
    }

    /// Reads the timeout of a gRPC call.
    fn call_deadline(&mut self, _recorder: &mut impl Recorder) -> Result<(), IntakeError> {
        Ok(())
    }

    /// Drops the fields that no later part may read.
    fn drop_fields(
        &mut self,
        _snapshot: &Snapshot,
        _recorder: &mut impl Recorder,
    ) -> Result<(), IntakeError> {
        Ok(())
    }

    /// Counts the hop of the request in its `Max-Forwards`, and says whether the request is for the gateway itself.
    fn spend_hop(&mut self) -> bool {
        false
    }

    /// May the request come from a certification authority, for a challenge text?
    fn looks_for_text(&self) -> bool {
        false
    }

    /// The address under `https` to which the listener redirects, if it does.
    fn https_location(&self) -> Result<Option<HeaderValue>, IntakeError> {
        Ok(None)
    }

    /// May the request's connection serve the host?
    fn is_on_its_connection(&self) -> bool {
        true
    }

    /// The limits that may refuse before the request's token is verified, if the token decides which route matches.
    /// They are planned in `plan`.
    fn early_limits(&mut self, _snapshot: &Snapshot, _plan: &mut Plan) -> EarlyLimits {
        EarlyLimits::Unneeded
    }

    /// The route that takes the request; the position of its service. `early` is what the step before has found. The
    /// target of a head becomes the one that is forwarded.
    ///
    /// # Errors
    /// If the path is invalid, or the route depends on unknown facts.
    fn route(
        &mut self,
        snapshot: &Snapshot,
        early: EarlyLimits,
        readings: &mut ClientReadings,
        recorder: &mut impl Recorder,
    ) -> Result<Option<usize>, IntakeError>;

    /// Did the handshake show no certificate that a route could require?
    fn lacks_certificate(&self) -> bool {
        false
    }

    /// Drops the fields that identify clients to the servers of the route.
    fn drop_identity(
        &mut self,
        _service: &Service,
        _readings: &mut ClientReadings,
        _recorder: &mut impl Recorder,
    ) {
    }

    /// Does the request have a body that can still be read?
    fn has_body(&self) -> bool {
        false
    }

    /// Is there a token that would have to be verified?
    fn has_token(&self, _snapshot: &Snapshot) -> bool {
        false
    }

    /// Plans the limits of the service that `those` selects, with their keys.
    fn fill(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        readings: &mut ClientReadings,
        plan: &mut Plan,
        those: impl Fn(&Limit) -> bool,
    );

    /// Looks for the customer where more than limits needs one, and marks the request for refusal if its credentials do
    /// not say whose it is. A line of a log states the customer.
    fn look_for_customer(
        &self,
        _snapshot: &Snapshot,
        _service: &Service,
        _readings: &mut ClientReadings,
        _plan: &mut Plan,
    ) {
    }
}

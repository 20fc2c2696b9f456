//! What the walk reads of a request, whichever it comes from: a head on a connection, or a line of a log.

use super::early_answer::IntakeError;
use super::peer::ConnectionPeer;
use super::recorder::Recorder;
use crate::admission::Plan;
use crate::key::ShownCertificate;
use crate::key::token::TokenReading;
use crate::limit::Limit;
use crate::snapshot::{Service, Snapshot};
use http::HeaderValue;
use std::borrow::Cow;

/// What is known of the connection that a head has come on.
pub trait ConnectionFacts {
    /// The far end of the connection.
    fn peer(&self) -> ConnectionPeer;

    /// Does its listener send all requests on to `https`?
    fn redirects(&self) -> bool;

    /// May the connection serve requests for a host? `host` is asked only where the answer depends on it.
    fn may_serve<'h>(&self, host: impl FnOnce() -> Cow<'h, str>) -> bool;

    /// The verified certificate that the client has shown.
    fn certificate(&self) -> Option<ShownCertificate<'_>>;

    /// May a text be there that certification authorities look for?
    fn may_have_texts(&self) -> bool;
}

/// What can be said of the limits that hold before a request's token is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyLimits {
    /// The token does not decide which route takes the request.
    Unneeded,
    /// Whatever the token says, this route takes the request, or none.
    Decided(Option<usize>),
    /// The limits that every possible route has are planned, for the service at this position.
    Planned(usize),
}

/// The source of what the walk reads: one method for each look. The methods with a default are those that a line of a log
/// leaves out: it does not have their facts, or its early answers have been given.
pub trait RequestFacts {
    /// A fault of the framing that was found before the head was read.
    fn framing(&mut self, _recorder: &mut impl Recorder) -> Result<(), IntakeError> {
        Ok(())
    }

    /// The demands on a head, and the host that it addresses.
    fn head(&mut self) -> Result<(), IntakeError> {
        Ok(())
    }

    /// The time that the client of a call of gRPC gives it.
    fn call_deadline(&mut self, _recorder: &mut impl Recorder) -> Result<(), IntakeError> {
        Ok(())
    }

    /// Drops the fields that nothing behind may read.
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

    /// May a certification authority have sent it, to look for a text?
    fn looks_for_text(&self) -> bool {
        false
    }

    /// The address under `https` that the listener leads to, if it does.
    fn https_location(&self) -> Result<Option<HeaderValue>, IntakeError> {
        Ok(None)
    }

    /// May its connection serve the host?
    fn is_on_its_connection(&self) -> bool {
        true
    }

    /// The limits that may refuse before the request's token is verified, where the token decides which route takes the
    /// request. They are planned in `plan`.
    fn early_limits(&mut self, _snapshot: &Snapshot, _plan: &mut Plan) -> EarlyLimits {
        EarlyLimits::Unneeded
    }

    /// The route that takes the request; the position of its service. `early` is what the look before has found. The
    /// target of a head becomes the one that is forwarded.
    ///
    /// # Errors
    /// The path is none, or the route hangs on what is not known.
    fn route(
        &mut self,
        snapshot: &Snapshot,
        early: EarlyLimits,
        reading: &mut Option<TokenReading>,
        recorder: &mut impl Recorder,
    ) -> Result<Option<usize>, IntakeError>;

    /// Has the handshake shown no certificate that a route could ask for?
    fn lacks_certificate(&self) -> bool {
        false
    }

    /// Drops the fields that the servers of the route know its clients by.
    fn drop_identity(&mut self, _service: &Service, _recorder: &mut impl Recorder) {}

    /// Does it have a body that can still be read?
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
        reading: &mut Option<TokenReading>,
        plan: &mut Plan,
        those: impl Fn(&Limit) -> bool,
    );
}

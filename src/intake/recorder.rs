//! What is kept of a walk, by whoever has it walked.

use super::grpc_call::CallDeadline;
use super::stripped_fields::StripCause;
use crate::admission::Plan;
use crate::key::token::TokenReading;
use crate::route::path::NormalPath;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Keeps what a walk finds: the gateway for the exchange, `explain` for its explanation, a replay nearly nothing.
pub trait Recorder {
    /// The place of the plan, which is large and therefore written where it stays.
    fn plan(&mut self) -> &mut Plan;

    /// The host that the request addresses, once that is known to be one.
    fn host(&mut self, _host: Option<HeaderValue>) {}

    /// The time that the client gives a call of gRPC.
    fn call_deadline(&mut self, _deadline: Option<CallDeadline>) {}

    /// A field is dropped.
    fn dropped(&mut self, _name: &HeaderName, _why: StripCause) {}

    /// Fields are dropped for their names, which servers read differently; one entry for each line.
    fn misread(&mut self, _names: &[HeaderName]) {}

    /// A route is looked for by this path, with these fields.
    fn path(&mut self, _path: &NormalPath<'_>, _fields: &HeaderMap) {}

    /// The service at this position takes the request.
    fn routed(&mut self, _service: usize) {}

    /// What the verification of the request's token has yielded.
    fn token(&mut self, _reading: TokenReading) {}
}

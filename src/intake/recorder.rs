//! The notes of a walk, kept for its caller.

use super::grpc_call::CallDeadline;
use super::stripped_fields::StripCause;
use crate::admission::Plan;
use crate::key::CustomerReading;
use crate::key::token::TokenReading;
use crate::route::path::NormalPath;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::rc::Rc;

/// Keeps the findings of a walk: the gateway keeps them for the exchange, `explain` keeps them for its explanation, and
/// a replay keeps hardly any.
pub trait Recorder {
    /// The place of the plan, which is large and therefore written in place.
    fn plan(&mut self) -> &mut Plan;

    /// The host that the request addresses, after its check.
    fn host(&mut self, _host: Option<HeaderValue>) {}

    /// The timeout that the client sets for a gRPC call.
    fn call_deadline(&mut self, _deadline: Option<CallDeadline>) {}

    /// A field is dropped.
    fn dropped(&mut self, _name: &HeaderName, _why: StripCause) {}

    /// Fields are dropped because servers read their names differently; one entry for each line.
    fn misread(&mut self, _names: &[HeaderName]) {}

    /// The route is looked up by this path, with these fields.
    fn path(&mut self, _path: &NormalPath<'_>, _fields: &HeaderMap) {}

    /// The service at this position gets the request.
    fn routed(&mut self, _service: usize) {}

    /// The result of the verification of the request's token.
    fn token(&mut self, _reading: TokenReading) {}

    /// The customer of the request, where a limit, a group or a route asks for one.
    fn customer(&mut self, _reading: Rc<CustomerReading>) {}
}

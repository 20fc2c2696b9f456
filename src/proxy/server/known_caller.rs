//! The client of a request with a known route, for the parts that read the client again after its limits: the choice of
//! a server, and the identity fields.

use crate::intake::caller::CallerFacts;
use crate::intake::head::Target;
use crate::key::token::Token;
use crate::key::{Caller, CustomerSearch};
use crate::proxy::exchange::Exchange;
use crate::proxy::request::handshake_facts;
use crate::snapshot::Service;
use http::request::Parts;

/// The result of `reader` for the client. Its token is not verified again if its limits have had it verified.
pub(in crate::proxy) fn read_caller<R>(
    service: &Service,
    target: &Target,
    parts: &Parts,
    exchange: &Exchange,
    reader: impl FnOnce(&Caller<'_>, &Token<'_>) -> R,
) -> R {
    let token = Token::new(exchange.local.snapshot.tokens.as_deref(), &parts.headers)
        .knowing(exchange.decided.token.clone());
    let caller = CallerFacts {
        address: exchange.arrived.client,
        method: &parts.method,
        fields: &parts.headers,
        host: target.host(),
        path: parts.uri.path(),
        query: parts.uri.query(),
        content: exchange.call.content,
        certificate: exchange
            .arrived
            .tls
            .as_deref()
            .and_then(handshake_facts::shown),
    };
    let known = exchange.decided.customer.get().cloned();
    let customers = CustomerSearch::of(service.customers.as_deref()).knowing(known);
    let result =
        caller.read_searching(service, &token, &customers, |caller| reader(caller, &token));
    if let Some(found) = customers.reading() {
        exchange.decided.customer.get_or_init(|| found);
    }
    result
}

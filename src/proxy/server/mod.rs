//! The sending of a request to a server.
//!
//! In: an admitted request. Out: the head of a server's answer, or a failure with its cause.
//!
//! ```text
//! first_frame       an empty frame that ends a stream: no body
//! upstream_request  the head that the server gets
//! hop               fields of one connection end here, both ways
//! forwarded         the fields that name the request's origin
//! forwarded/hops    `Via`. Else 508
//! forwarded/lines   the gateway's own fields as bytes
//! identity_fields   fields that tell servers about the client
//! known_caller      the client, read once more behind its limits
//! upstream_call     a server, a connection, the head of the answer. Else 502, 503, 504
//! server_key        the key that the server is chosen by
//! server_part       what each server is sent of its own
//! call_notes        what is noted of the way to a server
//! attempts          the next server after a failure
//! answer_wait       how long the answer's head may take
//! ```

pub(super) mod answer_wait;
pub(super) mod attempts;
pub mod call_notes;
pub(super) mod first_frame;
pub mod forwarded;
pub mod hop;
pub(super) mod identity_fields;
pub(super) mod known_caller;
pub(super) mod server_key;
pub mod server_part;
pub mod upstream_call;
pub mod upstream_request;

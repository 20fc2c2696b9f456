//! Answers: a server's, a route's own, the gateway's own.
//!
//! In: an answer's head, a cause, or a route. Out: status, fields and text as the client gets them.
//!
//! ```text
//! static_reply           a redirect or a text, where the route has no upstream
//! header_value           values cut from shared blocks
//! upstream_answer        an answer whose head has come
//! location               addresses in it, back to those that the client knows
//! reply                  every answer of the gateway's own
//! reply/format           its form: the file's, and the client's choice
//! reply/problem          its content: a problem and a sentence
//! reply/refusal_text     a refusal's body, written once
//! fields                 `RateLimit` and its older relatives
//! fields/refusal_fields  the fields of refusals, after the pattern of the first
//! fields/merge           an upstream's fields stay beside the gateway's
//! ```

pub mod fields;
pub mod header_value;
pub(super) mod location;
pub mod reply;
pub mod static_reply;
pub mod upstream_answer;

//! Bodies in both directions.
//!
//! In: pieces of a body. Out: the same pieces, with deadlines, a minimum rate, and the cause if they end too early.
//!
//! ```text
//! body_prefix    the beginning of the body, read for limits that tell repeats by it. Else 400, 408
//! request_body   the body, streamed up, with an idle deadline and a least rate
//! kept_body      its beginning, for a server that has not begun
//! soft_timeout   patience with a pause in a body
//! body_failure   the failures of bodies, on either side
//! response_body  the answer's body, with an idle deadline
//! trailers       which trailers are relayed
//! body           the body as the client gets it; the exchange ends with it
//! body_rest      the rest of a body behind an own answer
//! ```

pub mod body;
pub(super) mod body_failure;
pub(crate) mod body_prefix;
pub(super) mod body_rest;
pub(crate) mod kept_body;
pub(super) mod request_body;
pub(super) mod response_body;
pub mod soft_timeout;
pub mod trailers;

//! The stages between a head and the plan of its limits.
//!
//! In: a head that hyper has read, or could not. Out: an early answer, or a planned request with the descriptor and the
//! beginning of the body that it may need.
//!
//! ```text
//! head_rejection            heads refused before they were requests: counted, logged, answered
//! head_rejection/beginning  what is known of such a head
//! request_id                one name for the request, in answer, log and upstream
//! unnamed_client            the client, where a trusted peer should name one
//! intake_stops              the walk to the plan of the limits (room `intake`), and what is waited for on it
//! handshake_facts           what limits and the log learn of the handshake
//! authority_challenge       the answer to an authority that looks whether a host is ours
//! early_reply               answers to requests that are not forwarded
//! descriptor_reserve        an open file for the server's connection. Else 503
//! ```

pub(super) mod authority_challenge;
pub(super) mod descriptor_reserve;
pub(super) mod early_reply;
pub(super) mod handshake_facts;
pub mod head_rejection;
pub(super) mod intake_stops;
pub mod request_id;
pub(super) mod unnamed_client;

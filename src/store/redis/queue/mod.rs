//! The queue of one Redis, and the part of it that is kept until it is answered.
//!
//! In: questions and updates as bytes. Out: the content of the next call, and an answer for each entry.
//!
//! ```text
//! context           what the nodes of a worker have in common
//! stats             the work done so far
//! shares            how long shares count behind an outage
//! pending_decision  a decision that a request waits for, in one place until it is answered
//! slot_question     one question for each slot
//! abandonment       a client that leaves during its decision
//! call_queue        decisions that wait to be sent
//! lanes             how many lanes of a node are at work
//! call_window       how many calls are under way at a time
//! equal_questions   equal questions go as one, with their number
//! pending_refunds   such updates wait here, also while Redis is away
//! answered_calls    what a master answered last, for the one that takes its place
//! suspicion         counters that can be neither read nor written
//! ```

pub(super) mod abandonment;
mod answered_calls;
pub(super) mod call_queue;
pub(super) mod call_window;
pub(super) mod context;
pub(super) mod equal_questions;
pub(super) mod lanes;
pub(super) mod pending_decision;
pub(super) mod pending_refunds;
mod shares;
pub(super) mod slot_question;
pub(super) mod stats;
pub(super) mod suspicion;

//! The content of calls to Redis, as bytes: the names of counters, the scripts, questions and updates.
//!
//! In: limits, keys and costs. Out: the call of a script. Nothing is sent here.
//!
//! ```text
//! layout                 the names of counters
//! slot                   the slot of a counter
//! script                 the scripts of `lua/`, put together
//! library                the scripts as a library of functions
//! question               the question as bytes
//! question/call          many questions in one call of a script
//! question/repetition    equal questions of a call, sent once
//! question/update_block  the blocks of refunds, renewals and deletions
//! question/packing       the question of one update, in few bytes
//! counter_update         an update that no request waits for
//! ```

pub(super) mod counter_update;
pub(super) mod layout;
pub(super) mod library;
pub(super) mod question;
pub(super) mod script;
pub(super) mod slot;

//! The law of the limits: what the algorithms and both stores must answer, whatever the code looks like inside.
//!
//! Vectors are histories written down as data, stories are histories written down as code, and both are told to the
//! memory store and to a real Redis alike. Properties hold for every history. Time is handed in, so nothing waits.

mod clock_steps;
mod exactness;
mod hammer;
mod hostile;
mod index;
mod leases;
mod memory;
mod mixed_scope;
mod multi_limit_leases;
mod numbers;
mod out_of_memory;
mod properties;
mod remembered_refusals;
mod retry_after;
mod stories;
mod trials;
mod under_test;
mod vectors;

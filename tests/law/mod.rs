//! The law of the limits: the answers that the algorithms and both stores must give, however they are built.
//!
//! Vectors are histories in the form of data, and stories are histories in the form of code. The memory store and a
//! real Redis must both give their answers. Properties hold for every history. The tests choose the time, so that no
//! test waits.

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

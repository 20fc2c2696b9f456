//! The law of the limits: the answers that the algorithms and both stores must give, whatever the code behind them.
//!
//! Vectors are histories written as data, and stories are histories written as code; the memory store and a real Redis
//! both answer them. Properties hold for every history. The tests choose the time, so that nothing waits.

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

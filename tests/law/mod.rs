//! The law of the limits: what the algorithms and both stores must answer, whatever the code looks like inside.
//!
//! Vectors are histories written down as data, stories are histories written down as code, and both are told to the
//! memory store and to a real Redis alike. Properties hold for every history. Time is handed in, so nothing waits.

mod coming_back;
mod exactness;
mod halves;
mod hammer;
mod hands;
mod hostile;
mod index;
mod leasing;
mod memory;
mod numbers;
mod out_of_memory;
mod properties;
mod sparing;
mod stepping;
mod stories;
mod trials;
mod under_test;
mod vectors;

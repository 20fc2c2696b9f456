//! The steps of a request up to its plan.

mod order;

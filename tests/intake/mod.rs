//! The walk of a request to its plan.

mod order;

//! Against real servers: each test starts its own.

mod batches;
mod behaviour;
mod calendar;
mod editions;
mod expected;
mod leavers;
mod memory;
mod model;
mod outage;
mod scripts;
pub(super) mod support;
mod twins;

//! Against real servers: each test starts its own.

mod batches;
mod behaviour;
mod calendar;
mod certificates;
mod editions;
mod expected;
mod failover;
mod leavers;
mod memory;
mod model;
mod outage;
mod places;
mod scripts;
pub(super) mod support;
mod tls;
mod trouble;
mod twins;
mod watched;

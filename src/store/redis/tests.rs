//! Against real servers: each test starts its own.

mod batches;
mod behaviour;
mod calendar;
mod certificates;
mod clusters;
mod editions;
mod encrypted;
mod expected;
mod failover;
mod functions;
mod leavers;
mod masters;
mod memory;
mod model;
mod mourning;
mod moving;
mod outage;
mod places;
mod scripts;
mod silent;
pub(super) mod support;
mod tls;
mod trouble;
mod twins;
mod undone;
mod watched;
mod words;

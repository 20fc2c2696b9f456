//! Against real servers: each test starts its own.

mod behaviour;
mod calendar;
mod editions;
mod model;
mod outage;
pub(super) mod support;
mod twins;

//! Against real servers: each test starts its own.

mod behaviour;
mod figures;
mod model;
mod outage;
pub(super) mod support;
mod twins;

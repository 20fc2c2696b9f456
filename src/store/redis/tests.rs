//! Tests against real servers: each test starts its own.

mod abandonment;
mod batches;
mod behaviour;
mod calendar;
mod certificates;
mod change_book;
mod clusters;
mod editions;
mod encrypted;
mod expected;
mod failover;
mod functions;
mod masters;
mod memory;
mod model;
mod mourning;
mod moving;
mod outage;
mod pending_refunds;
mod places;
mod replaced;
mod scripts;
mod shared_keys;
mod silent;
#[path = "../../../tests/support/stored_state.rs"]
mod stored_state;
pub(super) mod support;
mod tls;
mod trouble;
mod twins;
mod undone;
mod watched;
mod words;

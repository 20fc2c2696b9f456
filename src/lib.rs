#![doc = include_str!("README.md")]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "a test may read the clock")
)]

/// Files of `tests` that unit tests include name the crate as the other tests do.
#[cfg(test)]
extern crate self as tollgate;

pub mod acme;
pub mod admin;
pub mod admission;
pub mod app;
pub mod changes;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod descriptors;
pub mod fetch;
pub mod intake;
pub mod interim;
pub mod key;
pub mod limit;
pub mod listen;
pub mod proxy;
pub mod reload;
pub mod replay;
pub mod route;
pub mod shutdown;
pub mod snapshot;
pub mod store;
pub mod telemetry;
pub mod tls;
pub mod upstream;

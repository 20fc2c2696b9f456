//! Tollgate: a reverse-proxy gateway with built-in distributed rate limiting.

pub mod admin;
pub mod clock;
pub mod config;
pub mod key;
pub mod limit;
pub mod listen;
pub mod proxy;
pub mod route;
pub mod shutdown;
pub mod snapshot;
pub mod store;
pub mod telemetry;
pub mod upstream;

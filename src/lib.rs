#![doc = include_str!("README.md")]

pub mod admin;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod key;
pub mod limit;
pub mod listen;
pub mod proxy;
pub mod reload;
pub mod route;
pub mod shutdown;
pub mod snapshot;
pub mod store;
pub mod telemetry;
pub mod upstream;

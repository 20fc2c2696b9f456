//! The integration tests: one program, each part of which tests the gateway from outside.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test says by stopping where the world was not as it must be"
)]

mod support;

mod acme;
mod fuzzing;
mod gateway;
mod intake;
mod law;
mod one_walk;
mod simulate;
mod tidy;

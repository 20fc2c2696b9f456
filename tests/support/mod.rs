//! The tools of the tests: the real gateway, upstreams with scripts, clients that see every byte, and a real Redis.

mod acme_directory;
mod cluster;
mod eventually;
mod file;
mod gateway;
pub(crate) mod grpc;
pub(crate) mod h2;
pub(crate) mod h2_frames;
mod lag;
pub(crate) mod load;
mod message;
mod modern_server;
mod pebble;
mod ports;
mod preload;
pub(crate) mod process;
mod redis;
mod relay;
mod sentinel;
mod site;
pub(crate) mod stored_state;
pub(crate) mod tls;
mod tls_client;
mod transcript;
mod upstream;
mod wire;

pub(crate) use self::redis::{Redis, connect};
pub(crate) use acme_directory::AcmeDirectory;
pub(crate) use cluster::Cluster;
pub(crate) use eventually::eventually;
pub(crate) use file::File;
pub(crate) use gateway::Gateway;
pub(crate) use grpc::GrpcServer;
pub(crate) use h2::{Feed, H2};
pub(crate) use lag::Lag;
pub(crate) use message::{Answer, Fields, get, request};
pub(crate) use modern_server::{Manner, ModernServer, modern_acceptor};
pub(crate) use pebble::{Pebble, PebbleWish};
pub(crate) use ports::free_port;
pub(crate) use preload::preload;
pub(crate) use process::{Finished, tollgate};
pub(crate) use relay::{Line, Relay};
pub(crate) use sentinel::Sentinel;
pub(crate) use site::Site;
pub(crate) use tls_client::{Authority, Pair, TlsClient};
pub(crate) use upstream::{Connection, Seen, Upstream};
pub(crate) use wire::{End, Wire};

use std::time::Duration;

/// The time that a test waits for an event that must come. It is generous, since only a failing test uses it up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Should the tests run in their long forms?
pub(crate) fn long() -> bool {
    std::env::var_os("TOLLGATE_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

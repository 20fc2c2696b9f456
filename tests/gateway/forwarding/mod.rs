//! Requests and responses are forwarded whole, in time, and with the right fields. Each fault has its status.

mod bodiless;
mod breaking;
mod connections;
mod dead_servers;
mod explained;
mod explained_upgrades;
mod faults;
mod fields;
mod framing;
mod keeping;
mod large_answers;
mod leaving;
mod prefix;
mod streaming;
mod tunnel_ends;
mod upgrades;
mod upload_memory;
mod uploads;

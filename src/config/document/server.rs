//! `[server]`, `[log]`, `[admin]` and `[response]` as written.

use super::super::value::{address, error_text, network, percent};
use super::fields::{Fields, Zero};
use super::{List, Setting};
use crate::key::client_ip::Field;
use crate::snapshot::FieldStyle;
use crate::telemetry::{AccessFormat, Level};
use ipnet::IpNet;
use std::net::SocketAddr;
use std::time::Duration;

/// `[server]`.
#[derive(Debug, Default)]
pub(in crate::config) struct ServerTable {
    pub(in crate::config) listen: List<SocketAddr>,
    pub(in crate::config) trust: List<IpNet>,
    pub(in crate::config) trust_field: Setting<Field>,
    pub(in crate::config) workers: Setting<u32>,
    pub(in crate::config) drain: Setting<Duration>,
    pub(in crate::config) first_byte: Setting<Duration>,
    pub(in crate::config) head: Setting<Duration>,
    pub(in crate::config) idle: Setting<Duration>,
    pub(in crate::config) min_rate: Setting<u64>,
    pub(in crate::config) max_connections: Setting<u32>,
    pub(in crate::config) max_connections_per_client: Setting<u32>,
    pub(in crate::config) max_held: Setting<u32>,
    pub(in crate::config) max_held_per_client: Setting<u32>,
}

/// `[log]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Log {
    pub(in crate::config) access: Setting<AccessFormat>,
    pub(in crate::config) level: Setting<Level>,
}

/// `[admin]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Admin {
    pub(in crate::config) listen: Setting<SocketAddr>,
}

/// `[defaults]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Defaults {
    pub(in crate::config) limits: List<String>,
}

/// `[response]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Response {
    pub(in crate::config) headers: Setting<FieldStyle>,
    pub(in crate::config) body: Setting<ErrorText>,
    /// In percent.
    pub(in crate::config) jitter: Setting<u8>,
}

/// What answers of the gateway's own look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum ErrorText {
    Problem,
    Text,
    Html,
    Accept,
    File(String),
}

pub(super) fn server(mut fields: Fields<'_>) -> ServerTable {
    ServerTable {
        listen: fields.texts("listen", address),
        trust: fields.texts("trust", network),
        trust_field: fields.choice(
            "trust_field",
            &[
                ("x-forwarded-for", Field::XForwardedFor),
                ("forwarded", Field::Forwarded),
            ],
            &[],
        ),
        workers: fields.whole("workers"),
        drain: fields.time("drain", Zero::Allowed),
        first_byte: fields.time("first_byte", Zero::Refused),
        head: fields.time("head", Zero::Refused),
        idle: fields.time("idle", Zero::Refused),
        min_rate: fields.byte_rate("min_rate"),
        max_connections: fields.whole("max_connections"),
        max_connections_per_client: fields.whole("max_connections_per_client"),
        max_held: fields.whole("max_held"),
        max_held_per_client: fields.whole("max_held_per_client"),
    }
}

pub(super) fn log(mut fields: Fields<'_>) -> Log {
    Log {
        access: fields.choice(
            "access",
            &[
                ("json", AccessFormat::Json),
                ("short", AccessFormat::Short),
                ("combined", AccessFormat::Combined),
                ("off", AccessFormat::Off),
            ],
            &[],
        ),
        level: fields.choice(
            "level",
            &[
                ("error", Level::Error),
                ("warn", Level::Warn),
                ("info", Level::Info),
                ("debug", Level::Debug),
                ("trace", Level::Trace),
            ],
            &[],
        ),
    }
}

pub(super) fn admin(mut fields: Fields<'_>) -> Admin {
    Admin {
        listen: fields.text("listen", address),
    }
}

pub(super) fn defaults(mut fields: Fields<'_>) -> Defaults {
    Defaults {
        limits: fields.texts("limits", |text| Ok(text.to_owned())),
    }
}

pub(super) fn response(mut fields: Fields<'_>) -> Response {
    Response {
        headers: fields.choice(
            "headers",
            &[
                ("both", FieldStyle::Both),
                ("standard", FieldStyle::Standard),
                ("legacy", FieldStyle::Legacy),
                ("none", FieldStyle::None),
            ],
            &[],
        ),
        body: fields.text("body", error_text),
        jitter: fields.text("jitter", percent),
    }
}

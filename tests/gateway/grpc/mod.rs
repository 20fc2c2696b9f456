//! Calls of gRPC: their streams, refusals, deadlines, statuses, and streams that are silent for long.

mod breaks;
mod deadlines;
mod idle;
mod refusals;
mod statuses;
mod streams;

use crate::support::{File, Gateway, GrpcServer};

/// A file with a gRPC server behind `/`. The route's table comes last, so that a test can add keys.
fn file(server: &GrpcServer, limits: &[&str]) -> File {
    leading_to(&server.url(), limits)
}

fn leading_to(url: &str, limits: &[&str]) -> File {
    File::default()
        .with(&format!("[upstreams.main]\nservers = \"{url}\""))
        .route("all", "/{*rest}", "main", limits)
}

async fn gateway(server: &GrpcServer) -> Gateway {
    Gateway::start(&file(server, &[])).await
}

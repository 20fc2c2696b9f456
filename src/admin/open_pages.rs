//! The pages for everybody: metrics, health and readiness, which name no client; and the store's state.

use super::answers::problem::Problem;
use super::answers::store::StoreAnswer;
use super::call::{AdminResponse, Call, json, response};
use super::{AdminState, Phase, routing};
use crate::store::redis::missing_right;
use crate::telemetry::metrics::TextFormat;
use bytes::Bytes;
use http::header::{ACCEPT, VARY};
use http::{HeaderValue, StatusCode};
use std::sync::Arc;

const TEXT: &str = "text/plain; charset=utf-8";

/// `GET /healthz`: a gateway that answers is alive.
pub(super) fn health(_: &Call) -> Result<AdminResponse, Problem> {
    Ok(text_answer(StatusCode::OK, "ok\n"))
}

/// `GET /readyz`.
pub(super) fn readiness(call: &Call) -> Result<AdminResponse, Problem> {
    Ok(ready_text(&call.state))
}

/// `GET /v1/store`.
pub(super) fn store(call: &Call) -> Result<AdminResponse, Problem> {
    json(&StoreAnswer::of(call.state.metrics.shared_store()))
}

/// `GET /metrics`.
pub(super) async fn metrics(call: Call) -> Result<AdminResponse, Problem> {
    let accept = call
        .fields
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let format = TextFormat::accepted(accept);
    let metrics = Arc::clone(&call.state.metrics);
    // Thousands of routes are megabytes of text, and this thread also reloads and checks health.
    let written = tokio::task::spawn_blocking(move || metrics.render(format)).await;
    let Ok(written) = written else {
        let detail = "the metrics could not be written";
        return Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed",
            detail,
        ));
    };
    let mut shown = response(StatusCode::OK, format.content_type(), written);
    shown
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("accept"));
    Ok(shown)
}

/// Readiness depends on the phase alone; the answer also shows the store's state, missing certificates and keys of
/// tokens, and upstreams without a server.
fn ready_text(state: &AdminState) -> AdminResponse {
    match state.readiness.phase() {
        Phase::Ready => {
            let store = match state.metrics.shared_store() {
                None => String::new(),
                Some(store) if store.is_up() => "store: up\n".to_owned(),
                Some(store) => {
                    let what = if store.is_partly_up() {
                        "partly away, limits counted there"
                    } else {
                        "away, limits"
                    };
                    let why = missing_right().map_or_else(String::new, |why| format!(": {why}"));
                    format!("store: {what} follow their on_down{why}\n")
                }
            };
            let tls = awaited_certificates(state);
            let unread = state.metrics.unread_keys();
            let unread = unread.iter().map(|url| {
                format!(
                    "jwks: no keys read yet from {url}; requests that need its tokens are answered 503\n"
                )
            });
            let jwks: String = unread.collect();
            let without = routing::without_server(state.snapshots.as_ref());
            text_answer(
                StatusCode::OK,
                format!("ready\n{store}{tls}{jwks}{without}"),
            )
        }
        Phase::Starting => {
            let tls = awaited_certificates(state);
            let said = format!("starting: no configuration is in force yet\n{tls}");
            text_answer(StatusCode::SERVICE_UNAVAILABLE, said)
        }
        Phase::Draining => text_answer(
            StatusCode::SERVICE_UNAVAILABLE,
            "draining: shutting down, and finishing requests under way\n",
        ),
    }
}

/// The line about certificates that are missing, and the reason why the store has not supplied them.
fn awaited_certificates(state: &AdminState) -> String {
    let awaited = state.metrics.awaited_certificates().join(", ");
    if awaited.is_empty() {
        return String::new();
    }
    let why = if state.metrics.acme_store_is_away() {
        " (the store that keeps certificates does not answer)"
    } else {
        ""
    };
    format!("tls: no certificate yet for {awaited}{why}, handshakes there are refused\n")
}

fn text_answer(status: StatusCode, body: impl Into<Bytes>) -> AdminResponse {
    response(status, TEXT, body)
}

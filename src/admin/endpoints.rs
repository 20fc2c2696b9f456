//! The endpoints of the admin listener: metrics, health, readiness, and the state of the store.

use super::{AdminState, Phase, upstreams};
use crate::store::redis::missing_right;
use crate::telemetry::metrics::{StoreStatus, TextFormat};
use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use std::sync::Arc;

pub(super) type AdminResponse = Response<Full<Bytes>>;

const TEXT: &str = "text/plain; charset=utf-8";
const PROBLEM: &str = "application/problem+json";

/// Answers one request; the request's body, if there is one, stays unread.
pub(super) async fn answer<B>(state: AdminState, request: Request<B>) -> AdminResponse {
    let path = request.uri().path();
    if !matches!(
        path,
        "/metrics" | "/healthz" | "/readyz" | "/v1/store" | "/v1/upstreams"
    ) {
        let detail =
            "this listener has /metrics, /healthz, /readyz, /v1/store, /v1/upstreams and /v1/peek";
        return problem(StatusCode::NOT_FOUND, detail);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = problem(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD are answered here",
        );
        let allowed = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, allowed);
        return refused;
    }
    match path {
        "/metrics" => metrics(&state, request.headers()).await,
        "/readyz" => readiness(&state),
        "/v1/upstreams" => json(&upstreams::upstreams_json(state.snapshots.as_ref())),
        "/v1/store" => store(state.metrics.shared_store()),
        // A gateway that answers is alive.
        _ => text_answer(StatusCode::OK, "ok\n"),
    }
}

async fn metrics(state: &AdminState, headers: &HeaderMap) -> AdminResponse {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = TextFormat::accepted(accept);
    let metrics = Arc::clone(&state.metrics);
    // Thousands of routes are megabytes of text, and this thread also reloads and checks health.
    let written = tokio::task::spawn_blocking(move || metrics.render(format)).await;
    let Ok(written) = written else {
        let detail = "the metrics could not be written";
        return problem(StatusCode::INTERNAL_SERVER_ERROR, detail);
    };
    let mut shown = response(StatusCode::OK, format.content_type(), written);
    shown
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("accept"));
    shown
}

/// Readiness depends on the phase alone; the answer also shows the store's state, missing certificates and keys of
/// tokens, and upstreams without a server.
fn readiness(state: &AdminState) -> AdminResponse {
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
            let without = upstreams::without_server(state.snapshots.as_ref());
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

/// The store's state.
fn store(shared: Option<StoreStatus>) -> AdminResponse {
    json(&match shared {
        None => serde_json::json!({ "kind": "memory", "up": true }),
        Some(shared) => serde_json::json!({
            "kind": "redis",
            "up": shared.is_up(),
            "workers": shared.workers,
            "reaching": shared.reaching,
            "partly": shared.partly,
            "gateways": shared.gateways,
        }),
    })
}

/// A JSON object as a response.
pub(super) fn json(object: &serde_json::Value) -> AdminResponse {
    response(StatusCode::OK, "application/json", object.to_string())
}

fn text_answer(status: StatusCode, body: impl Into<Bytes>) -> AdminResponse {
    response(status, TEXT, body)
}

pub(super) fn problem(status: StatusCode, detail: &str) -> AdminResponse {
    let body = serde_json::json!({
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": detail,
    });
    response(status, PROBLEM, body.to_string())
}

fn response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> AdminResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

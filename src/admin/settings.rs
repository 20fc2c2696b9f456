//! `GET /v1/config`, `POST /v1/reload` and `GET /v1/openapi.json`.

use super::Phase;
use super::answers::problem::Problem;
use super::call::{AdminResponse, Call, ChangeDone, json, response};
use super::door::RecordMembers;
use super::door::body::{AdminBody, members};
use http::StatusCode;
use serde::Deserialize;

/// The document of all calls; a test makes it of the types of `answers`.
const OPENAPI: &str = include_str!("openapi.json");

/// The file as it is understood.
pub(super) async fn config(call: Call) -> Result<AdminResponse, Problem> {
    let file = call.state.file;
    // A large file takes a while, and this thread also reloads and checks health.
    let text = tokio::task::spawn_blocking(move || file.text()).await;
    let text = text.map_err(|error| {
        let detail = format!("the file cannot be written: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail)
    })?;
    json(&text)
}

/// The document of all calls.
pub(super) fn openapi(_: &Call) -> Result<AdminResponse, Problem> {
    Ok(response(StatusCode::OK, "application/json", OPENAPI))
}

/// The body of a reload, which has no members.
#[derive(Debug, Deserialize)]
struct ReloadRequest {}

impl AdminBody for ReloadRequest {
    const MEMBERS: &'static [&'static str] = &[];
}

/// Reads the file again, as SIGHUP does.
pub(super) async fn reload(call: Call) -> Result<ChangeDone, Problem> {
    let ReloadRequest {} = members(&call.body)?;
    if call.state.readiness.phase() != Phase::Ready {
        let detail = "the gateway is starting or leaving: no file is taken over";
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "starting",
            detail,
        ));
    }
    let outcome = call.state.file.reload().await?;
    let record = RecordMembers::from_iter([
        ("generation".to_owned(), outcome.generation.into()),
        ("unchanged".to_owned(), outcome.unchanged.into()),
    ]);
    Ok(ChangeDone {
        answer: json(&outcome)?,
        record,
    })
}

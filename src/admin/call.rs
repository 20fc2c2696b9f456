//! A request that has been let in, and the answers to it.

pub(super) mod paging;

use super::AdminState;
use super::answers::problem::Problem;
use super::door::{AdminCaller, RecordMembers};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use std::future::Future;
use std::pin::Pin;

pub(super) type AdminResponse = Response<Full<Bytes>>;

/// An answer as it comes.
pub(super) type Answering<T> = Pin<Box<dyn Future<Output = Result<T, Problem>> + Send>>;

/// The type of answers.
const JSON: &str = "application/json";

/// A request that has been let in.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) state: AdminState,
    pub(super) fields: HeaderMap,
    /// The segment of the path that the table leaves open.
    pub(super) segment: String,
    /// The parameters, each once.
    pub(super) parameters: Vec<(String, String)>,
    pub(super) body: Bytes,
    /// The caller, if the call is a change.
    pub(super) author: Option<AdminCaller>,
}

/// A change that was done.
#[derive(Debug)]
pub(super) struct ChangeDone {
    pub(super) answer: AdminResponse,
    /// The members of its record that only the change knows.
    pub(super) record: RecordMembers,
}

impl Call {
    /// The value of a parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let mut all = self.parameters.iter();
        all.find(|(one, _)| one == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A parameter with a value that it does not take.
pub(super) fn bad_parameter(detail: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "bad_parameter", detail)
}

/// An answer in JSON.
pub(super) fn json(answer: &impl Serialize) -> Result<AdminResponse, Problem> {
    let text = serde_json::to_string(answer).map_err(|error| {
        let detail = format!("the answer cannot be written: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail)
    })?;
    Ok(response(StatusCode::OK, JSON, text))
}

/// An answer that no cache keeps.
pub(super) fn response(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> AdminResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

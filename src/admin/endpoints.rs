//! The calls of the admin listener: a table of methods and paths, each with its need and its handler.

use super::answers::problem::Problem;
use super::call::{AdminResponse, Answering, Call, ChangeDone, bad_parameter, response};
use super::door::body::{self, unknown_member};
use super::door::{AdminCaller, AdminPeer, Need};
use super::{AdminState, changes, limits, open_pages, peek, routing, settings, status};
use bytes::Bytes;
use form_urlencoded::parse;
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body::Body;
use std::error::Error;

/// The type of problem documents.
const PROBLEM: &str = "application/problem+json";
/// A call.
#[derive(Debug)]
pub(super) struct AdminEndpoint {
    pub(super) method: Method,
    /// The path; `{}` is one segment, which the handler gets.
    pub(super) path: &'static str,
    /// The parameters that it knows.
    pub(super) parameters: &'static [&'static str],
    pub(super) handler: CallHandler,
}

/// What a call does.
#[derive(Debug)]
pub(super) enum CallHandler {
    /// It is for everybody, under any `Host`: it names no client.
    Open(fn(Call) -> Answering<AdminResponse>),
    /// It reads.
    Read(fn(Call) -> Answering<AdminResponse>),
    /// It changes the gateway, and is recorded under this name.
    Change(&'static str, fn(Call) -> Answering<ChangeDone>),
}

/// Every call. Another one is a line here, a type in `answers`, and a path in `openapi.rs`.
#[rustfmt::skip]
pub(super) static ENDPOINTS: [AdminEndpoint; 15] = [
    open_endpoint("/metrics", |call| Box::pin(open_pages::metrics(call))),
    open_endpoint("/healthz", |call| at_once(open_pages::health(&call))),
    open_endpoint("/readyz", |call| at_once(open_pages::readiness(&call))),
    read_endpoint("/v1/status", &[], |call| Box::pin(status::answer(call))),
    read_endpoint("/v1/limits", &["count", "after"], |call| at_once(limits::list(&call))),
    read_endpoint("/v1/limits/{}", &[], |call| at_once(limits::one(&call))),
    read_endpoint("/v1/routes", &["count", "after"], |call| at_once(routing::routes(&call))),
    read_endpoint("/v1/upstreams", &[], |call| at_once(routing::upstreams(&call))),
    read_endpoint("/v1/config", &[], |call| Box::pin(settings::config(call))),
    read_endpoint("/v1/store", &[], |call| at_once(open_pages::store(&call))),
    read_endpoint("/v1/openapi.json", &[], |call| at_once(settings::openapi(&call))),
    post_endpoint(peek::PATH, CallHandler::Read(|call| Box::pin(peek::answer(call)))),
    read_endpoint("/v1/changes", &[], |call| at_once(changes::list(&call))),
    post_endpoint("/v1/reset", CallHandler::Change("reset", |call| Box::pin(changes::reset(call)))),
    post_endpoint("/v1/reload", CallHandler::Change("reload", |call| Box::pin(settings::reload(call)))),
];

/// An answer that is there already.
fn at_once(answer: Result<AdminResponse, Problem>) -> Answering<AdminResponse> {
    Box::pin(std::future::ready(answer))
}

const fn open_endpoint(
    path: &'static str,
    answer: fn(Call) -> Answering<AdminResponse>,
) -> AdminEndpoint {
    AdminEndpoint {
        method: Method::GET,
        path,
        parameters: &[],
        handler: CallHandler::Open(answer),
    }
}

const fn read_endpoint(
    path: &'static str,
    parameters: &'static [&'static str],
    answer: fn(Call) -> Answering<AdminResponse>,
) -> AdminEndpoint {
    AdminEndpoint {
        method: Method::GET,
        path,
        parameters,
        handler: CallHandler::Read(answer),
    }
}

const fn post_endpoint(path: &'static str, handler: CallHandler) -> AdminEndpoint {
    AdminEndpoint {
        method: Method::POST,
        path,
        parameters: &[],
        handler,
    }
}

impl AdminEndpoint {
    /// The open segment of `path`, if the path is this one's; empty if it has none.
    fn segment_of<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.path.strip_suffix("{}") {
            None => (self.path == path).then_some(""),
            Some(front) => {
                let rest = path.strip_prefix(front)?;
                (!rest.is_empty() && !rest.contains('/')).then_some(rest)
            }
        }
    }

    fn takes(&self, method: &Method) -> bool {
        self.method == *method || self.method == Method::GET && *method == Method::HEAD
    }
}

/// Answers one request.
pub(super) async fn respond<B>(
    state: AdminState,
    client: &AdminPeer,
    request: Request<B>,
) -> AdminResponse
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let of_path = |one: &&AdminEndpoint| one.segment_of(&path).is_some();
    let found = ENDPOINTS.iter().filter(of_path);
    let endpoint = found.clone().find(|one| one.takes(&head.method));
    let answer = match endpoint {
        Some(endpoint) => match endpoint.handler {
            CallHandler::Open(answer) => match call(endpoint, state, &path, head, Bytes::new()) {
                Ok(call) => answer(call).await,
                Err(problem) => Err(problem),
            },
            CallHandler::Read(answer) => reading(endpoint, answer, state, client, head, body).await,
            CallHandler::Change(action, change) => {
                let change = RecordedCall {
                    endpoint,
                    action,
                    change,
                };
                change.answer(state, client, head, body).await
            }
        },
        None => Err(lost(&state, client, &head, found.collect())),
    };
    answer.unwrap_or_else(|problem| refusal(&problem))
}

/// The refusal of a path that no call has, or of its method. Strangers do not learn which paths there are.
fn lost(
    state: &AdminState,
    client: &AdminPeer,
    head: &Parts,
    found: Vec<&AdminEndpoint>,
) -> Problem {
    let is_open = |one: &&AdminEndpoint| matches!(one.handler, CallHandler::Open(_));
    if !found.iter().any(is_open)
        && let Err(problem) = state.door.admit(Need::Read, client, head)
    {
        return problem;
    }
    let Some(one) = found.first() else {
        let detail = "this listener has no such path; /v1/openapi.json lists all";
        return Problem::unknown("unknown_path", detail);
    };
    let (detail, allowed) = if one.method == Method::GET {
        ("only GET and HEAD are answered here", "GET, HEAD")
    } else {
        ("only POST is answered here", "POST")
    };
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).allowing(allowed)
}

async fn reading<B>(
    endpoint: &'static AdminEndpoint,
    answer: fn(Call) -> Answering<AdminResponse>,
    state: AdminState,
    client: &AdminPeer,
    head: Parts,
    body: B,
) -> Result<AdminResponse, Problem>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    state.door.admit(Need::Read, client, &head)?;
    let body = body_of(endpoint, &head, body).await?;
    let path = head.uri.path().to_owned();
    answer(call(endpoint, state, &path, head, body)?).await
}

/// A call that changes the gateway.
struct RecordedCall {
    endpoint: &'static AdminEndpoint,
    action: &'static str,
    change: fn(Call) -> Answering<ChangeDone>,
}

impl RecordedCall {
    /// Does the change and records it, or records that it was refused.
    async fn answer<B>(
        self,
        state: AdminState,
        client: &AdminPeer,
        head: Parts,
        body: B,
    ) -> Result<AdminResponse, Problem>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (door, action) = (state.door.clone(), self.action);
        let by = match door.admit(Need::Change, client, &head) {
            Ok(by) => by,
            Err(problem) => {
                door.record_refused(action, None, client, &problem).await;
                return Err(problem);
            }
        };
        match self.done(state, &by, head, body).await {
            Ok(done) => {
                door.record_done(action, &by, done.record).await?;
                Ok(done.answer)
            }
            Err(problem) => {
                door.record_refused(action, Some(&by), client, &problem)
                    .await;
                Err(problem)
            }
        }
    }

    async fn done<B>(
        self,
        state: AdminState,
        by: &AdminCaller,
        head: Parts,
        body: B,
    ) -> Result<ChangeDone, Problem>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let body = body_of(self.endpoint, &head, body).await?;
        let path = head.uri.path().to_owned();
        let door = state.door.clone();
        let mut call = call(self.endpoint, state, &path, head, body)?;
        call.author = Some(by.clone());
        door.is_recordable().await?;
        (self.change)(call).await
    }
}

/// The body of a POST. Other calls have none, and what comes stays unread.
async fn body_of<B>(endpoint: &AdminEndpoint, head: &Parts, body: B) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if endpoint.method != Method::POST {
        return Ok(Bytes::new());
    }
    body::check_type(&head.headers)?;
    body::collect(body).await
}

fn call(
    endpoint: &AdminEndpoint,
    state: AdminState,
    path: &str,
    head: Parts,
    body: Bytes,
) -> Result<Call, Problem> {
    let segment = endpoint.segment_of(path).unwrap_or_default();
    let query = head.uri.query().unwrap_or_default();
    let parameters: Vec<(String, String)> = if matches!(endpoint.handler, CallHandler::Open(_)) {
        // Scrapers may send parameters of their own.
        Vec::new()
    } else {
        parse(query.as_bytes()).into_owned().collect()
    };
    for (position, (name, _)) in parameters.iter().enumerate() {
        if !endpoint.parameters.contains(&name.as_str()) {
            let fault = unknown_member(name, endpoint.parameters);
            let shown: String = name.chars().take(64).collect();
            let detail = format!("there is no parameter `{shown}`");
            let problem = Problem::new(StatusCode::BAD_REQUEST, "unknown_parameter", detail);
            return Err(problem.help(fault.detail));
        }
        if parameters[..position].iter().any(|(one, _)| one == name) {
            return Err(bad_parameter(format!("`{name}` is written twice")));
        }
    }
    Ok(Call {
        segment: segment.to_owned(),
        parameters,
        fields: head.headers,
        state,
        body,
        author: None,
    })
}

fn refusal(problem: &Problem) -> AdminResponse {
    let mut refused = response(problem.status, PROBLEM, problem.text());
    for (name, value) in &problem.fields {
        refused.headers_mut().append(name, value.clone());
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_method_and_a_path_have_one_call_and_no_get_changes_anything() {
        let mut seen = HashSet::new();
        for one in &ENDPOINTS {
            assert!(seen.insert((one.method.clone(), one.path)), "{one:?}");
            if matches!(one.handler, CallHandler::Change(..)) {
                assert_eq!(one.method, Method::POST, "{one:?}");
            }
        }
    }

    #[test]
    fn an_open_segment_is_one_segment() {
        let one = read_endpoint("/v1/limits/{}", &[], |_| unreachable!());
        assert_eq!(one.segment_of("/v1/limits/a"), Some("a"));
        for other in ["/v1/limits", "/v1/limits/", "/v1/limits/a/b", "/v1/x"] {
            assert_eq!(one.segment_of(other), None, "{other}");
        }
    }
}

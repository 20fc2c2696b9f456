//! The attempts of one request after the first has failed: the next server, whether another attempt is allowed, and the
//! connection.

use crate::clock;
use crate::proxy::answer::upstream_answer::UpstreamAnswer;
use crate::proxy::bodies::request_body::RequestBody;
use crate::proxy::bodies::response_body::BodyCarrier;
use crate::proxy::error::ProxyError;
use crate::proxy::server::call_notes::CallNotes;
use crate::proxy::server::server_part::ServerPart;
use crate::telemetry::metrics::{Failure, RetryResult};
use crate::upstream::balance::Balancer;
use crate::upstream::connection::{Connection, UnsentRequest, is_repeatable};
use crate::upstream::endpoint::{Endpoint, PooledConnection};
use crate::upstream::failure::UpstreamError;
use crate::upstream::http1::AnswerError;
use crate::upstream::pool::Pool;
use crate::upstream::retry_rule::RetryCause;
use crate::upstream::tunnel::{self, UnopenedTunnel};
use crate::upstream::{ConnectError, Purpose};
use http::{Request, Response};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::sleep;

/// The least number of servers that are tried for one request while they accept no connection.
const LEAST_SERVERS: u32 = 3;
/// The most servers that are tried for one request if none is available and all are tried.
const MOST_SERVERS: u32 = 16;
/// The most times that a request is sent if its servers refuse it.
const MOST_REFUSALS: u32 = 4;
/// The most connections without room for its body that one request may try.
const MOST_STARVED: u32 = 16;
/// The wait before the same server is tried once more.
const AGAIN: Duration = Duration::from_millis(25);

/// The attempts of one request.
#[derive(Debug)]
pub(in crate::proxy) struct UpstreamAttempts<'a> {
    balancer: &'a Balancer<RequestBody>,
    notes: &'a CallNotes,
    key: Option<u64>,
    purpose: Purpose,
    /// The parts of the request that depend on the server that it is sent to.
    part: ServerPart<'a>,
    /// The number of times the request was sent again after some of it was sent.
    retries: u32,
    /// The number of connections without room for its body.
    starved: u32,
    /// The failure before the last attempt, until the attempt's end is counted.
    cause: Option<RetryCause>,
}

impl Drop for UpstreamAttempts<'_> {
    fn drop(&mut self) {
        self.count(RetryResult::Failed);
    }
}

impl<'a> UpstreamAttempts<'a> {
    /// The attempts of a request that is at its first server.
    pub(in crate::proxy) fn new(
        balancer: &'a Balancer<RequestBody>,
        notes: &'a CallNotes,
        key: Option<u64>,
        purpose: Purpose,
    ) -> Self {
        Self {
            balancer,
            notes,
            key,
            purpose,
            part: ServerPart {
                uses_server_host: false,
                grpc: None,
            },
            retries: 0,
            starved: 0,
            cause: None,
        }
    }

    /// The same, for a request whose server-dependent parts are `own`.
    pub(in crate::proxy) fn writing(mut self, part: ServerPart<'a>) -> Self {
        self.part = part;
        self
    }

    /// A new connection, to another server if this one accepts none; or an idle one of a server that accepts no new
    /// ones. No byte has been sent.
    pub(in crate::proxy) async fn connect(
        &mut self,
    ) -> Result<PooledConnection<RequestBody>, ProxyError> {
        loop {
            let endpoint = self.endpoint()?;
            let began = clock::now();
            let error = match self.balancer.connect(&endpoint, self.purpose).await {
                Ok(connection) => {
                    self.notes.note_connect(began.elapsed());
                    return Ok((connection, Rc::clone(&endpoint.pool)));
                }
                Err(ConnectError::Busy { .. }) => return Err(UpstreamError::Busy.into()),
                Err(error) => error,
            };
            // A client requests a tunnel for any protocol of its server.
            if !(self.purpose == Purpose::Tunnel && matches!(error, ConnectError::Protocol { .. }))
            {
                self.balancer
                    .failed(&endpoint, &error.in_full(), began, None);
            }
            // A server that accepts no new connection may still answer on an idle one.
            if self.purpose == Purpose::Exchange
                && let Some(connection) = endpoint.pool.take_open()
            {
                return Ok((connection, Rc::clone(&endpoint.pool)));
            }
            if !self.next(RetryCause::Connect, false).await {
                return Err(UpstreamError::Connect(error).into());
            }
        }
    }

    /// Sends the request of a tunnel on a dedicated connection. It is sent again after a reset, like other requests.
    pub(in crate::proxy) async fn open_tunnel(
        mut self,
        mut connection: Connection<RequestBody>,
        mut pool: Rc<Pool<RequestBody>>,
        mut request: Request<RequestBody>,
    ) -> Result<UpstreamAnswer, ProxyError> {
        loop {
            let is_owed = pool.is_owed_http1(&connection);
            let retry = repeated(&request);
            let UnopenedTunnel { error, is_heard } = match tunnel::open(connection, request).await {
                Ok(opened) => {
                    self.count(RetryResult::Answered);
                    let (head, body) = opened.into_parts();
                    return Ok(UpstreamAnswer {
                        response: Response::from_parts(head, ()),
                        carrier: BodyCarrier::Tunnel(body),
                        pool,
                    });
                }
                Err(unopened) => unopened,
            };
            if is_owed {
                let endpoint = self.endpoint()?;
                self.blame(&endpoint, &error);
            }
            let may_retry = error.failure() == Failure::Reset && !is_heard;
            let Some(retry) = retry.filter(|_| may_retry) else {
                return Err(UpstreamError::Answer(error).into());
            };
            if !self.next(RetryCause::Reset, false).await {
                return Err(UpstreamError::Answer(error).into());
            }
            request = retry;
            (connection, pool) = self.connect().await?;
            self.part.write(&mut request, &connection, &pool)?;
        }
    }

    /// Notes that the request has a connection.
    pub(in crate::proxy) fn are_over(mut self) {
        self.count(RetryResult::Answered);
    }

    /// The request on `connection` has failed with `error` before any answer: it is sent again as long as allowed.
    #[cold]
    pub(in crate::proxy) async fn after(
        mut self,
        mut connection: Connection<RequestBody>,
        mut error: AnswerError,
    ) -> Result<UpstreamAnswer, ProxyError> {
        // An idle connection may have been closed meanwhile, which is no failure of its server. A fresh one replaces
        // it, once.
        let mut may_be_stale = true;
        loop {
            let is_starved = matches!(error, AnswerError::Starved);
            let is_stale = !is_starved
                && std::mem::take(&mut may_be_stale)
                && !error.is_refused()
                && connection.is_stale(&error);
            let is_clients = connection.is_ended_by_client(&error) || self.is_out_of_time(&error);
            let unsent = connection.into_unsent();
            // No byte was sent, and another connection of the server may have room: no attempt has failed.
            self.starved += u32::from(is_starved);
            let goes_elsewhere = is_stale || (is_starved && self.starved <= MOST_STARVED);
            if !is_clients && !is_starved && (unsent.is_none() || !is_stale) {
                let endpoint = self.endpoint()?;
                self.blame(&endpoint, &error);
            }
            let Some(mut unsent) = unsent else {
                return Err(UpstreamError::Answer(error).into());
            };
            if error.failure() == Failure::Tls
                && let Some(endpoint) = self.notes.endpoint()
            {
                endpoint.pool.note_fault(&error.fault());
            }
            if !goes_elsewhere && !self.next(unsent.cause, unsent.is_begun).await {
                return Err(UpstreamError::Answer(error).into());
            }
            let (fresh, pool) = self.connect().await?;
            connection = fresh;
            self.name_server(&mut unsent, &pool);
            if let Some(call) = self.part.grpc {
                call.goes_out(unsent.fields_mut(), connection.is_http2(), clock::now())?;
            }
            match connection.resend(unsent).await {
                Ok(response) => return self.answered(response, connection, pool).await,
                Err(failed) => error = failed,
            }
        }
    }

    /// A server has answered. The request is sent again if the file says so for the status.
    pub(in crate::proxy) async fn answered(
        mut self,
        mut response: Response<()>,
        mut connection: Connection<RequestBody>,
        mut pool: Rc<Pool<RequestBody>>,
    ) -> Result<UpstreamAnswer, ProxyError> {
        while let Some(mut retry) = self.grpc_retry(&response, &connection).await {
            put_back(connection, &pool);
            (connection, pool) = self.connect().await?;
            self.name_server(&mut retry, &pool);
            response = match connection.resend(retry).await {
                Ok(response) => response,
                Err(error) => return Box::pin(self.after(connection, error)).await,
            };
        }
        self.count(RetryResult::Answered);
        Ok(UpstreamAnswer {
            response,
            carrier: BodyCarrier::Connection(connection),
            pool,
        })
    }

    /// The request, if it is to be sent once more after this answer.
    async fn grpc_retry(
        &mut self,
        response: &Response<()>,
        connection: &Connection<RequestBody>,
    ) -> Option<UnsentRequest<RequestBody>> {
        let status = response.status().as_u16();
        let rule = self.balancer.upstream.rules.retry.as_ref()?;
        if !rule.on.has_status(status) {
            return None;
        }
        let retry = connection.repeated()?;
        let (before, asked) = (self.notes.endpoint()?, self.notes.asked()?);
        if !self.next(RetryCause::Status(status), false).await {
            return None;
        }
        let client = || self.notes.client();
        self.balancer
            .answered(&before, status, false, asked, client);
        Some(retry)
    }

    /// Chooses the next server after `cause`, for a request of whose body a server may have had a part. Returns false
    /// if the request is not sent again.
    async fn next(&mut self, cause: RetryCause, is_begun: bool) -> bool {
        let Some(rule) = &self.balancer.upstream.rules.retry else {
            return false;
        };
        if rule.attempts == 0 || !rule.on.has(cause) {
            return false;
        }
        let tries_all = self.balancer.tries_all();
        // A server that has refused a request has not begun with it.
        let is_unsent = matches!(cause, RetryCause::Connect | RetryCause::Refused);
        let most = if cause == RetryCause::Refused {
            MOST_REFUSALS
        } else if tries_all {
            MOST_SERVERS
        } else {
            LEAST_SERVERS.max(rule.attempts + 1)
        };
        let is_spent = if is_unsent {
            self.notes.attempts() >= most
        } else {
            self.retries >= rule.attempts
        };
        if is_spent {
            return false;
        }
        let other = self.balancer.another(self.key, &self.notes.tried());
        let is_refused = cause == RetryCause::Refused;
        if other.is_none() && !is_refused && self.notes.attempts() > rule.attempts {
            return false;
        }
        // No server has begun, and busy servers refuse many requests at once: the number of attempts is a sufficient
        // bound. A body that is sent again costs as much as before.
        let is_free = (is_refused && !is_begun) || (cause == RetryCause::Connect && tries_all);
        if !is_free && !self.balancer.may_repeat(rule.budget) {
            self.notes.note_retry("budget");
            let metrics = &self.balancer.metrics;
            metrics.retried(cause.as_str(), RetryResult::Budget);
            return false;
        }
        self.count(RetryResult::Failed);
        self.cause = Some(cause);
        self.retries += u32::from(!is_unsent);
        self.notes.note_retry(cause.as_str());
        match other {
            Some(server) => self.notes.asks(server, clock::now()),
            None => {
                if !is_refused {
                    sleep(AGAIN).await;
                }
                self.notes.note_next_call(clock::now());
            }
        }
        true
    }

    /// Addresses the request to the server of `pool` itself, if it must name the server that it is sent to.
    fn name_server(&self, unsent: &mut UnsentRequest<RequestBody>, pool: &Pool<RequestBody>) {
        if let Some(host) = pool.host().filter(|_| self.part.uses_server_host) {
            unsent.set_host(host);
        }
    }

    /// Has the server ended a gRPC call whose time is over because of the client?
    fn is_out_of_time(&self, error: &AnswerError) -> bool {
        let call = self.part.grpc;
        error.failure() == Failure::Reset
            && call.is_some_and(|call| call.is_out_of_time(clock::now()))
    }

    /// Counts a failure against its server, if the server caused it.
    fn blame(&self, endpoint: &Endpoint<RequestBody>, error: &AnswerError) {
        let is_upload = matches!(
            error,
            AnswerError::Upload(_) | AnswerError::UploadLength | AnswerError::Refused(_)
        );
        if let (false, Failure::Reset | Failure::Tls | Failure::Protocol, Some(asked)) =
            (is_upload, error.failure(), self.notes.asked())
        {
            let (why, by) = (error.fault().to_string(), Some(self.notes.client()));
            self.balancer.failed(endpoint, &why, asked, by);
        }
    }

    fn endpoint(&self) -> Result<Rc<Endpoint<RequestBody>>, ProxyError> {
        let endpoint = self.notes.endpoint();
        endpoint.ok_or_else(|| UpstreamError::Connect(self.balancer.no_server()).into())
    }

    /// Counts the last time that the request was sent again.
    fn count(&mut self, result: RetryResult) {
        if let Some(cause) = self.cause.take() {
            self.balancer.metrics.retried(cause.as_str(), result);
        }
    }
}

/// The request once more, if it may be sent again although a server may have acted on it.
fn repeated(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    is_repeatable(request).then(|| {
        let mut retry = Request::new(RequestBody::Empty);
        *retry.method_mut() = request.method().clone();
        *retry.uri_mut() = request.uri().clone();
        *retry.headers_mut() = request.headers().clone();
        retry
    })
}

/// Returns a connection whose answer is not needed to the pool, if all of the answer is present.
fn put_back(mut connection: Connection<RequestBody>, pool: &Pool<RequestBody>) {
    let mut quiet = Context::from_waker(Waker::noop());
    while let std::task::Poll::Ready(Some(Ok(_))) = connection.poll_frame(&mut quiet) {}
    if connection.is_read() {
        pool.put(connection);
    }
}

//! Sends the request upstream: chooses a server, finds a connection, waits for the head of the answer.

use crate::descriptors::DescriptorReserve;
use crate::listen::ForwardedFields;
use crate::proxy::answer::upstream_answer::UpstreamAnswer;
use crate::proxy::bodies::request_body::{RequestBody, Upload};
use crate::proxy::bodies::response_body::BodyCarrier;
use crate::proxy::error::ProxyError;
use crate::proxy::limits::reservation::Reservations;
use crate::proxy::server::attempts::UpstreamAttempts;
use crate::proxy::server::call_notes::CallNotes;
use crate::proxy::server::server_part::ServerPart;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::upstream::Purpose;
use crate::upstream::balance::{Balancer, Choice, Waiting};
use crate::upstream::endpoint::{Occupied, PooledConnection};
use crate::upstream::failure::UpstreamError;
use http::{HeaderValue, Request};
use std::rc::Rc;
use tokio::time::{Instant, timeout_at};

/// A request to be sent upstream.
#[derive(Debug)]
pub struct UpstreamCall<'a> {
    /// The request.
    pub request: Request<RequestBody>,
    /// The lines after its fields.
    pub added: AddedLines<'a>,
    /// A descriptor for a connection, if a new one is needed.
    pub descriptor: Option<DescriptorReserve<'a>>,
    /// The purpose of the request's connection.
    pub purpose: Purpose,
    /// The time at which forwarding begins.
    pub at: Instant,
    /// The charges, which a drop no longer refunds once the request is sent.
    pub(in crate::proxy) reservation: Option<Rc<Reservations>>,
    /// The hash of the request's key, if servers are chosen by one.
    pub key: Option<u64>,
    /// The notes of the call.
    pub notes: &'a CallNotes,
    /// The parts that depend on the server.
    pub part: ServerPart<'a>,
}

/// Fields of a request that are written as bytes after the others.
#[derive(Debug, Clone, Copy)]
pub struct AddedLines<'a>([&'a [u8]; 3]);

impl<'a> AddedLines<'a> {
    /// The lines of `forwarded`, which end with the request's `id`; none without it.
    #[must_use]
    pub fn new(forwarded: Option<&'a ForwardedFields>, id: &'a HeaderValue) -> Self {
        Self(forwarded.map_or([b""; 3], |forwarded| {
            [&forwarded.lines[..], id.as_bytes(), b"\r\n"]
        }))
    }
}

/// Chooses a server, sends the request and waits for the head of its answer.
///
/// A pooled connection may turn out to be closed before any byte of an answer, because its server's keep-alive ended or
/// the server itself did. The request is then sent once more on a fresh connection, unless some of its body has been
/// sent. Every other failure is retried by the upstream's `retry`. A request whose method is not idempotent is sent
/// again only if none of it was written: its server may have acted on it (RFC 9110, section 9.2.2).
///
/// # Errors
/// If no server is available or reachable, or the answer fails.
pub async fn send(
    balancer: &Balancer<RequestBody>,
    outgoing: UpstreamCall<'_>,
) -> Result<UpstreamAnswer, ProxyError> {
    let UpstreamCall {
        mut request,
        added,
        descriptor,
        purpose,
        at,
        reservation,
        key,
        notes,
        part,
    } = outgoing;
    let server = match balancer.choose(key, || notes.client()) {
        Choice::Server(server) => server,
        other => Box::pin(free_server(balancer, other, notes, at)).await?,
    };
    let endpoint = Rc::clone(&server.endpoint);
    notes.asks(server, at);
    if balancer.tries_all() {
        notes.note_none_left();
    }
    let pool = &endpoint.pool;
    // A tunnel keeps its connection, and a handshake is worth a fresh one.
    let is_exchange = purpose == Purpose::Exchange;
    let idle = is_exchange.then(|| pool.take(at, &request)).flatten();
    // The pool has been asked: a descriptor that was dropped earlier could have been taken for another new connection.
    drop(descriptor);
    let (mut connection, pool) = match idle {
        Some(idle) => (idle, Rc::clone(pool)),
        None => Box::pin(connect(balancer, notes, key, purpose)).await?,
    };
    if !part.is_nothing()
        && let Err(error) = part.write(&mut request, &connection, &pool)
    {
        pool.put(connection);
        return Err(error.into());
    }
    if let Some(reservation) = reservation {
        reservation.forwarded();
    }
    let attempts = || UpstreamAttempts::new(balancer, notes, key, purpose).writing(part);
    if purpose == Purpose::Tunnel {
        return Box::pin(attempts().open_tunnel(connection, pool, request)).await;
    }
    match connection.send(request, &added.0).await {
        Ok(response) if !balancer.repeats_after(response.status().as_u16()) => Ok(UpstreamAnswer {
            response,
            carrier: BodyCarrier::Connection(connection),
            pool,
        }),
        Ok(response) => Box::pin(attempts().answered(response, connection, pool)).await,
        Err(error) => Box::pin(attempts().after(connection, error)).await,
    }
}

/// A new connection; or an idle one of a server that accepts no new ones.
async fn connect(
    balancer: &Balancer<RequestBody>,
    notes: &CallNotes,
    key: Option<u64>,
    purpose: Purpose,
) -> Result<PooledConnection<RequestBody>, ProxyError> {
    let mut attempts = UpstreamAttempts::new(balancer, notes, key, purpose);
    let connected = attempts.connect().await?;
    attempts.are_over();
    Ok(connected)
}

/// The server of a request that found none free: it waits for one in the queue.
async fn free_server(
    balancer: &Balancer<RequestBody>,
    choice: Choice<RequestBody>,
    notes: &CallNotes,
    at: Instant,
) -> Result<Occupied<RequestBody>, ProxyError> {
    match choice {
        Choice::Server(server) => return Ok(server),
        Choice::NoServer => return Err(UpstreamError::Connect(balancer.no_server()).into()),
        Choice::NoneLeft => return Err(UpstreamError::NoneLeft.into()),
        Choice::Full => {}
    }
    let deadline = at + balancer.upstream.rules.queue.wait;
    loop {
        let mut place = match balancer.wait(notes.client()) {
            Waiting::Free(slot) => match balancer.occupy(slot) {
                Some(server) => return Ok(server),
                None => continue,
            },
            Waiting::Full => return Err(UpstreamError::Busy.into()),
            Waiting::Waits(place) => place,
        };
        let slot = timeout_at(deadline, place.turn()).await;
        let waited = at.elapsed();
        notes.note_queued(waited);
        balancer.metrics.queued(waited);
        match slot {
            Ok(Some(slot)) => {
                if let Some(server) = balancer.occupy(slot) {
                    return Ok(server);
                }
            }
            Ok(None) | Err(_) => return Err(UpstreamError::Busy.into()),
        }
    }
}

/// The cause of a failed exchange: the client's upload, if it may have ended the connection, else `error`.
pub(in crate::proxy) fn blame(error: ProxyError, upload: Option<&Upload>) -> ProxyError {
    match (&error, upload.and_then(|upload| upload.broken.get())) {
        (ProxyError::Upstream(UpstreamError::Answer(_)), Some(broken)) => broken.into(),
        _ => error,
    }
}

/// Counts `error` against the upstream, if the upstream rather than the client caused it.
pub(in crate::proxy) fn count_failure(metrics: &UpstreamMetrics, error: &ProxyError) {
    if let ProxyError::Upstream(error) = error {
        metrics.failed(error.failure());
    }
}

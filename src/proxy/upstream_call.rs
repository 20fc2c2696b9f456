//! Sends the request upstream: builds its head, finds a connection, waits for the head of the answer.

use super::error::ProxyError;
use super::hop;
use super::request_body::{RequestBody, Upload};
use super::reservation::Reservations;
use super::response_body::BodyStart;
use super::soft_timeout::QUICK;
use crate::descriptors::DescriptorReserve;
use crate::listen::Peer;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::upstream::balance::Balancer;
use crate::upstream::connection::{Connection, is_repeatable};
use crate::upstream::endpoint::PooledConnection;
use crate::upstream::failure::UpstreamError;
use crate::upstream::pool::Pool;
use http::{Request, Response};
use hyper::body::Incoming;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A head with more fields is not sent again.
const MOST_FIELDS: usize = 256;

/// A request on its way upstream.
#[derive(Debug)]
pub struct UpstreamCall<'a> {
    /// The request.
    pub request: Request<RequestBody>,
    /// A descriptor for a connection, if it needs a new one.
    pub descriptor: Option<DescriptorReserve<'a>>,
    /// What it is to become.
    pub purpose: Purpose,
    /// When it sets out.
    pub at: Instant,
    /// Charges that stay once it is on its way.
    pub(super) reservation: Option<Rc<Reservations>>,
    /// Where the server is noted that is tried, by its position.
    pub tried: &'a Cell<usize>,
}

/// What a request is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// One exchange among others on its connection.
    Exchange,
    /// A tunnel, which takes its connection for good.
    Tunnel,
}

/// An answer under way, with the connection it comes on.
#[derive(Debug)]
pub struct UpstreamAnswer {
    /// Its head, and its body to come.
    pub response: Response<Incoming>,
    /// Where it comes from.
    pub connection: Connection<RequestBody>,
    /// Where the connection goes afterwards.
    pub pool: Rc<Pool<RequestBody>>,
}

impl UpstreamAnswer {
    /// Its head has come, at that time: how long its connection may rest counts from there.
    pub fn came(&mut self, at: Instant) {
        self.connection.answered(at, self.response.headers());
    }

    /// What its body begins with, as far as that is known. To be asked before anything of the answer is passed on.
    ///
    /// # Errors
    /// 502 where it has a transfer coding that the gateway did not ask for, or its body has broken before anything of it came.
    pub fn start(&mut self) -> Result<BodyStart, ProxyError> {
        if hop::is_coded(self.response.headers()) {
            return Err(UpstreamError::UnaskedCoding.into());
        }
        let start = BodyStart::of(self.response.body_mut(), &mut self.connection);
        start.map_err(|error| UpstreamError::Answer(error).into())
    }
}

/// Runs `exchange` for `allowed` at most from `start` on, and only while the client stays. Taken by reference, because it is large.
///
/// # Errors
/// 504 when it takes too long; nothing that anyone reads when the client leaves.
pub async fn within<T>(
    mut exchange: Pin<&mut impl Future<Output = Result<T, ProxyError>>>,
    start: Instant,
    allowed: Duration,
    peer: &Peer,
) -> Result<T, ProxyError> {
    tokio::select! {
        biased;
        outcome = exchange.as_mut() => return outcome,
        () = peer.until(start + allowed.min(QUICK)) => {}
    }
    // Beyond this point a request is rare, and what waits for it may cost an allocation.
    Box::pin(async move {
        tokio::select! {
            biased;
            outcome = exchange => outcome,
            () = sleep_until(start + allowed) => Err(UpstreamError::Timeout(allowed).into()),
            () = peer.watch.gone() => Err(ProxyError::ClientGone),
        }
    })
    .await
}

/// Sends the request and waits for the head of its answer.
///
/// A pooled connection that turns out to be closed before any byte of an answer is its server's keep-alive ending under
/// our hands, or its server's end: the request is sent once more on a fresh one, to the next server if this one takes
/// none, unless its body has been started. One whose method is not idempotent is sent again only if nothing of it was
/// written: its server may have acted on it (RFC 9110, section 9.2.2).
///
/// # Errors
/// When no server can be reached, or the answer fails.
pub async fn send(
    balancer: &Balancer<RequestBody>,
    outgoing: UpstreamCall<'_>,
) -> Result<UpstreamAnswer, ProxyError> {
    let UpstreamCall {
        request,
        descriptor,
        purpose,
        at,
        reservation,
        tried,
    } = outgoing;
    tried.set(balancer.next());
    let pool = &balancer.at(tried.get()).pool;
    // A tunnel takes a connection of its own for good, and a handshake is worth a fresh one.
    let idle = match purpose {
        Purpose::Exchange => pool.take(at),
        Purpose::Tunnel => None,
    };
    // Kept, or taken at once by the new one.
    drop(descriptor);
    let (mut connection, pool) = match idle {
        Some(idle) => (idle, Rc::clone(pool)),
        None => Box::pin(connect(balancer, tried)).await?,
    };
    if purpose == Purpose::Tunnel {
        connection.spawn_tunnel();
    }
    if let Some(reservation) = reservation {
        reservation.forwarded();
    }
    let repeatable = is_repeatable(&request);
    let unanswered = match connection.send(request).await {
        Ok(response) => {
            return Ok(UpstreamAnswer {
                response,
                connection,
                pool,
            });
        }
        Err(unanswered) => unanswered,
    };
    let again = match unanswered.unsent {
        _ if !connection.reused => None,
        None if repeatable && !unanswered.error.is_parse() => {
            connection.into_unanswered().as_deref().and_then(recorded)
        }
        unsent => unsent,
    };
    let Some(again) = again else {
        return Err(UpstreamError::Answer(unanswered.error).into());
    };
    Box::pin(send_again(balancer, again, tried)).await
}

/// The bodiless request that these bytes are.
fn recorded(bytes: &[u8]) -> Option<Request<RequestBody>> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let length = head.parse(bytes).ok()?;
    if length != httparse::Status::Complete(bytes.len()) {
        return None;
    }
    let mut request = Request::builder().method(head.method?).uri(head.path?);
    for field in head.headers {
        request = request.header(field.name, field.value);
    }
    request.body(RequestBody::Empty).ok()
}

async fn send_again(
    balancer: &Balancer<RequestBody>,
    request: Request<RequestBody>,
    tried: &Cell<usize>,
) -> Result<UpstreamAnswer, ProxyError> {
    let (mut connection, pool) = connect(balancer, tried).await?;
    match connection.send(request).await {
        Ok(response) => Ok(UpstreamAnswer {
            response,
            connection,
            pool,
        }),
        Err(unanswered) => Err(UpstreamError::Answer(unanswered.error).into()),
    }
}

/// The failure of the exchange, of whose connection the client's upload may have been the end.
pub(super) fn blame(error: ProxyError, upload: Option<&Upload>) -> ProxyError {
    match (&error, upload.and_then(|upload| upload.broken.get())) {
        (ProxyError::Upstream(UpstreamError::Answer(_)), Some(broken)) => broken.into(),
        _ => error,
    }
}

/// A new connection, or one that a server which takes no more still has.
async fn connect(
    balancer: &Balancer<RequestBody>,
    tried: &Cell<usize>,
) -> Result<PooledConnection<RequestBody>, ProxyError> {
    let connected = balancer.connect(tried).await;
    connected.map_err(|error| {
        error.map_or(ProxyError::NoRoute, |error| {
            UpstreamError::Connect(error).into()
        })
    })
}

/// Counts `error` against the upstream, if it is the upstream's failure and not the client's doing.
pub(super) fn count_failure(metrics: &UpstreamMetrics, error: &ProxyError) {
    if let ProxyError::Upstream(error) = error {
        metrics.failed(error.failure());
    }
}

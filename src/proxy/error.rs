//! Every cause for which the gateway answers itself, and the one place that maps causes to status codes.

use crate::admission::RefusalCause;
use crate::intake::IntakeError;
use crate::intake::head::BadRequest;
use crate::key::GrpcStatus;
use crate::limit::Limit;
use crate::limit::verdict::Wait;
use crate::proxy::bodies::body_failure::UploadFailure;
use crate::telemetry::access_log::Reason;
use crate::upstream::ConnectError;
use crate::upstream::failure::UpstreamError;
use http::StatusCode;
use std::sync::Arc;

/// The time after which a client may retry if no limit names one, in microseconds.
pub const LATER: u64 = 1_000_000;

/// Causes for which a request is not forwarded, or its answer not relayed.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The request is malformed, or of a kind that is not forwarded.
    #[error("{0}")]
    BadRequest(#[from] BadRequest),
    /// The request is in a loop: it has come through this gateway too often.
    #[error("the request has passed this gateway too often")]
    Loop,
    /// The request's host belongs on another connection (RFC 9110 section 15.5.20).
    #[error("the host belongs on a connection of its own")]
    Misdirected,
    /// The route requires a client's certificate, and the handshake showed no trusted one.
    #[error("the route asks for a client certificate")]
    CertificateRequired,
    /// The certificate that the connection's client has shown is no longer trusted.
    #[error("the certificate of the connection is no longer trusted")]
    Dismissed,
    /// No route matches the request.
    #[error("no route matches")]
    NoRoute,
    /// Limits refuse the request.
    #[error(transparent)]
    Refused(#[from] RefusalCause),
    /// More requests are held than the gateway's bounds allow.
    #[error("too many requests are held back")]
    TooManyHeld,
    /// No descriptor is left for a connection to the upstream.
    #[error("the gateway has no connection left for the upstream")]
    Busy,
    /// The gateway is stopping.
    #[error("the gateway is stopping")]
    Draining,
    /// The client has left: this answer has no reader.
    #[error("the client is gone")]
    ClientGone,
    /// The client's body stopped arriving.
    #[error("the request's body stopped coming")]
    BodyStopped,
    /// The client's body arrived too slowly.
    #[error("the request's body came slower than `min_rate` demands")]
    BodyTooSlow,
    /// The client's head did not arrive in time.
    #[error("the request's head did not come in time")]
    HeadLate,
    /// The framing of the client's body is invalid (RFC 9112, section 7.1).
    #[error("the request's body is malformed")]
    BodyMalformed,
    /// The timeout of the gRPC call is over, or would be before the call is forwarded.
    #[error("the deadline of the call passes before it is answered")]
    DeadlineExceeded,
    /// The upstream fails the request.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// The answer to a cause.
pub(in crate::proxy) struct CauseRow {
    pub(in crate::proxy) status: StatusCode,
    grpc: GrpcStatus,
    /// The word in the access log.
    pub(in crate::proxy) reason: Reason,
    /// The time after which the client may retry, in microseconds, if known.
    pub(in crate::proxy) retry_after: Option<u64>,
}

impl ProxyError {
    /// The row of the cause.
    pub(in crate::proxy) fn row(&self) -> CauseRow {
        match self {
            Self::BadRequest(bad) => bad_request_row(*bad),
            Self::Loop => invalid(508, Reason::BadRequest),
            Self::Misdirected | Self::Dismissed => invalid(421, Reason::Misdirected),
            Self::CertificateRequired => row(
                403,
                GrpcStatus::PERMISSION_DENIED,
                Reason::CertificateRequired,
            ),
            Self::NoRoute => row(404, GrpcStatus::UNIMPLEMENTED, Reason::NoRoute),
            Self::Refused(cause) => refusal_row(cause),
            Self::TooManyHeld => unavailable(Reason::TooManyHeld),
            Self::Busy => unavailable(Reason::Busy),
            Self::Draining => unavailable(Reason::Draining),
            // Only the log has it; the number is nginx's, for which people search logs.
            Self::ClientGone => row(499, GrpcStatus::CANCELLED, Reason::ClientGone),
            Self::BodyStopped | Self::BodyTooSlow | Self::HeadLate => {
                invalid(408, Reason::ClientTimeout)
            }
            Self::BodyMalformed => invalid(400, Reason::BadRequest),
            Self::DeadlineExceeded => {
                row(504, GrpcStatus::DEADLINE_EXCEEDED, Reason::DeadlineExceeded)
            }
            Self::Upstream(error) => upstream_row(error),
        }
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.row().status
    }

    /// The error in the form that its client gets. A client that has left may have closed only its sending half, during
    /// its body, and still reads: its request is then incomplete (RFC 9112 section 8).
    #[must_use]
    pub fn shown(&self) -> &Self {
        match self {
            Self::ClientGone => &Self::BodyMalformed,
            error => error,
        }
    }

    /// The status in the log and the metrics for an answer with this status.
    #[must_use]
    pub fn logged_as(&self, answered: StatusCode) -> StatusCode {
        match self {
            Self::ClientGone => self.status(),
            _ => answered,
        }
    }

    /// The gRPC status for the error.
    #[must_use]
    pub fn grpc_status(&self) -> GrpcStatus {
        self.row().grpc
    }

    /// The error for `limit`, which refuses for `wait`.
    #[must_use]
    pub fn limited(limit: &Arc<Limit>, wait: Wait) -> Self {
        let limit = Arc::clone(limit);
        Self::Refused(RefusalCause::Limited {
            limit,
            wait,
            is_blocked: false,
        })
    }

    /// The limit that refused the request, if one did.
    #[must_use]
    pub fn limit(&self) -> Option<&Arc<Limit>> {
        match self {
            Self::Refused(cause) => cause.limit(),
            _ => None,
        }
    }

    /// The word for the error in the access log.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.row().reason
    }
}

impl From<IntakeError> for ProxyError {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::BadRequest(bad) => Self::BadRequest(bad),
            IntakeError::Misdirected => Self::Misdirected,
            IntakeError::NoRoute => Self::NoRoute,
            IntakeError::CertificateRequired => Self::CertificateRequired,
            IntakeError::Refused(cause) => Self::Refused(cause),
        }
    }
}

impl From<UploadFailure> for ProxyError {
    fn from(broken: UploadFailure) -> Self {
        match broken {
            UploadFailure::Malformed => Self::BodyMalformed,
            UploadFailure::ClientGone => Self::ClientGone,
            UploadFailure::Stopped => Self::BodyStopped,
            UploadFailure::TooSlow => Self::BodyTooSlow,
        }
    }
}

fn bad_request_row(bad: BadRequest) -> CauseRow {
    match bad {
        BadRequest::Connect | BadRequest::UnknownCoding => invalid(501, Reason::BadRequest),
        BadRequest::UriTooLong => invalid(414, Reason::BadRequest),
        BadRequest::HeadTooLarge => invalid(431, Reason::TooLarge),
        _ => invalid(400, Reason::BadRequest),
    }
}

/// The row of a refusal, whose status is in the file. In gRPC it is `RESOURCE_EXHAUSTED` for limits, whatever status of HTTP
/// the file names, since clients take `UNAVAILABLE` for a reason to try again at once.
fn refusal_row(cause: &RefusalCause) -> CauseRow {
    match cause {
        RefusalCause::Limited {
            limit,
            wait,
            is_blocked,
        } => CauseRow {
            retry_after: match wait {
                Wait::Micros(wait) => Some(*wait),
                Wait::Never => None,
            },
            ..row(
                limit.answers.refusal,
                GrpcStatus::RESOURCE_EXHAUSTED,
                if *is_blocked {
                    Reason::LimitBlocked
                } else {
                    Reason::LimitRefused
                },
            )
        },
        RefusalCause::MissingKey { limit, .. } => keyless(limit, Reason::MissingKey),
        RefusalCause::UnknownKey { limit, .. } => keyless(limit, Reason::UnknownKey),
        RefusalCause::BadToken {
            limit: Some(limit), ..
        } => keyless(limit, Reason::BadToken),
        RefusalCause::BadToken { limit: None, .. } => {
            row(401, GrpcStatus::UNAUTHENTICATED, Reason::BadToken)
        }
        RefusalCause::AmbiguousKey { .. } | RefusalCause::MalformedKey { .. } => {
            invalid(400, Reason::BadRequest)
        }
        RefusalCause::StoreDown => unavailable(Reason::StoreDown),
        RefusalCause::KeysUnread => unavailable(Reason::KeysUnread),
    }
}

fn keyless(limit: &Limit, reason: Reason) -> CauseRow {
    row(limit.answers.keyless, GrpcStatus::UNAUTHENTICATED, reason)
}

fn upstream_row(error: &UpstreamError) -> CauseRow {
    let (status, grpc) = match error {
        UpstreamError::Timeout(_) => (504, GrpcStatus::DEADLINE_EXCEEDED),
        UpstreamError::Connect(ConnectError::Timeout { .. }) => (504, GrpcStatus::UNAVAILABLE),
        error if error.is_untried() => (503, GrpcStatus::UNAVAILABLE),
        _ => (502, GrpcStatus::UNAVAILABLE),
    };
    CauseRow {
        retry_after: error.is_untried().then_some(LATER),
        ..row(status, grpc, Reason::from(error.failure()))
    }
}

/// The row of a cause for which the gateway itself cannot take the request now.
fn unavailable(reason: Reason) -> CauseRow {
    CauseRow {
        retry_after: Some(LATER),
        ..row(503, GrpcStatus::UNAVAILABLE, reason)
    }
}

/// The row of a request that is not one, for which gRPC has no status but that of a broken protocol.
fn invalid(status: u16, reason: Reason) -> CauseRow {
    row(status, GrpcStatus::INTERNAL, reason)
}

fn row(status: u16, grpc: GrpcStatus, reason: Reason) -> CauseRow {
    CauseRow {
        status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        grpc,
        reason,
        retry_after: None,
    }
}

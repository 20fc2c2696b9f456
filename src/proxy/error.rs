//! Every reason for which the gateway answers itself, and the one place that turns causes into status codes.

use crate::admission::RefusalCause;
use crate::intake::IntakeError;
use crate::intake::head::BadRequest;
use crate::limit::Limit;
use crate::limit::verdict::Wait;
use crate::proxy::bodies::body_failure::UploadFailure;
use crate::telemetry::access_log::Reason;
use crate::upstream::ConnectError;
use crate::upstream::failure::UpstreamError;
use http::StatusCode;
use std::sync::Arc;

/// The time after which a client may come back where no limit names one, in microseconds.
pub const LATER: u64 = 1_000_000;

/// Causes for which a request is not forwarded, or its answer not relayed.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The request is malformed, or of a kind that is not forwarded.
    #[error("{0}")]
    BadRequest(#[from] BadRequest),
    /// The request leads to itself: it has come through this gateway too often.
    #[error("the request has passed this gateway too often")]
    Loop,
    /// The request's host belongs on another connection (RFC 9110 section 15.5.20).
    #[error("the host belongs on a connection of its own")]
    Misdirected,
    /// The route asks for a client's certificate, and the handshake showed none that is believed.
    #[error("the route asks for a client certificate")]
    CertificateRequired,
    /// The certificate that the connection's client has shown is not believed any more.
    #[error("the certificate of the connection is not believed any more")]
    Dismissed,
    /// No route recognises the request.
    #[error("no route matches")]
    NoRoute,
    /// Limits turn the request away.
    #[error(transparent)]
    Refused(#[from] RefusalCause),
    /// More requests are held than the gateway's caps allow.
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
    /// The client's body stopped coming.
    #[error("the request's body stopped coming")]
    BodyStopped,
    /// The client's body came too slowly.
    #[error("the request's body came slower than `min_rate` asks")]
    BodyTooSlow,
    /// The client's head did not come in time.
    #[error("the request's head did not come in time")]
    HeadLate,
    /// The client's body is not framed as HTTP frames bodies (RFC 9112, section 7.1).
    #[error("the request's body is malformed")]
    BodyMalformed,
    /// The time that the client gives its call of gRPC is over, or would be before the call is forwarded.
    #[error("the deadline of the call passes before it is answered")]
    DeadlineExceeded,
    /// The upstream fails the request.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

impl ProxyError {
    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(bad) => bad.status(),
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::Misdirected | Self::Dismissed => StatusCode::MISDIRECTED_REQUEST,
            Self::CertificateRequired => StatusCode::FORBIDDEN,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Refused(cause) => refusal_status(cause),
            Self::TooManyHeld | Self::Busy | Self::Draining => StatusCode::SERVICE_UNAVAILABLE,
            // The log alone has it; the number is nginx's, which logs are searched for.
            Self::ClientGone => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
            Self::BodyStopped | Self::BodyTooSlow | Self::HeadLate => StatusCode::REQUEST_TIMEOUT,
            Self::BodyMalformed => StatusCode::BAD_REQUEST,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::Upstream(
                UpstreamError::Connect(ConnectError::Timeout { .. }) | UpstreamError::Timeout(_),
            ) => StatusCode::GATEWAY_TIMEOUT,
            Self::Upstream(error) if error.is_untried() => StatusCode::SERVICE_UNAVAILABLE,
            Self::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// The error as its client reads it. A client that has left may have closed its half alone, in the middle of its body,
    /// and reads on: its request is incomplete then (RFC 9112 section 8).
    #[must_use]
    pub fn shown(&self) -> &Self {
        match self {
            Self::ClientGone => &Self::BodyMalformed,
            error => error,
        }
    }

    /// The status in the log and the metrics of an answer with this status.
    #[must_use]
    pub fn logged_as(&self, answered: StatusCode) -> StatusCode {
        match self {
            Self::ClientGone => self.status(),
            _ => answered,
        }
    }

    /// The status of gRPC for the error. Limits refuse with `RESOURCE_EXHAUSTED`, whatever status of HTTP the file
    /// names, since clients take `UNAVAILABLE` for a reason to try again at once.
    #[must_use]
    pub fn grpc_status(&self) -> u16 {
        match self {
            // No client receives it.
            Self::ClientGone => 1,
            Self::DeadlineExceeded | Self::Upstream(UpstreamError::Timeout(_)) => 4,
            Self::CertificateRequired => 7,
            Self::Refused(RefusalCause::Limited { .. }) => 8,
            Self::NoRoute => 12,
            Self::BadRequest(_)
            | Self::Loop
            | Self::Misdirected
            | Self::Dismissed
            | Self::BodyStopped
            | Self::BodyTooSlow
            | Self::HeadLate
            | Self::BodyMalformed
            | Self::Refused(RefusalCause::AmbiguousKey { .. }) => 13,
            Self::TooManyHeld
            | Self::Busy
            | Self::Draining
            | Self::Refused(RefusalCause::StoreDown | RefusalCause::KeysUnread)
            | Self::Upstream(_) => 14,
            Self::Refused(
                RefusalCause::MissingKey { .. }
                | RefusalCause::UnknownKey { .. }
                | RefusalCause::BadToken { .. },
            ) => 16,
        }
    }

    /// `limit` refuses for `wait`.
    #[must_use]
    pub fn limited(limit: &Arc<Limit>, wait: Wait) -> Self {
        let limit = Arc::clone(limit);
        Self::Refused(RefusalCause::Limited { limit, wait })
    }

    /// The limit that turned the request away, if one did.
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
        match self {
            Self::BadRequest(BadRequest::HeadTooLarge) => Reason::TooLarge,
            Self::BadRequest(_) | Self::Loop | Self::BodyMalformed => Reason::BadRequest,
            Self::Misdirected | Self::Dismissed => Reason::Misdirected,
            Self::CertificateRequired => Reason::CertificateRequired,
            Self::NoRoute => Reason::NoRoute,
            Self::Refused(cause) => match cause {
                RefusalCause::AmbiguousKey { .. } => Reason::BadRequest,
                RefusalCause::MissingKey { .. } => Reason::MissingKey,
                RefusalCause::UnknownKey { .. } => Reason::UnknownKey,
                RefusalCause::BadToken { .. } => Reason::BadToken,
                RefusalCause::KeysUnread => Reason::KeysUnread,
                RefusalCause::Limited { .. } => Reason::LimitRefused,
                RefusalCause::StoreDown => Reason::StoreDown,
            },
            Self::TooManyHeld => Reason::TooManyHeld,
            Self::Busy => Reason::Busy,
            Self::Draining => Reason::Draining,
            Self::ClientGone => Reason::ClientGone,
            Self::BodyStopped | Self::BodyTooSlow | Self::HeadLate => Reason::ClientTimeout,
            Self::DeadlineExceeded => Reason::DeadlineExceeded,
            Self::Upstream(error) => Reason::from(error.failure()),
        }
    }

    /// The time after which the client may come back, in microseconds, where it is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Refused(RefusalCause::Limited {
                wait: Wait::Micros(wait),
                ..
            }) => Some(*wait),
            Self::Refused(RefusalCause::StoreDown | RefusalCause::KeysUnread)
            | Self::TooManyHeld
            | Self::Busy
            | Self::Draining => Some(LATER),
            Self::Upstream(error) if error.is_untried() => Some(LATER),
            _ => None,
        }
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

/// The status of a refusal: the one in the file, else 429 or 401.
fn refusal_status(cause: &RefusalCause) -> StatusCode {
    match cause {
        RefusalCause::Limited { limit, .. } => {
            StatusCode::from_u16(limit.answers.refusal).unwrap_or(StatusCode::TOO_MANY_REQUESTS)
        }
        RefusalCause::MissingKey { limit, .. }
        | RefusalCause::UnknownKey { limit, .. }
        | RefusalCause::BadToken { limit, .. } => {
            StatusCode::from_u16(limit.answers.keyless).unwrap_or(StatusCode::UNAUTHORIZED)
        }
        RefusalCause::AmbiguousKey { .. } => StatusCode::BAD_REQUEST,
        RefusalCause::StoreDown | RefusalCause::KeysUnread => StatusCode::SERVICE_UNAVAILABLE,
    }
}

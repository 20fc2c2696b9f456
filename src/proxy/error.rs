//! Every reason for which the gateway answers itself, and the one place that turns causes into status codes.

use super::body::{UploadFailure, is_malformed};
use super::request::BadRequest;
use crate::key::KeyPart;
use crate::key::TokenDoubt;
use crate::limit::Limit;
use crate::limit::verdict::Wait;
use crate::listen::FramingFault;
use crate::telemetry::access_log::Reason;
use crate::upstream::ConnectError;
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;

/// When to come back where no limit says so, in microseconds.
pub const LATER: u64 = 1_000_000;

/// Why a request was not forwarded, or its answer not relayed.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The request is not one that may be forwarded.
    #[error("{0}")]
    BadRequest(#[from] BadRequest),
    /// A request to itself: it has come through this gateway too often.
    #[error("the request has passed this gateway too often")]
    Loop,
    /// No route recognises it.
    #[error("no route matches")]
    NoRoute,
    /// A limit counts by a field that the request lacks.
    #[error("the limit \"{limit}\" needs {part}")]
    MissingKey {
        /// The limit's name.
        limit: Arc<str>,
        /// What it counts by.
        part: KeyPart,
        /// What it answers.
        status: StatusCode,
    },
    /// A limit takes only keys that somebody knows, and nobody knows the request's.
    #[error("the limit \"{limit}\" takes no {part} that no group knows")]
    UnknownKey {
        /// The limit's name.
        limit: Arc<str>,
        /// What it counts by.
        part: KeyPart,
        /// What it answers.
        status: StatusCode,
    },
    /// A limit or a group asks what a token claims, and the request's is not believed.
    #[error("the limit \"{limit}\" asks for {part}, and the request's token is {}", why.as_str())]
    BadToken {
        /// The limit's name.
        limit: Arc<str>,
        /// What it, or its group, goes by.
        part: KeyPart,
        /// What is wrong with the token.
        why: TokenDoubt,
        /// What it answers.
        status: StatusCode,
    },
    /// A limit counts by something that the request says in several ways.
    #[error("the limit \"{limit}\" counts by {part}, which came several times and differs")]
    AmbiguousKey {
        /// The limit's name.
        limit: Arc<str>,
        /// What it counts by.
        part: KeyPart,
    },
    /// A limit refuses.
    #[error("the limit \"{limit}\" refuses")]
    Limited {
        /// The name of the one with the longest wait.
        limit: Arc<str>,
        /// That wait.
        wait: Wait,
        /// What it answers.
        status: StatusCode,
    },
    /// More requests are held than the gateway's caps allow.
    #[error("too many requests are held back")]
    TooManyHeld,
    /// No descriptor is left for a connection to its upstream.
    #[error("the gateway has no connection left for the upstream")]
    Busy,
    /// The store is away and the file says to refuse.
    #[error("the limit store is away")]
    StoreDown,
    /// The gateway is stopping.
    #[error("the gateway is stopping")]
    Draining,
    /// The client has left: nobody reads this answer.
    #[error("the client is gone")]
    ClientGone,
    /// The client's body stopped coming.
    #[error("the request's body stopped coming")]
    BodyStopped,
    /// The client's body is not framed as HTTP frames bodies (RFC 9112, section 7.1).
    #[error("the request's body is malformed")]
    BodyMalformed,
    /// No server of the upstream could be reached.
    #[error("no connection to the upstream")]
    Connect(#[source] ConnectError),
    /// The connection ended before an answer, or the answer was not HTTP.
    #[error("the upstream's answer failed")]
    Upstream(#[source] hyper::Error),
    /// No answer in time.
    #[error("no answer from the upstream within {0:?}")]
    UpstreamTimeout(Duration),
    /// The upstream's answer has a transfer coding that nobody asked for, and whose end only its reader could tell.
    #[error("the upstream's answer has a transfer coding that nobody asked for")]
    UnaskedCoding,
    /// The upstream switched protocols without having been asked to.
    #[error("the upstream switched protocols unasked")]
    UnaskedUpgrade,
}

impl ProxyError {
    /// The status it is answered with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(bad) => bad.status(),
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::NoRoute => StatusCode::NOT_FOUND,
            // As the file says; 401 and 429 where it says nothing.
            Self::MissingKey { status, .. }
            | Self::UnknownKey { status, .. }
            | Self::BadToken { status, .. }
            | Self::Limited { status, .. } => *status,
            Self::TooManyHeld | Self::Busy | Self::StoreDown | Self::Draining => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            // Nobody receives it; the number is nginx's, which logs are searched for.
            Self::ClientGone => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
            Self::BodyStopped => StatusCode::REQUEST_TIMEOUT,
            Self::BodyMalformed | Self::AmbiguousKey { .. } => StatusCode::BAD_REQUEST,
            Self::Connect(ConnectError::Timeout { .. }) | Self::UpstreamTimeout(_) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Connect(_) | Self::Upstream(_) | Self::UnaskedCoding | Self::UnaskedUpgrade => {
                StatusCode::BAD_GATEWAY
            }
        }
    }

    /// `limit` lacks its key `part`.
    #[must_use]
    pub fn keyless(limit: &Limit, part: &KeyPart) -> Self {
        Self::MissingKey {
            limit: Arc::clone(&limit.name),
            part: part.clone(),
            status: keyless_status(limit),
        }
    }

    /// Nobody knows what `part` says, and `limit` takes only what is known.
    #[must_use]
    pub fn unknown(limit: &Limit, part: &KeyPart) -> Self {
        Self::UnknownKey {
            limit: Arc::clone(&limit.name),
            part: part.clone(),
            status: keyless_status(limit),
        }
    }

    /// `limit` asks for `part`, which is claimed by a token that is not believed.
    #[must_use]
    pub fn bad_token(limit: &Limit, part: &KeyPart, why: TokenDoubt) -> Self {
        Self::BadToken {
            limit: Arc::clone(&limit.name),
            part: part.clone(),
            why,
            status: keyless_status(limit),
        }
    }

    /// `limit`, or a group of it, goes by `part`, which came several times and differs.
    #[must_use]
    pub fn ambiguous(limit: &Limit, part: &KeyPart) -> Self {
        Self::AmbiguousKey {
            limit: Arc::clone(&limit.name),
            part: part.clone(),
        }
    }

    /// `limit` refuses for `wait`.
    #[must_use]
    pub fn limited(limit: &Limit, wait: Wait) -> Self {
        let status = StatusCode::from_u16(limit.answers.refusal);
        Self::Limited {
            limit: Arc::clone(&limit.name),
            wait,
            status: status.unwrap_or(StatusCode::TOO_MANY_REQUESTS),
        }
    }

    /// The limit that turned the request away, if one did.
    #[must_use]
    pub fn limit(&self) -> Option<&Arc<str>> {
        match self {
            Self::Limited { limit, .. }
            | Self::MissingKey { limit, .. }
            | Self::UnknownKey { limit, .. }
            | Self::BadToken { limit, .. }
            | Self::AmbiguousKey { limit, .. } => Some(limit),
            _ => None,
        }
    }

    /// The word for it in the access log.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::BadRequest(BadRequest::HeadTooLarge) => Reason::TooLarge,
            Self::BadRequest(_) | Self::Loop | Self::BodyMalformed | Self::AmbiguousKey { .. } => {
                Reason::BadRequest
            }
            Self::NoRoute => Reason::NoRoute,
            Self::MissingKey { .. } => Reason::MissingKey,
            Self::UnknownKey { .. } => Reason::UnknownKey,
            Self::BadToken { .. } => Reason::BadToken,
            Self::Limited { .. } => Reason::LimitRefused,
            Self::TooManyHeld => Reason::TooManyHeld,
            Self::Busy => Reason::Busy,
            Self::StoreDown => Reason::StoreDown,
            Self::Draining => Reason::Draining,
            Self::ClientGone => Reason::ClientGone,
            Self::BodyStopped => Reason::ClientTimeout,
            Self::Connect(_) => Reason::ConnectFailed,
            Self::Upstream(error) if is_malformed(error) => Reason::UpstreamInvalid,
            Self::UnaskedCoding | Self::UnaskedUpgrade => Reason::UpstreamInvalid,
            Self::Upstream(_) => Reason::UpstreamReset,
            Self::UpstreamTimeout(_) => Reason::UpstreamTimeout,
        }
    }

    /// When to come back, in microseconds, where that can be said.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Limited {
                wait: Wait::Micros(wait),
                ..
            } => Some(*wait),
            Self::TooManyHeld | Self::Busy | Self::StoreDown | Self::Draining => Some(LATER),
            _ => None,
        }
    }
}

impl From<UploadFailure> for ProxyError {
    fn from(broken: UploadFailure) -> Self {
        match broken {
            UploadFailure::Malformed => Self::BodyMalformed,
            UploadFailure::ClientGone => Self::ClientGone,
            UploadFailure::Stopped => Self::BodyStopped,
        }
    }
}

impl From<FramingFault> for BadRequest {
    fn from(finding: FramingFault) -> Self {
        match finding {
            FramingFault::LengthAndCoding => Self::LengthAndCoding,
            FramingFault::Fragment => Self::Fragment,
            FramingFault::TooLarge => Self::HeadTooLarge,
        }
    }
}

fn keyless_status(limit: &Limit) -> StatusCode {
    StatusCode::from_u16(limit.answers.keyless).unwrap_or(StatusCode::UNAUTHORIZED)
}

//! Why limits turn a request away. The status code of each cause is in `proxy/error`.

use crate::key::KeyPart;
use crate::key::TokenDoubt;
use crate::limit::Limit;
use crate::limit::verdict::Wait;
use std::sync::Arc;

/// Why a request is turned away, without the answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RefusalCause {
    /// The request lacks a part of the limit's key.
    #[error("the limit \"{}\" needs {part}", limit.name)]
    MissingKey {
        /// The limit.
        limit: Arc<Limit>,
        /// What it counts by.
        part: KeyPart,
    },
    /// The limit takes only keys that a group knows, and no group knows the request's.
    #[error("the limit \"{}\" takes no {part} that no group knows", limit.name)]
    UnknownKey {
        /// The limit.
        limit: Arc<Limit>,
        /// What it counts by.
        part: KeyPart,
    },
    /// The limit, or a group of it, asks what a token claims, and the request's token is not believed.
    #[error("the limit \"{}\" asks for {part}, and the request's token is {}", limit.name, why.as_str())]
    BadToken {
        /// The limit.
        limit: Arc<Limit>,
        /// The claim.
        part: KeyPart,
        /// What is wrong with the token.
        why: TokenDoubt,
    },
    /// The request gives several different values for what the limit, or a group of it, counts by.
    #[error("the limit \"{}\" counts by {part}, which came several times and differs", limit.name)]
    AmbiguousKey {
        /// The limit.
        limit: Arc<Limit>,
        /// What it counts by.
        part: KeyPart,
    },
    /// The limit has no room.
    #[error("the limit \"{}\" refuses", limit.name)]
    Limited {
        /// The limit with the longest wait.
        limit: Arc<Limit>,
        /// That wait.
        wait: Wait,
    },
    /// The store is away, and the file says to refuse.
    #[error("the limit store is away")]
    StoreDown,
}

impl RefusalCause {
    /// The limit that turned the request away, if one did.
    #[must_use]
    pub fn limit(&self) -> Option<&Arc<Limit>> {
        match self {
            Self::Limited { limit, .. }
            | Self::MissingKey { limit, .. }
            | Self::UnknownKey { limit, .. }
            | Self::BadToken { limit, .. }
            | Self::AmbiguousKey { limit, .. } => Some(limit),
            Self::StoreDown => None,
        }
    }
}

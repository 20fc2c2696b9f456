//! The causes for which limits refuse a request. The status code of each cause is in `proxy/error`.

use crate::key::{KeyPart, TokenDoubt};
use crate::limit::Limit;
use crate::limit::verdict::Wait;
use std::sync::Arc;

/// Causes for which a request is refused, without the answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RefusalCause {
    /// The request lacks a part of the limit's key.
    #[error("the limit \"{}\" needs {part}", limit.name)]
    MissingKey {
        /// The limit.
        limit: Arc<Limit>,
        /// The part of the limit's key that is missing.
        part: KeyPart,
    },
    /// The limit accepts only keys that a group knows, and no group knows the request's key.
    #[error("the limit \"{}\" takes {part} only if a group knows it", limit.name)]
    UnknownKey {
        /// The limit.
        limit: Arc<Limit>,
        /// The part of the limit's key that no group knows.
        part: KeyPart,
    },
    /// The limit, or a group of it, needs a claim, and the request's token is not trusted.
    #[error("{} asks for {part}, and the request's token is {}", asker(limit.as_ref()), why.as_str())]
    BadToken {
        /// The limit; `None` if the route looks for the customer.
        limit: Option<Arc<Limit>>,
        /// The claim.
        part: KeyPart,
        /// The fault of the token.
        why: TokenDoubt,
    },
    /// The request gives several different values for a part that the limit, or a group of it, counts by. If the part
    /// is the customer, the values are credentials of different customers.
    #[error("{} {part}, {}", counts_by(limit.as_ref()), differing(part))]
    AmbiguousKey {
        /// The limit; `None` if the route looks for the customer.
        limit: Option<Arc<Limit>>,
        /// The part with several values.
        part: KeyPart,
    },
    /// The request's value of a part that the limit, or a group of it, goes by cannot be read in one way only.
    #[error("{} {part}, which is malformed", counts_by(limit.as_ref()))]
    MalformedKey {
        /// The limit; `None` if the route looks for the customer.
        limit: Option<Arc<Limit>>,
        /// The malformed part.
        part: KeyPart,
    },
    /// The limit has no room.
    #[error("the limit \"{}\" refuses", limit.name)]
    Limited {
        /// The limit with the longest wait.
        limit: Arc<Limit>,
        /// The time until the limit has room.
        wait: Wait,
        /// Is the key blocked, since the limit refused it now or before?
        is_blocked: bool,
    },
    /// The limit needs a claim of the request's token, and the keys of its issuer have not been read yet.
    #[error("the keys that would verify the request's token have not been read yet")]
    KeysUnread,
    /// The store is unavailable, and the file refuses requests then.
    #[error("the limit store is away")]
    StoreDown,
}

/// What asks for a part of the request.
fn asker(limit: Option<&Arc<Limit>>) -> String {
    match limit {
        Some(limit) => format!("the limit \"{}\"", limit.name),
        None => "the route".to_owned(),
    }
}

fn counts_by(limit: Option<&Arc<Limit>>) -> String {
    match limit {
        Some(limit) => format!("the limit \"{}\" counts by", limit.name),
        None => "the route looks at".to_owned(),
    }
}

fn differing(part: &KeyPart) -> &'static str {
    if part.is_customer() {
        "and the request has credentials of different customers"
    } else {
        "which came several times with different values"
    }
}

impl RefusalCause {
    /// The limit that refused the request, if one did.
    #[must_use]
    pub fn limit(&self) -> Option<&Arc<Limit>> {
        match self {
            Self::Limited { limit, .. }
            | Self::MissingKey { limit, .. }
            | Self::UnknownKey { limit, .. } => Some(limit),
            Self::BadToken { limit, .. }
            | Self::AmbiguousKey { limit, .. }
            | Self::MalformedKey { limit, .. } => limit.as_ref(),
            Self::StoreDown | Self::KeysUnread => None,
        }
    }
}

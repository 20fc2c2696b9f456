//! A field of a request that the gateway drops before any part reads it, and the reason.

use crate::intake::stripped_fields::StripCause;
use http::HeaderName;

/// A field that neither the gateway nor the upstream sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StrippedField {
    pub(super) name: HeaderName,
    pub(super) why: StripCause,
}

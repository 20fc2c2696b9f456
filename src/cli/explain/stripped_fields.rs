//! Which fields of a request are dropped before anything reads them, and why: dropped here as the gateway does it.

use crate::proxy::hop;
use crate::proxy::request::BadRequest;
use crate::proxy::stripped_fields::{FieldTrust, StripCause, tidy, why};
use crate::snapshot::Snapshot;
use http::{HeaderMap, HeaderName};
use std::net::IpAddr;

/// A field that nothing of the gateway sees, nor the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StrippedField {
    pub(super) name: HeaderName,
    pub(super) why: StripCause,
}

/// Takes from the fields of a request from `peer` what the gateway drops, in its order; says what that was.
///
/// # Errors
/// When `Connection` names too many.
pub(super) fn strip(
    fields: &mut HeaderMap,
    snapshot: &Snapshot,
    peer: IpAddr,
) -> Result<Vec<StrippedField>, BadRequest> {
    let believed = FieldTrust::of(snapshot, peer);
    let all = fields.keys().cloned();
    let mut lost: Vec<StrippedField> = all
        .filter_map(|name| {
            let why = why(name.as_str(), &believed)?;
            Some(StrippedField { name, why })
        })
        .collect();
    tidy(fields, &believed);
    let before: Vec<HeaderName> = fields.keys().cloned().collect();
    hop::drop_named(fields)?;
    let named = before
        .into_iter()
        .filter(|name| !fields.contains_key(name))
        .map(|name| StrippedField {
            name,
            why: StripCause::Named,
        });
    lost.extend(named);
    Ok(lost)
}

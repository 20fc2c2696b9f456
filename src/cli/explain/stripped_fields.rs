//! The fields of a request that the gateway drops before anything reads them, and why.

use crate::admission::stripped_fields::{FieldTrust, StripCause, tidy, why};
use crate::proxy::hop;
use crate::proxy::request::BadRequest;
use crate::snapshot::Snapshot;
use http::{HeaderMap, HeaderName};
use std::net::IpAddr;

/// A field that neither the gateway nor the upstream sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StrippedField {
    pub(super) name: HeaderName,
    pub(super) why: StripCause,
}

/// Drops fields of a request from `peer` as the gateway does, in its order, and returns them.
///
/// # Errors
/// `Connection` names too many fields.
pub(super) fn strip(
    fields: &mut HeaderMap,
    snapshot: &Snapshot,
    peer: Option<IpAddr>,
) -> Result<Vec<StrippedField>, BadRequest> {
    let believed = FieldTrust::of(snapshot, || snapshot.trust.believes(peer));
    let all = fields.keys().cloned();
    let mut stripped: Vec<StrippedField> = all
        .filter_map(|name| {
            let why = why(name.as_str(), &believed)?;
            Some(StrippedField { name, why })
        })
        .collect();
    tidy(fields, &believed);
    let before: Vec<HeaderName> = fields.keys().cloned().collect();
    hop::drop_named(fields)?;
    let named = before.into_iter().filter(|name| !fields.contains_key(name));
    stripped.extend(named.map(|name| StrippedField {
        name,
        why: StripCause::Named,
    }));
    Ok(stripped)
}

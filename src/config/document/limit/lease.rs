//! `lease` of a limit: a word, or how many permits.

use super::super::Given;
use super::super::fields::Fields;
use crate::config::source::At;
use crate::limit::LeaseSetting;
use std::num::NonZeroU32;
use toml::de::DeValue;

/// Reads `lease`.
pub(super) fn read(fields: &mut Fields<'_>) -> Given<LeaseSetting> {
    if let Some((DeValue::Integer(_), _)) = fields.value("lease") {
        return match fields.whole("lease") {
            Given::Yes(at) => match NonZeroU32::new(at.value) {
                Some(most) => Given::Yes(At::new(LeaseSetting::Most(most), at.span)),
                None => Given::Bad,
            },
            _ => Given::Bad,
        };
    }
    fields.choice(
        "lease",
        &[("auto", LeaseSetting::Auto), ("off", LeaseSetting::Off)],
        &[],
    )
}

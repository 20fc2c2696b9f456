//! `lease` of a limit: a word, or how many permits.

use super::super::Setting;
use super::super::fields::Fields;
use crate::config::source::At;
use crate::limit::LeaseSetting;
use std::num::NonZeroU32;
use toml::de::DeValue;

/// Reads `lease`.
pub(super) fn read(fields: &mut Fields<'_>) -> Setting<LeaseSetting> {
    if let Some((DeValue::Integer(_), _)) = fields.value("lease") {
        return match fields.whole("lease") {
            Setting::Valid(at) => match NonZeroU32::new(at.value) {
                Some(most) => Setting::Valid(At::new(LeaseSetting::Most(most), at.span)),
                None => Setting::Invalid,
            },
            _ => Setting::Invalid,
        };
    }
    fields.choice(
        "lease",
        &[("auto", LeaseSetting::Auto), ("off", LeaseSetting::Off)],
        &[],
    )
}

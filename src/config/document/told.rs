//! What a limit tells clients, as written.

use super::super::value::{error_text, public_name};
use super::fields::Fields;
use super::{ErrorText, Setting};
use crate::limit::Preflights;

/// What a limit tells clients.
#[derive(Debug, Clone)]
pub(in crate::config) struct Told {
    pub(in crate::config) public_name: Setting<String>,
    pub(in crate::config) status: Setting<u32>,
    pub(in crate::config) missing_status: Setting<u32>,
    pub(in crate::config) body: Setting<ErrorText>,
    pub(in crate::config) preflights: Setting<Preflights>,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Told {
    Told {
        public_name: fields.text("public_name", public_name),
        status: fields.whole("status"),
        missing_status: fields.whole("missing_status"),
        body: fields.text("body", error_text),
        preflights: fields.choice(
            "preflights",
            &[("free", Preflights::Free), ("counted", Preflights::Counted)],
            &[],
        ),
    }
}

//! `[limits.NAME]` as written.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::{part, rate};
use super::fields::{Fields, Zero};
use super::{Given, List};
use crate::key::{Missing, Part};
use crate::limit::rate::Rate;
use std::time::Duration;

/// `[limits.NAME]`.
#[derive(Debug)]
pub(in crate::config) struct Limit {
    pub(in crate::config) name: At<String>,
    pub(in crate::config) place: Span,
    /// Nothing stands for `everyone`.
    pub(in crate::config) by: List<Option<Part>>,
    pub(in crate::config) missing: Given<Missing>,
    pub(in crate::config) rate: Given<Rate>,
    pub(in crate::config) burst: Given<u32>,
    pub(in crate::config) algorithm: Given<Algorithm>,
    pub(in crate::config) queue: Given<u32>,
    pub(in crate::config) max_wait: Given<Duration>,
    pub(in crate::config) over: Given<Over>,
    pub(in crate::config) cost: Given<u32>,
}

/// How a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Algorithm {
    TokenBucket,
    LeakyBucket,
    FixedWindow,
}

impl Algorithm {
    /// As the file writes it.
    pub(in crate::config) fn as_str(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::FixedWindow => "fixed-window",
        }
    }
}

/// What happens beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Over {
    Refuse,
    Delay,
}

pub(super) fn read(name: At<String>, mut fields: Fields<'_>) -> Limit {
    let by = fields.texts("by", part);
    let by = match by.at() {
        Some(at) if at.value.is_empty() => {
            fields.note(
                Diagnostic::error(
                    Code::EmptyList,
                    format!("`by` in `{}` names nothing", fields.title()),
                )
                .at(&at.span, "at least one part")
                .help("write `by = \"everyone\"` for one counter that all requests share"),
            );
            Given::Bad
        }
        _ => by,
    };
    Limit {
        place: fields.place(),
        name,
        by,
        missing: fields.choice(
            "missing",
            &[
                ("refuse", Missing::Refuse),
                ("ip", Missing::Ip),
                ("skip", Missing::Skip),
                ("shared", Missing::Shared),
            ],
            &[],
        ),
        rate: fields.text("rate", rate),
        burst: fields.whole("burst"),
        algorithm: fields.choice(
            "algorithm",
            &[
                ("token-bucket", Algorithm::TokenBucket),
                ("leaky-bucket", Algorithm::LeakyBucket),
                ("fixed-window", Algorithm::FixedWindow),
            ],
            &["sliding-window", "sliding-log", "concurrency"],
        ),
        queue: fields.whole("queue"),
        max_wait: fields.time("max_wait", Zero::Allowed),
        over: fields.choice(
            "over",
            &[("refuse", Over::Refuse), ("delay", Over::Delay)],
            &[],
        ),
        cost: fields.whole("cost"),
    }
}

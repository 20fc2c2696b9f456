//! The faults of the program before `intake` that have been mended. Only in these cases may that program answer
//! differently.

use super::ask::Answered;
use super::draw_file::DrawnFile;
use super::draw_request::DrawnRequest;
use serde_json::Value;

/// One request, and its outcome.
pub(super) struct Case<'a> {
    pub(super) file: &'a DrawnFile,
    pub(super) request: &'a DrawnRequest,
    pub(super) answered: &'a Answered,
    /// The differing output of the program, as text.
    pub(super) said: &'a str,
}

/// The one of the three whose output this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Voice {
    Gateway,
    Explain,
    Simulate,
}

/// A fault: its name, the one of the three that has it, and whether a case can show it.
pub(super) struct NamedFault {
    pub(super) name: &'static str,
    pub(super) of: Voice,
    pub(super) shows: fn(&Case<'_>) -> bool,
}

pub(super) const FAULTS: [NamedFault; 11] = [
    NamedFault {
        name: "explain answers 503 for tokens whose keys come by URL",
        of: Voice::Explain,
        shows: |case| case.file.keys_by_url && case.said.contains("have not been read yet"),
    },
    NamedFault {
        name: "explain looks for 421 before it reads the head",
        of: Voice::Explain,
        shows: |case| case.request.tls.is_some() && case.said.contains("the host belongs on"),
    },
    NamedFault {
        name: "explain looks for 421 by the field Host where the target names a host",
        of: Voice::Explain,
        shows: |case| {
            case.line()["reason"] == "misdirected" && case.request.target.starts_with("https://")
        },
    },
    NamedFault {
        name: "explain --live asks all limits where the gateway asks those without a token first",
        of: Voice::Explain,
        shows: |case| {
            let has_token = case
                .file
                .token_field
                .is_some_and(|field| case.request.has(field));
            has_token && case.line()["reason"] == "limit_refused" && case.said.contains(" refuses")
        },
    },
    NamedFault {
        name: "explain knows no bounds of heads",
        of: Voice::Explain,
        shows: |case| case.is_answered_for("too large"),
    },
    NamedFault {
        name: "explain does not see a fragment",
        of: Voice::Explain,
        shows: |case| case.is_answered_for("has a fragment"),
    },
    NamedFault {
        name: "explain looks for other faults before that of two framings",
        of: Voice::Explain,
        shows: |case| case.is_answered_for("exclude each other"),
    },
    NamedFault {
        name: "explain --live looks at no counters where no route matches",
        of: Voice::Explain,
        shows: |case| {
            case.line()["reason"] == "limit_refused" && case.said.contains("no route matches")
        },
    },
    NamedFault {
        name: "simulate takes routes without conditions in place of those that lines name",
        of: Voice::Simulate,
        shows: |case| case.has_conditions() && case.line()["route"] != case.decision()["route"],
    },
    NamedFault {
        name: "simulate counts requests that were answered before a route was looked for",
        of: Voice::Simulate,
        shows: |case| super::agree::is_early(&case.line()),
    },
    NamedFault {
        name: "simulate counts requests that lacked a certificate",
        of: Voice::Simulate,
        shows: |case| case.line()["reason"] == "certificate_required",
    },
];

impl Case<'_> {
    fn has_conditions(&self) -> bool {
        self.file.routes.iter().any(|route| route.has_conditions)
    }

    fn line(&self) -> Value {
        self.answered.line.clone().unwrap_or_default()
    }

    fn decision(&self) -> Value {
        serde_json::from_str(self.said).unwrap_or_default()
    }

    /// Was this cause the reason for the gateway's answer?
    fn is_answered_for(&self, cause: &str) -> bool {
        let detail = self.answered.detail.as_deref();
        // The answer to a HEAD has no body that names its cause.
        let is_bad = || {
            ["bad_request", "too_large"]
                .iter()
                .any(|reason| self.line()["reason"] == *reason)
        };
        detail.map_or_else(
            || self.request.method == "HEAD" && is_bad(),
            |detail| detail.contains(cause),
        )
    }
}

/// The name of the fault of `voice` that this case can show.
pub(super) fn shown(case: &Case<'_>, voice: Voice) -> Option<&'static str> {
    let mut faults = FAULTS.iter().filter(|fault| fault.of == voice);
    faults
        .find(|fault| (fault.shows)(case))
        .map(|fault| fault.name)
}

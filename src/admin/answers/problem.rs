//! A refusal: a problem document (RFC 9457) with a code that never changes. `docs/admin-api.md` has the codes.

use http::StatusCode;
use http::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;
use std::borrow::Cow;
use std::time::Duration;

/// Why a request is refused.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The status of the answer.
    pub status: StatusCode,
    /// The code, for programs.
    pub code: &'static str,
    detail: Cow<'static, str>,
    help: Option<Cow<'static, str>>,
    /// Mistakes in the body.
    pub(in crate::admin) faults: Box<[FaultyMember]>,
    /// Diagnostics of a file, as `check --json` writes them.
    diagnostics: Option<Box<serde_json::Value>>,
    /// Further fields of the answer.
    pub(in crate::admin) fields: Vec<(HeaderName, HeaderValue)>,
}

/// A mistake in one member of a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultyMember {
    /// The member (RFC 6901): `/limit`.
    pub pointer: String,
    /// The mistake, in words.
    pub detail: String,
}

/// The text of a problem.
#[derive(Debug, Serialize)]
pub struct ProblemText<'a> {
    /// Always `about:blank`: the code tells problems apart.
    pub r#type: &'static str,
    /// The status in words.
    pub title: &'a str,
    /// The status of the answer.
    pub status: u16,
    /// The code, which never changes.
    pub code: &'a str,
    /// What is wrong with this request.
    pub detail: &'a str,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<&'a str>,
    /// Mistakes in the body.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub errors: &'a [FaultyMember],
    /// Diagnostics of a file, as `tollgate check --json` writes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<&'a serde_json::Value>,
}

impl Problem {
    /// A problem of this code.
    #[must_use]
    pub fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            help: None,
            faults: Box::default(),
            diagnostics: None,
            fields: Vec::new(),
        }
    }

    /// A name that does not exist.
    #[must_use]
    pub fn unknown(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// With advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<Cow<'static, str>>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// With another text.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = detail.into();
        self
    }

    /// With mistakes in the body.
    #[must_use]
    pub fn with_faults(mut self, faults: Vec<FaultyMember>) -> Self {
        self.faults = faults.into();
        self
    }

    /// With the diagnostics of a file.
    #[must_use]
    pub fn with_diagnostics(mut self, diagnostics: serde_json::Value) -> Self {
        self.diagnostics = Some(Box::new(diagnostics));
        self
    }

    /// With the time after which to ask again, in whole seconds.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.fields.push((RETRY_AFTER, seconds.max(1).into()));
        self
    }

    /// With the methods that the path has.
    #[must_use]
    pub fn allowing(mut self, methods: &'static str) -> Self {
        self.fields.push((ALLOW, HeaderValue::from_static(methods)));
        self
    }

    /// With the ways in which a client may show a token.
    #[must_use]
    pub fn challenging(mut self, challenges: &[&'static str]) -> Self {
        let challenges = challenges.iter();
        let fields = challenges.map(|one| (WWW_AUTHENTICATE, HeaderValue::from_static(one)));
        self.fields.extend(fields);
        self
    }

    /// The text of the answer.
    #[must_use]
    pub fn text(&self) -> String {
        let text = ProblemText {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or_default(),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
            help: self.help.as_deref(),
            errors: &self.faults,
            diagnostics: self.diagnostics.as_deref(),
        };
        serde_json::to_string(&text).unwrap_or_default()
    }
}

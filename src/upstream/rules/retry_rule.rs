//! The failures after which a request may be retried, and the requests that may be.

/// The retries of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryRule {
    /// The most times that a request is sent again after some of it was sent.
    pub attempts: u32,
    /// The failures after which it is retried.
    pub on: RetryCauses,
    /// The percentage of the upstream's requests that may be retried.
    pub budget: u32,
}

impl Default for RetryRule {
    fn default() -> Self {
        Self {
            attempts: 1,
            on: RetryCauses::DEFAULT,
            budget: 20,
        }
    }
}

/// The cause of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryCause {
    /// The server accepted no connection, or no byte of the request was sent: any method.
    Connect,
    /// The server has not begun with the request, and states so: any method whose body has not been begun.
    Refused,
    /// The connection ended before any byte of an answer: idempotent methods without a body (RFC 9110, section 9.2.2).
    Reset,
    /// The server answered 502, 503 or 504: like [`Self::Reset`].
    Status(u16),
}

impl RetryCause {
    /// The word in the file and the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Status(502) => "502",
            Self::Status(503) => "503",
            Self::Status(_) => "504",
        }
    }
}

/// A set of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryCauses(u8);

impl RetryCauses {
    /// The causes whose retries do nothing twice.
    pub const DEFAULT: Self = Self(0b111);
    /// None.
    pub const NONE: Self = Self(0);

    /// The set with `cause` added; statuses other than 502, 503 and 504 are not causes.
    #[must_use]
    pub fn with(self, cause: RetryCause) -> Self {
        Self(self.0 | Self::bit(cause))
    }

    /// Does the set contain `cause`?
    #[must_use]
    pub fn has(self, cause: RetryCause) -> bool {
        self.0 & Self::bit(cause) != 0
    }

    /// Is an answer with this status one of the causes?
    #[inline]
    #[must_use]
    pub fn has_status(self, status: u16) -> bool {
        self.0 > Self::DEFAULT.0 && self.has(RetryCause::Status(status))
    }

    /// Does the set contain any status?
    #[must_use]
    pub fn has_statuses(self) -> bool {
        self.0 > Self::DEFAULT.0
    }

    /// Its causes, in the order of the documentation.
    pub fn iter(self) -> impl Iterator<Item = RetryCause> {
        let all = [
            RetryCause::Connect,
            RetryCause::Refused,
            RetryCause::Reset,
            RetryCause::Status(502),
            RetryCause::Status(503),
            RetryCause::Status(504),
        ];
        all.into_iter().filter(move |cause| self.has(*cause))
    }

    fn bit(cause: RetryCause) -> u8 {
        match cause {
            RetryCause::Connect => 1,
            RetryCause::Refused => 2,
            RetryCause::Reset => 4,
            RetryCause::Status(502) => 8,
            RetryCause::Status(503) => 16,
            RetryCause::Status(504) => 32,
            RetryCause::Status(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let causes = RetryCauses::NONE
            .with(RetryCause::Connect)
            .with(RetryCause::Status(503));
        assert!(causes.has_status(503) && !causes.has_status(502) && !causes.has_status(500));
        let words: Vec<_> = causes.iter().map(RetryCause::as_str).collect();
        assert_eq!(words, ["connect", "503"]);
        assert!(!RetryCauses::DEFAULT.has_statuses());
        assert!(
            !RetryCauses::DEFAULT
                .with(RetryCause::Status(500))
                .has_statuses()
        );
    }
}

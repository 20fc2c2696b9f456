//! The causes for which a certificate was not obtained.

use super::authority::ChallengeKind;
use crate::store::StoreError;
use crate::telemetry::{printable_line, without_queries};
use instant_acme::Problem;
use std::io;
use std::time::Duration;

/// The most characters of a cause that are shown and kept.
const MOST: usize = 500;

/// A cause for which a certificate was not obtained.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrderFailure {
    /// The authority refuses, in its own words.
    #[error("the authority refuses: {}", reason(.0))]
    Refused(Problem),
    /// The authority could not be reached, or its answer is not ACME.
    #[error("the authority does not answer as it should: {0}")]
    Unreachable(String),
    /// The authority offers none of the challenges that are allowed.
    #[error(
        "the authority offers no challenge for {host} that `challenge` allows ({})",
        .allowed.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
    )]
    NoChallenge {
        host: String,
        allowed: Vec<ChallengeKind>,
    },
    /// The authority checked, and did not find that we control a name.
    #[error("{host} was not found to be ours by {}: {why}", .kind.as_str())]
    NotOurs {
        host: String,
        kind: ChallengeKind,
        why: String,
    },
    /// The order did not end in time.
    #[error("the order took longer than {}", crate::acme::schedule::words(.0.as_secs()))]
    TooLong(Duration),
    /// The certificate that the authority issued cannot be used.
    #[error("the certificate that came cannot be used: {0}")]
    Useless(String),
    /// Data that must be kept cannot be written.
    #[error("{place}: {source}; certificates are kept there, so none is ordered")]
    Storage { place: String, source: io::Error },
    /// The store that several gateways share is unavailable.
    #[error("{place}: {source}; certificates are kept there, so none is ordered")]
    Store { place: String, source: StoreError },
    /// The gateway has no store for several gateways.
    #[error("`storage = \"store\"` needs a Redis, which this gateway does not have")]
    NoStore,
    /// An entry of the store was sealed with another secret.
    #[error(
        "`{entry}` in the store was sealed with another `secret`: give all gateways the same one, or delete the key to begin anew"
    )]
    OtherSecret { entry: String },
    /// An entry of the store cannot be read.
    #[error("`{entry}` in the store is not what a gateway has put there: delete the key")]
    Damaged { entry: String },
    /// The bound on open challenges, since every gateway reads all of them.
    #[error("{most} challenges are open already, the most for all gateways together")]
    TooManyOpen { most: usize },
    /// Other gateways replace an entry of the store all the time.
    #[error("`{entry}` in the store is replaced again and again")]
    Contended { entry: String },
    /// Another gateway may be ordering by now.
    #[error("the lock of this order was lost before its certificate was asked for")]
    LockLost,
    /// Another gateway takes too long over the account.
    #[error("another gateway takes too long to make the account")]
    AccountLocked,
    /// The gateway stops.
    #[error("the gateway stops")]
    GivenUp,
    /// The random source or a library fails.
    #[error("cannot make a key or a request: {0}")]
    Crypto(String),
}

impl From<instant_acme::Error> for OrderFailure {
    fn from(error: instant_acme::Error) -> Self {
        match error {
            instant_acme::Error::Api(problem) => Self::Refused(problem),
            other => Self::Unreachable(other.to_string()),
        }
    }
}

impl OrderFailure {
    /// Is the store unavailable, so that the next try may succeed?
    pub(super) fn is_of_store(&self) -> bool {
        matches!(self, Self::Store { .. })
    }

    /// Is the cause one of our own bounds, and not a fault of the authority?
    pub(super) fn is_of_bounds(&self) -> bool {
        matches!(
            self,
            Self::TooManyOpen { .. } | Self::Contended { .. } | Self::AccountLocked
        )
    }

    /// The cause on one line, as the log and `check` show it. An authority may repeat any part of the URL of its
    /// directory, whose query may be a secret: secret parts are masked wherever they occur.
    pub(super) fn words(&self, directory: &str) -> String {
        let mut text = self.to_string();
        // Masked before the text is cut, so that no part of a secret is left at its end.
        for part in secret_parts(directory) {
            text = text.replace(part, "***");
        }
        one_line(&text)
    }

    /// Is it this problem of the protocol (RFC 8555, section 6.7)?
    pub(super) fn is(&self, problem: &str) -> bool {
        matches!(self, Self::Refused(refused) if is_problem(refused, problem))
    }
}

/// The problem of a nonce that the authority rejects (RFC 8555, section 6.5).
pub(super) const BAD_NONCE: &str = "badNonce";

/// Is it this problem of the protocol (RFC 8555, section 6.7)?
pub(super) fn is_problem(said: &Problem, problem: &str) -> bool {
    let kind = said.r#type.as_deref();
    kind.and_then(|kind| kind.strip_prefix("urn:ietf:params:acme:error:")) == Some(problem)
}

/// Text with words of an authority, on one line: the authority may send anything, at any length. The queries of URLs,
/// which may hold secrets of the file, are masked.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let text = without_queries(&text);
    let mut shown: String = text.chars().take(MOST).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    printable_line(&shown).into_owned()
}

/// A shorter value is not masked by itself, since other words contain it too.
const SHORTEST: usize = 4;

/// The query of a URL, then its parameters, then their values: longer parts come before the parts inside them.
fn secret_parts(url: &str) -> Vec<&str> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let parameters = || query.split('&');
    let values = parameters().filter_map(|one| Some(one.split_once('=')?.1));
    let values = values.filter(|value| value.len() >= SHORTEST);
    let parts = std::iter::once(query).chain(parameters()).chain(values);
    parts.filter(|part| !part.is_empty()).collect()
}

/// The authority's description of a problem, and of the problem of each name that has one.
pub(super) fn reason(problem: &Problem) -> String {
    let mut text = problem
        .detail
        .clone()
        .or_else(|| problem.r#type.clone())
        .unwrap_or_else(|| "it gives no reason".into());
    for part in &problem.subproblems {
        text.push_str("; ");
        text.push_str(&part.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_authority_says_is_one_bounded_line_that_no_terminal_obeys() {
        let words =
            |said: &str| OrderFailure::Unreachable(said.into()).words("https://ca.example/dir");
        let said = "the authority does not answer as it should: ";
        assert_eq!(
            words("a\r\n b\t\u{1b}[31m"),
            format!("{said}a b \\u{{1b}}[31m")
        );
        assert_eq!(
            words("https://ca.example/dir?tok=S: it answers 500"),
            format!("{said}https://ca.example/dir?*** it answers 500")
        );
        let echoed =
            OrderFailure::Unreachable("dir?tok=SECRET, tok=SECRET or SECRET, not tok".into());
        assert_eq!(
            echoed.words("https://ca.example/dir?tok=SECRET&a=1"),
            format!("{said}dir?***, *** or ***, not tok")
        );
        let long = words(&"é".repeat(5000));
        assert_eq!(long.chars().count(), MOST + 3);
        assert!(long.ends_with("é..."));
    }
}

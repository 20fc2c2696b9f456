//! The windows in which an authority suggests to renew certificates (RFC 9773).

use super::account::OpenAccount;
use super::authority::OrderedIdentity;
use super::failure::one_line;
use super::issued::Bundle;
use super::schedule::{self, Seconds};
use instant_acme::{CertificateIdentifier, Error};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The shortest and the longest time after which a window is fetched again, in seconds.
const AGAIN: std::ops::RangeInclusive<Seconds> = 60..=24 * 3600;
/// The time after which a window is fetched again if the authority did not answer.
const AFTER_SILENCE: Seconds = 600;
/// The longest time for an answer.
const WITHIN: Duration = Duration::from_secs(20);
/// The share of the life that is left at the latest renewal, however late the authority's window is.
const LATEST: i64 = 20;

/// Windows by identity.
#[derive(Debug, Default)]
pub(super) struct Suggestions(Mutex<HashMap<Arc<str>, Suggestion>>);

#[derive(Debug)]
struct Suggestion {
    /// The certificate that the window is for.
    fingerprint: [u8; 32],
    window: Option<Window>,
    /// The time from which the window is fetched again.
    next_look: Seconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    start: Seconds,
    end: Seconds,
}

impl Suggestions {
    /// Is the window to be fetched?
    pub(super) fn are_due(&self, identity: &str, bundle: &Bundle, now: Seconds) -> bool {
        let known = self.0.lock();
        let known = known.get(identity).filter(|known| known.is_for(bundle));
        known.is_none_or(|known| known.next_look <= now)
    }

    /// Has the authority suggested a window for this certificate?
    pub(super) fn are_given(&self, identity: &str, bundle: &Bundle) -> bool {
        self.of(identity, bundle, 0).is_some()
    }

    /// The time of the suggested renewal, `share` of 256 parts into the window.
    pub(super) fn of(&self, identity: &str, bundle: &Bundle, share: u8) -> Option<Seconds> {
        let Window { start, end } = self.window(identity, bundle)?;
        let facts = bundle.facts();
        let latest = facts.not_after - (facts.not_after - facts.not_before) / LATEST;
        Some(schedule::within(start, end, share).min(latest))
    }

    /// Fetches the window from the authority.
    pub(super) async fn ask(
        &self,
        open: &OpenAccount,
        identity: &OrderedIdentity,
        bundle: &Bundle,
        now: Seconds,
    ) {
        let Some(leaf) = bundle.leaf() else {
            return;
        };
        let (window, next_look) = match CertificateIdentifier::try_from(&leaf) {
            Ok(id) => match timeout(WITHIN, open.account.renewal_info(&id)).await {
                Ok(Ok((info, next_look))) => {
                    let window = Window {
                        start: info.suggested_window.start.unix_timestamp(),
                        end: info.suggested_window.end.unix_timestamp(),
                    };
                    self.log(identity, window, info.explanation_url.as_deref(), now);
                    let next_look = Seconds::try_from(next_look.as_secs()).unwrap_or(*AGAIN.end());
                    (Some(window), next_look.clamp(*AGAIN.start(), *AGAIN.end()))
                }
                Ok(Err(Error::Unsupported(_))) => (None, *AGAIN.end()),
                Ok(Err(error)) => {
                    tracing::debug!(
                        "tls.{}: cannot get the window for its renewal from the authority: {error}",
                        identity.name
                    );
                    (self.window(&identity.name, bundle), AFTER_SILENCE)
                }
                Err(_) => (self.window(&identity.name, bundle), AFTER_SILENCE),
            },
            // An authority without a key id in its certificates has no such windows.
            Err(_) => (None, *AGAIN.end()),
        };
        let suggestion = Suggestion {
            fingerprint: bundle.facts().fingerprint,
            window,
            next_look: now + next_look,
        };
        let name = Arc::clone(&identity.name);
        self.0.lock().insert(name, suggestion);
    }

    /// A window that moved to now is logged: the authority has a reason.
    fn log(&self, identity: &OrderedIdentity, window: Window, why: Option<&str>, now: Seconds) {
        if window.start > now {
            return;
        }
        let why = why.map(|url| format!(" (see {})", one_line(url)));
        let why = why.unwrap_or_default();
        tracing::info!(
            "tls.{}: {} asks for its renewal now{why}",
            identity.name,
            identity.authority.name
        );
    }

    fn window(&self, identity: &str, bundle: &Bundle) -> Option<Window> {
        let known = self.0.lock();
        known
            .get(identity)
            .filter(|known| known.is_for(bundle))?
            .window
    }
}

impl Suggestion {
    fn is_for(&self, bundle: &Bundle) -> bool {
        self.fingerprint == bundle.facts().fingerprint
    }
}

//! The keys that issuers publish, read independently of requests: at start, when a file names a URL for the first time,
//! periodically, and when a token names an unknown key. Keys stay over reloads, and while a server is unavailable.

use crate::config::PublishedKeys;
use crate::key::key_set::KeySet;
use crate::telemetry::metrics::{KeyFetch, Metrics};
use crate::telemetry::shown_url;
use crate::tls::{self, ClientTls};
use crate::{clock, fetch};
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, USER_AGENT};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::Full;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// The longest time for a read.
const WITHIN: Duration = Duration::from_secs(10);
/// The longest document.
const LONGEST: usize = 1024 * 1024;
/// The longest time for which a start or a reload waits for keys that were never read.
const FIRST_WITHIN: Duration = Duration::from_secs(2);
/// The time from one read to the next if the server names none, and the bounds of the time that it may name.
const USUALLY: Duration = Duration::from_hours(1);
const LEAST: Duration = Duration::from_mins(5);
const MOST: Duration = Duration::from_hours(24);
/// The least time between two reads that tokens cause.
const ASKED_EVERY: Duration = Duration::from_mins(1);
/// The wait after a first failure. The wait doubles with each failure.
const AGAIN: Duration = Duration::from_millis(500);
/// The longest wait after failures: before the keys were read the first time, and after.
const LONGEST_UNREAD: Duration = Duration::from_secs(5);
const LONGEST_READ: Duration = Duration::from_mins(5);

/// The keys of the file that an operator may change if a server of keys is not trusted.
const ADVICE: tls::Advice = tls::Advice {
    table: "`[jwt]`",
    name_key: "jwks",
    plaintext: "write `http://` in `jwks` where it is on this machine",
};

/// The followers of all URLs of the current file.
pub(super) struct KeyFollower {
    followed: Vec<Followed>,
    metrics: Arc<Metrics>,
}

/// A URL that is followed.
struct Followed {
    keys: PublishedKeys,
    /// The keys by the rules of the newest file.
    newest: watch::Sender<Arc<KeySet>>,
    task: AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl KeyFollower {
    pub(super) fn new(metrics: &Arc<Metrics>) -> Self {
        Self {
            followed: Vec::new(),
            metrics: Arc::clone(metrics),
        }
    }

    /// Gives the key sets of a new file the keys that were read before, and waits a moment for sets that were never
    /// read. URLs that the file no longer names are no longer followed.
    pub(super) async fn prepare(&mut self, wanted: Vec<PublishedKeys>) {
        let mut before = std::mem::take(&mut self.followed);
        let mut firsts = Vec::new();
        for keys in wanted {
            let is_same =
                |one: &Followed| one.keys.set.url() == keys.set.url() && one.keys.tls == keys.tls;
            if let Some(at) = before.iter().position(is_same) {
                let mut followed = before.swap_remove(at);
                if let Err(why) = keys.set.adopt(&followed.keys.set) {
                    tracing::warn!(
                        "the keys of {} can no longer be used: {why}",
                        shown_url(keys.set.url())
                    );
                }
                followed.newest.send_replace(Arc::clone(&keys.set));
                followed.keys = keys;
                self.followed.push(followed);
                continue;
            }
            let (newest, receiver) = watch::channel(Arc::clone(&keys.set));
            let (tried, first) = watch::channel(false);
            firsts.push(first);
            let reader = KeySetReader {
                newest: receiver,
                tls: keys.tls.clone(),
                metrics: Arc::clone(&self.metrics),
                failures: 0,
            };
            let task = tokio::spawn(reader.run(tried)).abort_handle();
            self.followed.push(Followed { keys, newest, task });
        }
        let read = self.followed.iter().map(|one| {
            let set = &one.keys.set;
            (label(set.url()).to_owned(), set.is_read())
        });
        self.metrics.keys_read(read.collect());
        let all_tried = async {
            for mut first in firsts {
                // If the reader is gone, there is no wait.
                let _ = first.wait_for(|tried| *tried).await;
            }
        };
        // Keys that do not arrive in time do not prevent serving: requests that need them are answered with 503.
        let _ = timeout(FIRST_WITHIN, all_tried).await;
    }
}

/// Reads one URL periodically.
struct KeySetReader {
    newest: watch::Receiver<Arc<KeySet>>,
    tls: ClientTls,
    metrics: Arc<Metrics>,
    /// Failures in a row.
    failures: u32,
}

impl KeySetReader {
    async fn run(mut self, tried: watch::Sender<bool>) {
        let mut asked_at: Option<Instant> = None;
        loop {
            let rest = self.read().await;
            tried.send_replace(true);
            let mut due = clock::now() + rest;
            let mut is_asked = false;
            loop {
                let set = Arc::clone(&self.newest.borrow_and_update());
                tokio::select! {
                    () = sleep_until(due) => break,
                    () = set.wanted(), if !is_asked => {
                        is_asked = true;
                        let now = clock::now();
                        let may = asked_at.map_or(now, |at| at + ASKED_EVERY).max(now);
                        due = due.min(may);
                    }
                    changed = self.newest.changed() => match changed {
                        Err(_) => return,
                        // The keys do not fit the rules of the new file.
                        Ok(()) if !self.newest.borrow().is_read() => break,
                        Ok(()) => {}
                    },
                }
            }
            if is_asked {
                asked_at = Some(clock::now());
            }
        }
    }

    /// Reads the keys once. Returns the time until they are to be read again.
    async fn read(&mut self) -> Duration {
        let set = Arc::clone(&self.newest.borrow());
        let url = Arc::clone(set.url());
        let answer = timeout(WITHIN, fetch_keys(&url, &self.tls)).await;
        let answer =
            answer.unwrap_or_else(|_| Err(format!("no answer within {} s", WITHIN.as_secs())));
        // A file that was loaded meanwhile has its own rules.
        let set = Arc::clone(&self.newest.borrow());
        let done = answer.and_then(|(document, rest)| Ok((set.install(&document)?, rest)));
        match done {
            Ok((is_new, rest)) => {
                if is_new || self.failures > 0 {
                    let (_, count) = set.ids();
                    tracing::info!("keys of tokens were read from {}: {count}", shown_url(&url));
                }
                self.failures = 0;
                let result = if is_new {
                    KeyFetch::Changed
                } else {
                    KeyFetch::Same
                };
                self.metrics.keys_fetched(result);
                self.metrics.keys_are_read(label(&url));
                jittered(rest)
            }
            Err(why) => {
                let is_first = self.failures == 0;
                self.failures = self.failures.saturating_add(1);
                self.metrics.keys_fetched(KeyFetch::Failed);
                if !set.is_read() {
                    if is_first {
                        tracing::error!(
                            "cannot read the keys of tokens from {}: {why}; requests that need a token are answered 503 until they are read",
                            shown_url(&url)
                        );
                    }
                    return backed_off(self.failures, LONGEST_UNREAD);
                }
                if is_first {
                    tracing::warn!(
                        "cannot read the keys of tokens from {}: {why}; the keys that were read before stay valid",
                        shown_url(&url)
                    );
                }
                backed_off(self.failures, LONGEST_READ)
            }
        }
    }
}

/// The document at a URL, and the time for which it is fresh.
///
/// # Errors
/// If no document was obtained, with the cause in words.
pub async fn fetch_keys(url: &str, tls: &ClientTls) -> Result<(Bytes, Duration), String> {
    let request = Request::get(url)
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .header(USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
        .body(Full::default())
        .map_err(|error| error.to_string())?;
    let answer = fetch::exchange(tls, request, LONGEST).await;
    let words = |error: fetch::FetchError| {
        tls::explain(&*error, ADVICE).unwrap_or_else(|| error.to_string())
    };
    let answer = answer.map_err(words)?;
    if answer.status() != StatusCode::OK {
        return Err(format!("it answers {}", answer.status()));
    }
    let rest = max_age(answer.headers()).map_or(USUALLY, |rest| rest.clamp(LEAST, MOST));
    Ok((answer.into_body(), rest))
}

/// The time for which an answer is fresh by `Cache-Control` (RFC 9111, section 5.2.2.1).
fn max_age(fields: &HeaderMap) -> Option<Duration> {
    let lists = fields.get_all(CACHE_CONTROL).iter();
    let mut directives = lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','));
    directives.find_map(|one| {
        let (name, value) = one.trim().split_once('=')?;
        let seconds = value.trim().trim_matches('"').parse().ok()?;
        name.trim()
            .eq_ignore_ascii_case("max-age")
            .then(|| Duration::from_secs(seconds))
    })
}

/// The URL as a metric's label: without its query, which may hold a secret.
fn label(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

/// Up to a tenth less, so that many gateways do not read at the same time.
fn jittered(rest: Duration) -> Duration {
    rest - rest.mul_f64(0.1 * fastrand::f64())
}

fn backed_off(failures: u32, longest: Duration) -> Duration {
    let doubled = AGAIN * 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    jittered(doubled.min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn an_answer_says_how_long_it_holds() {
        let of = |text: &'static str| {
            let mut fields = HeaderMap::new();
            fields.insert(CACHE_CONTROL, HeaderValue::from_static(text));
            max_age(&fields)
        };
        assert_eq!(of("public, max-age=600"), Some(Duration::from_mins(10)));
        assert_eq!(of("Max-Age=\"60\""), Some(Duration::from_mins(1)));
        assert_eq!(of("s-maxage=60, no-cache"), None);
        assert_eq!(of("max-age=soon"), None);
    }

    #[test]
    fn failures_wait_longer_and_longer() {
        for (failures, least, most) in [(1, 450, 500), (3, 1800, 2000), (20, 4500, 5000)] {
            let wait = backed_off(failures, LONGEST_UNREAD).as_millis();
            assert!((least..=most).contains(&wait), "{failures}: {wait} ms");
        }
    }
}

//! The keys that an issuer publishes at a URL (RFC 7517), as last read. The application reads them independently of
//! requests; a request uses the present ones.

use super::key_rules::{KeyRules, MOST_KEYS, TokenKey};
use arc_swap::ArcSwapOption;
use jsonwebtoken::Algorithm;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// The keys at one URL, for the rules of one file.
#[derive(Debug)]
pub struct KeySet {
    url: Arc<str>,
    rules: KeyRules,
    /// `None` before they are read for the first time.
    keys: ArcSwapOption<Vec<TokenKey>>,
    /// The document with the keys, which another file may read by other rules.
    document: Mutex<Option<Arc<[u8]>>>,
    /// Notified when a token names an unknown key.
    wanted: Notify,
}

impl KeySet {
    /// The keys at `url`, not read yet.
    #[must_use]
    pub fn new(url: &str, rules: KeyRules) -> Self {
        Self {
            url: url.into(),
            rules,
            keys: ArcSwapOption::empty(),
            document: Mutex::default(),
            wanted: Notify::new(),
        }
    }

    /// The URL at which they are published.
    #[must_use]
    pub fn url(&self) -> &Arc<str> {
        &self.url
    }

    /// Takes over the keys of a document. Returns whether the keys have changed.
    ///
    /// # Errors
    /// If the document is of no use; the keys stay unchanged. The words show no part of the document.
    pub fn install(&self, content: &[u8]) -> Result<bool, String> {
        let mut document = self.document.lock().unwrap_or_else(PoisonError::into_inner);
        if document.as_deref() == Some(content) && self.is_read() {
            return Ok(false);
        }
        let keys = self.rules.set(content)?;
        match keys.len() {
            0 => {
                let algorithms = self.rules.spelled().join(", ");
                return Err(format!(
                    "no key for {algorithms}, or none that is long enough"
                ));
            }
            1..=MOST_KEYS => {}
            _ => return Err(format!("more than {MOST_KEYS} keys")),
        }
        *document = Some(content.into());
        self.keys.store(Some(Arc::new(keys)));
        Ok(true)
    }

    /// Takes over the document that was read for an earlier file, by the rules of this one.
    ///
    /// # Errors
    /// If the document is of no use by these rules.
    pub fn adopt(&self, before: &Self) -> Result<(), String> {
        let document = before.document.lock();
        let document = document.unwrap_or_else(PoisonError::into_inner).clone();
        match document {
            Some(document) => self.install(&document).map(drop),
            None => Ok(()),
        }
    }

    /// Were the keys ever read?
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.keys.load().is_some()
    }

    /// May a token with this algorithm be trusted at all?
    pub(super) fn takes(&self, algorithm: Algorithm) -> bool {
        self.rules.algorithms.contains(&algorithm)
    }

    /// The ids of the keys, and how many there are.
    #[must_use]
    pub fn ids(&self) -> (Vec<String>, usize) {
        let keys = self.keys.load();
        let keys = keys.as_deref().map_or(&[][..], Vec::as_slice);
        (
            keys.iter().filter_map(|key| key.id.clone()).collect(),
            keys.len(),
        )
    }

    pub(super) fn keys(&self) -> arc_swap::Guard<Option<Arc<Vec<TokenKey>>>> {
        self.keys.load()
    }

    /// Requests another reading of the URL: a token may be signed by a new key.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Resolves when another reading is requested.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

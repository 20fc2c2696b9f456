//! The request for a change, and its author.

use super::errors::ChangeError;
use serde::{Deserialize, Serialize};

/// Longest id, and longest note, in characters.
const ID: usize = 64;
const NOTE: usize = 200;

/// Which gateways a reset concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResetReach {
    /// The store's counters, at every gateway.
    #[default]
    All,
    /// What this gateway counts by itself, while Redis is away.
    Here,
}

/// A request to empty the counters of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResetRequest {
    /// The limit's name.
    pub limit: String,
    /// The key, as the access log shows it.
    pub key: String,
    /// One group, if not all.
    pub group: Option<String>,
    /// One rate of a list as written, if not all.
    pub window: Option<String>,
    /// The id: a repeat changes nothing. 1 to 64 visible characters.
    pub id: Option<String>,
    /// A remark of at most 200 characters.
    pub note: Option<String>,
    /// The answer does not wait for the other gateways.
    pub leaves_at_once: bool,
    /// Which gateways are concerned.
    pub reach: ResetReach,
}

/// The author of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// The name of the token or certificate.
    pub name: String,
    /// `token`, `certificate`.
    pub via: String,
}

impl ResetRequest {
    /// The request's id, or a new one.
    ///
    /// # Errors
    /// If a text has no meaning.
    pub(super) fn checked_id(&self) -> Result<String, ChangeError> {
        let note = self.note.as_deref().unwrap_or_default();
        if note.chars().count() > NOTE || note.chars().any(char::is_control) {
            let why = "note: at most 200 characters, none of them a control character";
            return Err(ChangeError::Invalid(why.into()));
        }
        let Some(id) = &self.id else {
            return Ok(format!("{:032x}", fastrand::u128(..)));
        };
        if id.is_empty() || id.len() > ID || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            let why = "id: 1 to 64 visible characters";
            return Err(ChangeError::Invalid(why.into()));
        }
        Ok(id.clone())
    }
}

/// What a counter had before it was emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterBefore {
    /// Used units.
    pub used: u64,
    /// Units of the limit.
    pub of: u64,
    /// The limit's numbers.
    pub rule: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_notes_have_bounds() {
        let request = |id: Option<&str>, note: &str| ResetRequest {
            id: id.map(str::to_owned),
            note: Some(note.to_owned()),
            ..ResetRequest::default()
        };
        assert_eq!(
            request(Some("a-1"), "T-4711").checked_id(),
            Ok("a-1".into())
        );
        let made = request(None, "").checked_id().unwrap();
        assert_eq!(made.len(), 32);
        for id in ["", " ", "a b", "é", &"a".repeat(65)] {
            assert!(request(Some(id), "").checked_id().is_err(), "{id}");
        }
        assert!(request(None, &"a".repeat(201)).checked_id().is_err());
        assert!(request(None, "a\nb").checked_id().is_err());
    }
}

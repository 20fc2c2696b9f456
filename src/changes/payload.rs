//! A change as the store keeps it. Every program with access to Redis may write a payload, so that what is read is checked
//! like an operator's request.

use super::counters::CounterChoice;
use super::request::{Author, CounterBefore, ResetRequest};
use crate::store::changes::{ChangeKind, ChangeTarget};
use serde::{Deserialize, Serialize};

/// The payload of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangePayload {
    pub(super) id: String,
    pub(super) limit: String,
    pub(super) key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<String>,
    pub(super) by: String,
    pub(super) via: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<CounterBefore>,
}

impl ChangePayload {
    pub(super) fn new(
        id: String,
        request: &ResetRequest,
        author: &Author,
        before: Option<CounterBefore>,
    ) -> Self {
        Self {
            id,
            limit: request.limit.clone(),
            key: request.key.clone(),
            group: request.group.clone(),
            window: request.window.clone(),
            by: author.name.clone(),
            via: author.via.clone(),
            note: request.note.clone(),
            before,
        }
    }

    /// Reads the payload of an entry; `None` if it has another form.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The counters that are meant.
    pub(super) fn choice(&self) -> CounterChoice<'_> {
        CounterChoice {
            limit: &self.limit,
            key: &self.key,
            group: self.group.as_deref(),
            window: self.window.as_deref(),
        }
    }

    /// What the change is about.
    pub(super) fn target(&self, kind: ChangeKind) -> ChangeTarget {
        let text = |part: &Option<String>| match part {
            Some(part) => format!("+{part}"),
            None => String::new(),
        };
        ChangeTarget::of(&[
            &[kind.byte()],
            self.limit.as_bytes(),
            text(&self.window).as_bytes(),
            text(&self.group).as_bytes(),
            self.key.as_bytes(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let request = ResetRequest {
            limit: "per-ip".into(),
            key: "203.0.113.77".into(),
            window: Some("10/min".into()),
            ..ResetRequest::default()
        };
        let author = Author {
            name: "anna".into(),
            via: "token".into(),
        };
        let before = CounterBefore {
            used: 20,
            of: 20,
            rule: "10/s, burst 20".into(),
        };
        let payload = ChangePayload::new("id".into(), &request, &author, Some(before));
        assert_eq!(ChangePayload::read(&payload.bytes()), Some(payload.clone()));
        let whole = ChangePayload {
            window: None,
            ..payload.clone()
        };
        let target = |payload: &ChangePayload| payload.target(ChangeKind::Reset);
        assert_ne!(target(&whole), target(&payload));
        for bytes in [&b""[..], b"{}", b"[]", b"{\"id\": 1}", b"\xff"] {
            assert_eq!(ChangePayload::read(bytes), None);
        }
    }
}

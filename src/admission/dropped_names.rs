//! The log's lines about fields that are dropped for their names: one a name and hour, for a few names, since strangers
//! choose them.

use crate::client::spelled;
use http::HeaderName;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The names of an hour.
const MOST: usize = 20;
const HOUR: Duration = Duration::from_secs(3600);
/// Most bytes of a name that the log has.
const MOST_TOLD: usize = 64;

/// The names of the last lines, and the instants of those.
static TOLD: Mutex<ToldNames> = Mutex::new(ToldNames(Vec::new()));

#[derive(Debug)]
struct ToldNames(Vec<(HeaderName, Instant)>);

/// Warns of fields that were dropped from a request of `client` at `now`.
#[cold]
pub fn warn(names: &[HeaderName], client: Option<IpAddr>, now: Instant) {
    for name in names {
        let is_due = TOLD
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_due(name, now);
        if is_due {
            let text = name.as_str();
            let text = &text[..text.len().min(MOST_TOLD)];
            tracing::warn!(
                "a request of {} has the field `{text}`, which was dropped: some servers read a name with `_` as the same \
                 name with `-`; have the client write `-`",
                spelled(client)
            );
        }
    }
}

impl ToldNames {
    /// Is a line about the name due? The answer is true once an hour.
    fn is_due(&mut self, name: &HeaderName, now: Instant) -> bool {
        let is_old = |told: Instant| now.saturating_duration_since(told) >= HOUR;
        if let Some((_, told)) = self.0.iter_mut().find(|(known, _)| known == name) {
            let is_due = is_old(*told);
            if is_due {
                *told = now;
            }
            return is_due;
        }
        if self.0.len() >= MOST {
            self.0.retain(|(_, told)| !is_old(*told));
        }
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.push((name.clone(), now));
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HeaderName {
        HeaderName::try_from(text).unwrap()
    }

    #[test]
    fn a_name_is_told_once_an_hour_and_twenty_names_are() {
        let (mut told, start) = (ToldNames(Vec::new()), Instant::now());
        assert!(told.is_due(&name("api_key"), start));
        assert!(!told.is_due(&name("api_key"), start + HOUR / 2));
        let others: Vec<bool> = (0..30)
            .map(|at| told.is_due(&name(&format!("a_{at}")), start + HOUR / 2))
            .collect();
        assert_eq!(others.iter().filter(|due| **due).count(), MOST - 1);
        assert!(told.is_due(&name("api_key"), start + HOUR));
        assert!(!told.is_due(&name("new_one"), start + HOUR));
        assert!(told.is_due(&name("new_one"), start + 2 * HOUR));
    }
}

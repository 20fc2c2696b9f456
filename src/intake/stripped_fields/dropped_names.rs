//! The log lines about fields that are dropped because of their names: one per name and hour, for a few names, since
//! strangers choose the names.

use crate::client::spelled;
use http::HeaderName;
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The most names in an hour.
const MOST: usize = 20;
const HOUR: Duration = Duration::from_secs(3600);
/// The most bytes of a name in the log.
const MOST_TOLD: usize = 64;

/// The names of the last lines of all workers, and the instants of the lines.
static TOLD: Mutex<ToldNames> = Mutex::new(ToldNames(Vec::new()));

thread_local! {
    /// This worker's copy of them: the lock is taken only for a name that may be due, a few times an hour.
    static KNOWN: RefCell<KnownNames> = const { RefCell::new(KnownNames::new()) };
}

#[derive(Debug)]
struct ToldNames(Vec<(HeaderName, Instant)>);

/// The state of a name's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameState {
    /// The line is due now.
    Now,
    /// The line was written at this instant, less than an hour ago.
    At(Instant),
    /// No line is written before this instant: the hour already has its most names.
    NotBefore(Instant),
}

#[derive(Debug)]
struct KnownNames {
    reported: Vec<(HeaderName, Instant)>,
    /// No line for a new name is written before this instant.
    full_until: Option<Instant>,
}

/// Warns of fields that were dropped from a request of `client` at `now`.
#[cold]
pub fn warn(names: &[HeaderName], client: Option<IpAddr>, now: Instant) {
    for name in names {
        if KNOWN.with_borrow_mut(|known| known.is_due(&TOLD, name, now)) {
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

fn is_old(reported: Instant, now: Instant) -> bool {
    now.saturating_duration_since(reported) >= HOUR
}

impl ToldNames {
    /// The state of the name's line. The answer is [`NameState::Now`] once an hour.
    fn look(&mut self, name: &HeaderName, now: Instant) -> NameState {
        if let Some((_, reported)) = self.0.iter_mut().find(|(known, _)| known == name) {
            if !is_old(*reported, now) {
                return NameState::At(*reported);
            }
            *reported = now;
            return NameState::Now;
        }
        if self.0.len() >= MOST {
            self.0.retain(|(_, reported)| !is_old(*reported, now));
        }
        if self.0.len() >= MOST {
            let oldest = self.0.iter().map(|(_, reported)| *reported).min();
            return NameState::NotBefore(oldest.unwrap_or(now) + HOUR);
        }
        self.0.push((name.clone(), now));
        NameState::Now
    }
}

impl KnownNames {
    const fn new() -> Self {
        Self {
            reported: Vec::new(),
            full_until: None,
        }
    }

    /// Is a line about the name due? The answer is true once an hour, over all workers.
    fn is_due(&mut self, all: &Mutex<ToldNames>, name: &HeaderName, now: Instant) -> bool {
        self.reported
            .retain(|(_, reported)| !is_old(*reported, now));
        let is_known = self.reported.iter().any(|(known, _)| known == name);
        if is_known || self.full_until.is_some_and(|until| now < until) {
            return false;
        }
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let reported = all.look(name, now);
        match reported {
            NameState::Now => self.reported.push((name.clone(), now)),
            NameState::At(reported) => self.reported.push((name.clone(), reported)),
            NameState::NotBefore(until) => self.full_until = Some(until),
        }
        reported == NameState::Now
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
        let all = Mutex::new(ToldNames(Vec::new()));
        let mut workers = [KnownNames::new(), KnownNames::new()];
        let start = Instant::now();
        let mut turn = 0;
        let mut is_due = |text: &str, at: Instant| {
            turn += 1;
            workers[turn % 2].is_due(&all, &name(text), at)
        };
        assert!(is_due("api_key", start));
        for _ in 0..2 {
            assert!(!is_due("api_key", start + HOUR / 2));
        }
        let others = (0..30).map(|at| is_due(&format!("a_{at}"), start + HOUR / 2));
        assert_eq!(others.filter(|due| *due).count(), MOST - 1);
        for _ in 0..2 {
            assert!(!is_due("new_one", start + HOUR / 2));
        }
        assert!(is_due("api_key", start + HOUR));
        assert!(!is_due("api_key", start + HOUR));
        assert!(!is_due("new_one", start + HOUR));
        assert!(is_due("new_one", start + 2 * HOUR));
        assert!(!is_due("new_one", start + 2 * HOUR));
    }

    #[test]
    fn a_worker_asks_the_others_a_few_times_an_hour() {
        let all = Mutex::new(ToldNames(Vec::new()));
        let (mut worker, now) = (KnownNames::new(), Instant::now());
        (0..MOST).for_each(|at| assert!(worker.is_due(&all, &name(&format!("a_{at}")), now)));
        assert!(!worker.is_due(&all, &name("other_one"), now));
        // If the lock were taken, this would not return.
        let held = all.lock().unwrap();
        for at in 0..100 {
            assert!(!worker.is_due(&all, &name(&format!("a_{at}")), now));
        }
        assert!(worker.reported.len() <= MOST);
        drop(held);
    }
}

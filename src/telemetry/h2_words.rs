//! The HTTP/2 library's words about the bytes that it refuses: read from its own debug events, the only report of them.
//!
//! The events are collected while a connection is polled, on the polling thread.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Most bytes of the library's words that are read.
const WORDS: usize = 512;
/// Most reports that are kept until taken.
const MOST: usize = 64;

thread_local! {
    static IS_DRIVEN: Cell<bool> = const { Cell::new(false) };
    static HEARD: RefCell<Vec<Heard>> = const { RefCell::new(Vec::new()) };
}

/// A report of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The module that reports.
    pub place: &'static str,
    /// Its words.
    pub words: String,
}

/// Polls a connection once. The library's events meanwhile are noted for [`heard`].
#[inline]
pub fn listening<T>(step: impl FnOnce() -> T) -> T {
    IS_DRIVEN.set(true);
    let done = step();
    IS_DRIVEN.set(false);
    done
}

/// Takes the words since the last call.
#[inline]
#[must_use]
pub fn heard() -> Vec<Heard> {
    HEARD.with_borrow_mut(|heard| {
        if heard.is_empty() {
            Vec::new()
        } else {
            std::mem::take(heard)
        }
    })
}

/// The part of the log's subscriber that collects the events.
pub(super) fn listener<S>() -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    WordListener.with_filter(filter_fn(tells_of_faults).with_max_level_hint(LevelFilter::DEBUG))
}

/// Is it an event in which the library reports a fault of received bytes? The function is called once for each place in
/// the source that has events. Events of valid frames have more fields than their words.
fn tells_of_faults(event: &Metadata<'_>) -> bool {
    *event.level() == Level::DEBUG
        && event.is_event()
        && ["h2::server", "h2::client", "h2::proto::", "h2::codec::"]
            .iter()
            .any(|module| event.target().starts_with(module))
        && event.fields().iter().all(|field| field.name() == "message")
}

struct WordListener;

impl<S: Subscriber> Layer<S> for WordListener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !IS_DRIVEN.get() {
            return;
        }
        let mut words = FaultWords(String::with_capacity(WORDS));
        event.record(&mut words);
        let place = event.metadata().target();
        HEARD.with_borrow_mut(|heard| {
            if heard.len() < MOST {
                let words = words.0;
                heard.push(Heard { place, words });
            }
        });
    }
}

/// The words of an event, up to the bound: a head may be long.
struct FaultWords(String);

impl fmt::Write for FaultWords {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = WORDS - self.0.len();
        let cut = piece.floor_char_boundary(room);
        self.0.push_str(&piece[..cut]);
        if cut < piece.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

impl Visit for FaultWords {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // A rest that does not fit is left out.
            let _ = write!(self, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_is_read() {
        let mut words = FaultWords(String::new());
        for _ in 0..WORDS {
            let _ = words.write_str("aä");
        }
        assert!(words.0.len() <= WORDS && words.0.len() > WORDS - 2);
    }
}

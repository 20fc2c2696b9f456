//! Heads that the HTTP/2 library refuses before the gateway sees them: heard in its own debug events, the only report
//! of them.
//!
//! The library resets the stream of a head that is malformed (RFC 9113, section 8.1.1), or ends the connection. A
//! refusal is noted while the connection of a client is driven, on the thread that drives it.

use super::metrics::RefusedHead;
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
/// Most refusals that are kept until they are taken.
const MOST: usize = 64;

thread_local! {
    static IS_DRIVEN: Cell<bool> = const { Cell::new(false) };
    static HEARD: RefCell<Vec<RefusedStream>> = const { RefCell::new(Vec::new()) };
}

/// A head that the library has refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedStream {
    /// The cause.
    pub cause: RefusedHead,
    /// The beginning of the path, without its query, where the library names it.
    pub path: Option<String>,
}

/// Drives a client's connection by one step. Refusals of meanwhile are noted for [`heard`].
#[inline]
pub fn listening<T>(step: impl FnOnce() -> T) -> T {
    IS_DRIVEN.set(true);
    let done = step();
    IS_DRIVEN.set(false);
    done
}

/// Takes the refusals since the last call.
#[inline]
#[must_use]
pub fn heard() -> Vec<RefusedStream> {
    HEARD.with_borrow_mut(|heard| {
        if heard.is_empty() {
            Vec::new()
        } else {
            std::mem::take(heard)
        }
    })
}

/// The part of the log's subscriber that listens.
pub(super) fn listener<S>() -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    Listener.with_filter(filter_fn(tells_of_heads).with_max_level_hint(LevelFilter::DEBUG))
}

/// Is it an event in which the library tells of a head? It is asked once for each place of the source that has events.
/// Events of frames that are in order have more fields than their words.
fn tells_of_heads(event: &Metadata<'_>) -> bool {
    *event.level() == Level::DEBUG
        && event.is_event()
        && matches!(
            event.target(),
            "h2::server" | "h2::proto::streams::recv" | "h2::codec::framed_read"
        )
        && event.fields().iter().all(|field| field.name() == "message")
}

struct Listener;

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !IS_DRIVEN.get() {
            return;
        }
        let mut words = Words(String::with_capacity(WORDS));
        event.record(&mut words);
        if let Some(refused) = RefusedStream::read(&words.0) {
            HEARD.with_borrow_mut(|heard| {
                if heard.len() < MOST {
                    heard.push(refused);
                }
            });
        }
    }
}

/// The words of an event, as far as they are read: a head may be long.
struct Words(String);

impl fmt::Write for Words {
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

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // What does not fit is left out.
            let _ = write!(self, "{value:?}");
        }
    }
}

impl RefusedStream {
    /// Reads the library's words. Nothing where they are about something else than a head.
    fn read(words: &str) -> Option<Self> {
        let has = |text: &str| words.contains(text);
        let cause = if has("malformed path") || has("malformed authority") {
            RefusedHead::Target
        } else if has(":protocol") || has("extended CONNECT") {
            RefusedHead::ExtendedConnect
        } else if has("content-length") {
            if has("recv_trailers") || has("recv_data") {
                return None;
            }
            RefusedHead::Length
        } else if has("over size") || has("abuse limit") || has("ignorable limit") {
            RefusedHead::TooLarge
        } else if has("malformed headers") || has(":status header") || has("building request") {
            RefusedHead::PseudoFields
        } else if has("malformed header block") || has("malformed CONTINUATION") {
            RefusedHead::Fields
        } else if has("HPACK") || has("HEADERS dependency") {
            RefusedHead::Encoding
        } else {
            return None;
        };
        Some(Self {
            cause,
            path: path_in(words),
        })
    }
}

/// The path in the words `malformed path ("/a?b"): ...`, without its query.
fn path_in(words: &str) -> Option<String> {
    let (_, quoted) = words.split_once("malformed path (")?;
    let quoted = quoted.trim_start_matches(['b', '"']);
    let end = quoted.find(['?', '#']).or_else(|| quoted.find("\")"));
    Some(quoted[..end.unwrap_or(quoted.len())].replace("\\\"", "\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Option<(RefusedHead, Option<String>)> {
        RefusedStream::read(words).map(|refused| (refused.cause, refused.path))
    }

    #[test]
    fn the_librarys_words_name_cause_and_path() {
        let path = |path: &str| Some((RefusedHead::Target, Some(path.to_owned())));
        let words = r#"malformed headers: malformed path ("/q?query=up{job=\"x\"}"): invalid uri character"#;
        assert_eq!(read(words), path("/q"));
        let words = r#"malformed headers: malformed path ("/a<\"b"): invalid uri character"#;
        assert_eq!(read(words), path(r#"/a<"b"#));
        assert_eq!(
            read("malformed headers: missing path"),
            Some((RefusedHead::PseudoFields, None))
        );
        assert_eq!(read("too many small DATA frames"), None);
    }

    #[test]
    fn no_more_is_kept_than_is_read() {
        let mut words = Words(String::new());
        for _ in 0..WORDS {
            let _ = words.write_str("aä");
        }
        assert!(words.0.len() <= WORDS && words.0.len() > WORDS - 2);
    }
}

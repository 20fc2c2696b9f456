//! The HTTP/2 library's words about a server's frames, and their meaning for operators of the server.

use crate::telemetry::h2_words;
use h2::Reason;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The most reports of the library that a connection keeps: broken streams read theirs soon.
const MOST: usize = 16;

/// Parts of the library's words, and the fault of the server's bytes. The first match counts.
const MEANINGS: [(&str, &str); 20] = [
    (
        "Hpack(InvalidUtf8)",
        "in a head a field's name or value is not valid: HTTP/2 has only names in lower case, and no control characters",
    ),
    (
        "Hpack(InvalidPseudoheader)",
        "in a head a name that begins with `:` is not one of HTTP/2",
    ),
    (
        "Hpack(InvalidStatusCode)",
        "in a head the status is not valid",
    ),
    (
        "Hpack(NeedMore",
        "in a head a field has no name, or its end is missing",
    ),
    (
        "Hpack(",
        "the compression of a head's fields (HPACK) is broken",
    ),
    ("malformed header block", FORBIDDEN_FIELD),
    ("malformed CONTINUATION frame", FORBIDDEN_FIELD),
    ("missing :status", "the field `:status` is missing"),
    ("conflicting content-length", LENGTHS),
    ("could not parse content-length", LENGTHS),
    (
        "content-length overflow",
        "the body is longer than its `content-length`",
    ),
    ("content-length underflow", SHORT_BODY),
    ("content-length is not zero", SHORT_BODY),
    (
        "push is disabled",
        "a push (PUSH_PROMISE), which the gateway does not take: switch pushes off in the server",
    ),
    ("unexpected DATA frame", "a body came without a head"),
    (
        "trailers frame was not EOS",
        "a second head came that does not end the answer",
    ),
    ("header list size over", LARGE_HEAD),
    ("header block size over", LARGE_HEAD),
    (
        "CONTINUATION",
        "the frames of a head (HEADERS, CONTINUATION) do not follow each other",
    ),
    ("idle stream", "a frame of a stream that was never opened"),
];

const FORBIDDEN_FIELD: &str = "the head has a field that HTTP/2 does not have (`connection`, `keep-alive`, \
    `proxy-connection`, `transfer-encoding`, `upgrade`), or `:status` twice or after other fields";
const LENGTHS: &str = "the lengths are no numbers, or differ";
const SHORT_BODY: &str = "the body is shorter than its `content-length`";
const LARGE_HEAD: &str = "a head is too large";

/// The meaning of the library's words.
fn meaning(words: &str) -> Option<&'static str> {
    let known = MEANINGS.iter().find(|(part, _)| words.contains(part));
    known.map(|(_, meaning)| *meaning)
}

/// The fault by the code alone, if the library reports nothing more.
pub(super) fn of_code(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::FRAME_SIZE_ERROR => {
            Some("a frame has a length that it may not have, or the bytes are not HTTP/2")
        }
        Reason::FLOW_CONTROL_ERROR => Some("more bytes came than the window allows"),
        _ => None,
    }
}

/// The library's words about the frames of one connection.
#[derive(Debug, Default)]
pub(in crate::upstream) struct HeardWords(Mutex<VecDeque<String>>);

impl HeardWords {
    /// Polls the connection once, and keeps the library's words meanwhile.
    #[inline]
    pub(in crate::upstream) fn drive<T>(&self, step: impl FnOnce() -> T) -> T {
        let done = h2_words::listening(step);
        let heard = h2_words::heard();
        if !heard.is_empty() {
            self.keep(heard);
        }
        done
    }

    #[cold]
    fn keep(&self, heard: Vec<h2_words::Heard>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for said in heard {
            if kept.len() == MOST {
                kept.pop_front();
            }
            kept.push_back(said.words);
        }
    }

    /// The fault by the last report about stream `id`, or about all streams.
    pub(in crate::upstream) fn about(&self, id: Option<u32>) -> Option<Cow<'static, str>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stream_id = format!("StreamId({})", id?);
        let is_about =
            |words: &&String| words.contains(&stream_id) || words.starts_with("connection error");
        let words = kept.iter().rev().find(is_about)?;
        let words = words.split_once("-- ").map_or(&**words, |(_, said)| said);
        if let Some(meaning) = meaning(words) {
            return Some(Cow::Borrowed(meaning));
        }
        let words = words.replace(&format!("stream={stream_id}"), "");
        Some(Cow::Owned(words.trim_end_matches([' ', ';']).to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_about_a_stream_are_its_own() {
        let heard = HeardWords::default();
        let say = |words: &str| {
            let said = h2_words::Heard {
                place: "h2",
                words: words.to_owned(),
            };
            heard.keep(vec![said]);
        };
        say("stream error PROTOCOL_ERROR -- malformed header block; stream=StreamId(1);");
        say("stream error PROTOCOL_ERROR -- other; stream=StreamId(3);");
        let about = |id: u32| heard.about(Some(id));
        assert_eq!(about(1).as_deref(), Some(FORBIDDEN_FIELD));
        assert_eq!(about(5), None);
        say("connection error PROTOCOL_ERROR -- expected CONTINUATION, got Data;");
        let expected = "the frames of a head (HEADERS, CONTINUATION) do not follow each other";
        assert_eq!(about(5).as_deref(), Some(expected));
        say("connection error PROTOCOL_ERROR -- something else; stream=StreamId(5);");
        assert_eq!(about(5).as_deref(), Some("something else"));
        (0..MOST + 1).for_each(|_| say("x"));
        assert_eq!(about(5), None);
    }
}

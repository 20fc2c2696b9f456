//! Heads of clients that the HTTP/2 library refuses before the gateway sees them.
//!
//! The library resets the stream of a head that is malformed (RFC 9113, section 8.1.1), or ends the connection. A
//! refusal is noted while a client's connection is polled, on the polling thread.

use super::h2_words::{self, Heard};
use super::metrics::RefusedHead;

/// A head that the library has refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedStream {
    /// The cause.
    pub cause: RefusedHead,
    /// The beginning of the path, without its query, if the library names it.
    pub path: Option<String>,
}

/// Takes the refusals in the polls of a client's connection since the last call.
#[inline]
#[must_use]
pub fn heard() -> Vec<RefusedStream> {
    let heard = h2_words::heard();
    if heard.is_empty() {
        return Vec::new();
    }
    let heads = heard.iter().filter(|said| tells_of_heads(said));
    heads
        .filter_map(|said| RefusedStream::read(&said.words))
        .collect()
}

/// Does this module of the library report about heads?
fn tells_of_heads(said: &Heard) -> bool {
    matches!(
        said.place,
        "h2::server" | "h2::proto::streams::recv" | "h2::codec::framed_read"
    )
}

impl RefusedStream {
    /// Reads the library's words. `None` if they are not about a head.
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

    fn read_words(words: &str) -> Option<(RefusedHead, Option<String>)> {
        RefusedStream::read(words).map(|refused| (refused.cause, refused.path))
    }

    #[test]
    fn the_librarys_words_name_cause_and_path() {
        let path = |path: &str| Some((RefusedHead::Target, Some(path.to_owned())));
        let words = r#"malformed headers: malformed path ("/q?query=up{job=\"x\"}"): invalid uri character"#;
        assert_eq!(read_words(words), path("/q"));
        let words = r#"malformed headers: malformed path ("/a<\"b"): invalid uri character"#;
        assert_eq!(read_words(words), path(r#"/a<"b"#));
        assert_eq!(
            read_words("malformed headers: missing path"),
            Some((RefusedHead::PseudoFields, None))
        );
        assert_eq!(read_words("too many small DATA frames"), None);
    }
}

//! How the gateway's own answers look.

use http::HeaderValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the bodies of answers are that the gateway writes itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ErrorBody {
    /// Problem documents (RFC 9457).
    #[default]
    Problem,
    /// Plain text.
    Text,
    /// A short page.
    Html,
    /// Whichever of them the client would rather have.
    ByAccept,
    /// What a limit refuses gets this; everything else a problem document.
    File(Page),
}

/// What they are everywhere, and which limits have refusals that look otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorFormats {
    /// Of whatever no limit has a word on.
    pub everywhere: ErrorBody,
    /// By the limit's name.
    pub of_limits: BTreeMap<Arc<str>, ErrorBody>,
}

impl ErrorFormats {
    /// Of a refusal by the limit of this name.
    #[must_use]
    pub fn of_refusal(&self, limit: &str) -> &ErrorBody {
        self.of_limits.get(limit).unwrap_or(&self.everywhere)
    }

    /// Does any answer depend on what the client would rather have?
    #[must_use]
    pub fn ask_accept(&self) -> bool {
        let mut all = self.of_limits.values();
        self.everywhere == ErrorBody::ByAccept || all.any(|body| *body == ErrorBody::ByAccept)
    }
}

/// Appends `text` as it can stand in HTML and XML.
pub fn escape_markup(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            other => out.push(*other),
        }
    }
}

/// A file with places in it that are filled for each refusal: `{status}`, `{limit}`, `{retry_after}`, `{request_id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// What it is, by the end of its name.
    pub kind: HeaderValue,
    escape: Escape,
    pieces: Vec<PagePiece>,
}

/// How what is filled in has to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    Markup,
    Json,
    No,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PagePiece {
    Text(Box<[u8]>),
    Status,
    Limit,
    RetryAfter,
    RequestId,
}

/// What is filled in.
#[derive(Debug, Clone, Copy)]
pub struct PageValues<'a> {
    /// The answer's.
    pub status: u16,
    /// The limit's public name.
    pub limit: &'a str,
    /// In seconds; nothing where waiting does not help.
    pub retry_after: Option<u64>,
    /// Visible characters.
    pub request_id: &'a [u8],
}

impl Page {
    /// Ends of names that say what a file is.
    pub const ENDS: [&'static str; 4] = [".html", ".json", ".txt", ".xml"];

    /// The file called `name` with this text; nothing when its name does not say what it is.
    #[must_use]
    pub fn read(name: &str, text: &str) -> Option<Self> {
        let end = Self::ENDS.into_iter().find(|end| name.ends_with(end))?;
        let (kind, escape) = match end {
            ".html" => ("text/html; charset=utf-8", Escape::Markup),
            ".json" => ("application/json", Escape::Json),
            ".xml" => ("application/xml", Escape::Markup),
            _ => ("text/plain; charset=utf-8", Escape::No),
        };
        Some(Self {
            kind: HeaderValue::from_static(kind),
            escape,
            pieces: pieces(text),
        })
    }

    /// Its text for one refusal.
    #[must_use]
    pub fn fill(&self, filled: &PageValues<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        for piece in &self.pieces {
            match piece {
                PagePiece::Text(text) => out.extend_from_slice(text),
                PagePiece::Status => out.extend_from_slice(filled.status.to_string().as_bytes()),
                PagePiece::Limit => out.extend_from_slice(filled.limit.as_bytes()),
                PagePiece::RetryAfter => match filled.retry_after {
                    Some(seconds) => out.extend_from_slice(seconds.to_string().as_bytes()),
                    None if self.escape == Escape::Json => out.extend_from_slice(b"null"),
                    None => {}
                },
                PagePiece::RequestId => self.write(filled.request_id, &mut out),
            }
        }
        out
    }

    fn write(&self, text: &[u8], out: &mut Vec<u8>) {
        match self.escape {
            Escape::No => out.extend_from_slice(text),
            Escape::Markup => escape_markup(text, out),
            Escape::Json => {
                for byte in text {
                    if matches!(byte, b'"' | b'\\') {
                        out.push(b'\\');
                    }
                    out.push(*byte);
                }
            }
        }
    }
}

/// The text between its places. Other braces stand for themselves.
fn pieces(text: &str) -> Vec<PagePiece> {
    let places = [
        ("{status}", PagePiece::Status),
        ("{limit}", PagePiece::Limit),
        ("{retry_after}", PagePiece::RetryAfter),
        ("{request_id}", PagePiece::RequestId),
    ];
    let (mut out, mut rest) = (Vec::new(), text);
    loop {
        let found = places
            .iter()
            .filter_map(|(name, piece)| Some((rest.find(name)?, name.len(), piece)));
        let Some((at, length, piece)) = found.min_by_key(|(at, ..)| *at) else {
            out.push(PagePiece::Text(rest.as_bytes().into()));
            return out;
        };
        out.push(PagePiece::Text(rest.as_bytes()[..at].into()));
        out.push(piece.clone());
        rest = &rest[at + length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILLED: PageValues<'_> = PageValues {
        status: 429,
        limit: "per-ip",
        retry_after: Some(3),
        request_id: b"a\"<b",
    };

    #[test]
    fn places_are_filled_as_the_file_needs_it() {
        let fill = |name: &str, text: &str, filled: &PageValues<'_>| {
            String::from_utf8(Page::read(name, text).unwrap().fill(filled)).unwrap()
        };
        let json = r#"{"error":{"code":{status},"limit":"{limit}","retry":{retry_after},"id":"{request_id}"}}"#;
        assert_eq!(
            fill("deny.json", json, &FILLED),
            r#"{"error":{"code":429,"limit":"per-ip","retry":3,"id":"a\"<b"}}"#
        );
        let never = PageValues {
            retry_after: None,
            ..FILLED
        };
        assert_eq!(fill("a.json", "{retry_after}", &never), "null");
        assert_eq!(
            fill("a.txt", "-{retry_after}-{request_id}", &never),
            "--a\"<b"
        );
        assert_eq!(
            fill("a.html", "<p>{request_id}{what}", &FILLED),
            "<p>a&quot;&lt;b{what}"
        );
        assert!(Page::read("deny.png", "").is_none());
    }
}

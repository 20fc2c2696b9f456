//! The form of the gateway's own answers.

use http::HeaderValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The form of the bodies that the gateway itself writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ErrorBody {
    /// Problem documents (RFC 9457).
    #[default]
    Problem,
    /// Plain text.
    Text,
    /// A short page.
    Html,
    /// The form that the client prefers.
    ByAccept,
    /// Refusals of limits have this page; every other answer is a problem document.
    File(ErrorPage),
}

/// The form of all answers, and the limits whose refusals have another form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorFormats {
    /// The form for every answer without a limit's own form.
    pub everywhere: ErrorBody,
    /// The forms of refusals, by the limit's name.
    pub of_limits: BTreeMap<Arc<str>, ErrorBody>,
}

impl ErrorFormats {
    /// The form of a refusal by the limit of this name.
    #[must_use]
    pub fn of_refusal(&self, limit: &str) -> &ErrorBody {
        self.of_limits.get(limit).unwrap_or(&self.everywhere)
    }

    /// Does any answer depend on the form that the client prefers?
    #[must_use]
    pub fn ask_accept(&self) -> bool {
        let mut all = self.of_limits.values();
        self.everywhere == ErrorBody::ByAccept || all.any(|body| *body == ErrorBody::ByAccept)
    }
}

/// Appends `text` with the escapes of HTML and XML.
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

/// A file with placeholders that are filled for each refusal: `{status}`, `{limit}`, `{retry_after}`, `{request_id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPage {
    /// The page's content type, by the extension of the file's name.
    pub kind: HeaderValue,
    escape: Escape,
    pieces: Vec<PagePiece>,
}

/// The escapes of a placeholder's value.
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

/// The values of placeholders.
#[derive(Debug, Clone, Copy)]
pub struct PageValues<'a> {
    /// The status of the answer.
    pub status: u16,
    /// The limit's public name.
    pub limit: &'a str,
    /// The wait in seconds; `None` if waiting does not help.
    pub retry_after: Option<u64>,
    /// The request's id, in visible characters.
    pub request_id: &'a [u8],
}

impl ErrorPage {
    /// The file name extensions that determine a type.
    pub const ENDS: [&'static str; 4] = [".html", ".json", ".txt", ".xml"];

    /// The page of the file `name` with this text; `None` if its name determines no type.
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

    /// The page's text for one refusal.
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

/// The text between its placeholders. Other braces are plain text.
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
            String::from_utf8(ErrorPage::read(name, text).unwrap().fill(filled)).unwrap()
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
        assert!(ErrorPage::read("deny.png", "").is_none());
    }
}

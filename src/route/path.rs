//! One path, one spelling: the form in which a path is matched, and the form in which it is forwarded.
//!
//! Rules that hold for `/limited` must hold for every spelling that an origin may read as `/limited`. So a path is
//! rewritten to one form, matching reads that form, and the origin gets the same form, in which nothing remains to be
//! resolved. A path that origins would resolve differently is refused.
//!
//! *Forwarded* is the path with duplicate slashes merged, dot segments removed, escapes of unreserved characters decoded
//! and other escapes in upper case (RFC 3986 section 6.2.2). Its `;parameters` and a trailing slash stay.
//!
//! **Matched* is the forwarded form without trailing slash and parameters, where every byte has one spelling: a byte
//! that is allowed unescaped in a segment (RFC 3986 section 3.3, `pchar`) is plain, and every other byte is escaped. So
//! `/%40me` is `/@me` and `/café` is `/caf%C3%A9`. An escaped `;` begins parameters too, since some origins decode
//! before they cut, and others cut before they decode.

use std::borrow::Cow;

/// A path in its two forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalPath<'a> {
    raw: &'a str,
    /// The forwarded form, made from `raw`.
    forward: PathText,
    /// The match form, made from the forwarded form.
    matched: PathText,
}

/// A rewritten text. As long as the text is a prefix of its source, only its length is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PathText {
    Same(usize),
    Own(String),
}

/// A cause for which a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// The path does not begin with a slash.
    #[error("the path does not begin with a slash")]
    NotAbsolute,
    /// The path has a control byte, a blank, `?` or `#`.
    #[error("the path has a character that must be escaped")]
    Character,
    /// The path has a `%` that is not followed by two hexadecimal digits.
    #[error("the path has a % without two hexadecimal digits")]
    Escape,
    /// The path has `%00`.
    #[error("the path has an escaped NUL")]
    Nul,
    /// The path has `%2f`, `%5c` or a backslash: a separator to some origins and an ordinary character to others.
    #[error("the path has a backslash or an escaped slash")]
    Separator,
    /// The path has a dot segment with parameters, such as `..;x`: the parent to some origins and a name to others.
    #[error("the path has a dot segment with parameters")]
    DotParameters,
    /// The path leads above the root.
    #[error("the path leads above the root")]
    AboveRoot,
}

impl NormalPath<'_> {
    /// The text that routes are matched against. The text begins with a slash, and ends in one only when it is `/`.
    #[must_use]
    pub fn to_match(&self) -> &str {
        self.matched.of(self.to_forward())
    }

    /// The text to forward.
    #[must_use]
    pub fn to_forward(&self) -> &str {
        self.forward.of(self.raw)
    }

    /// Is the path forwarded exactly as received?
    #[must_use]
    pub fn is_as_sent(&self) -> bool {
        matches!(self.forward, PathText::Same(length) if length == self.raw.len())
    }
}

impl PathText {
    fn of<'a>(&'a self, source: &'a str) -> &'a str {
        match self {
            Self::Same(length) => &source[..*length],
            Self::Own(text) => text,
        }
    }
}

/// Both forms of `raw_path`, which is the request's path without its query.
///
/// Nothing is allocated for a path in normal form, nor for a path whose normal form is a prefix of `raw_path` (without
/// a trailing slash or trailing parameters).
///
/// # Errors
/// If the path has a part that origins would resolve differently, or that no URI may contain.
pub fn normalize(raw_path: &str) -> Result<NormalPath<'_>, BadPath> {
    if is_plain(raw_path) {
        return Ok(NormalPath {
            raw: raw_path,
            forward: PathText::Same(raw_path.len()),
            matched: without_slash(raw_path),
        });
    }
    let forward = forward_form(raw_path)?;
    let matched = match_form(forward.of(raw_path));
    Ok(NormalPath {
        raw: raw_path,
        forward,
        matched,
    })
}

/// The match form of one literal segment of a pattern, as a person writes it.
///
/// # Errors
/// If no segment of a request can be this text.
pub fn literal(segment: &str) -> Result<Cow<'_, str>, BadPath> {
    if segment.contains('/') {
        return Err(BadPath::Separator);
    }
    let path = format!("/{segment}");
    let matched = normalize(&path)?.to_match()[1..].to_owned();
    match matched.len() {
        // The segment is empty, dots, or nothing but parameters.
        0 => Err(BadPath::DotParameters),
        _ if matched == segment => Ok(Cow::Borrowed(segment)),
        _ => Ok(Cow::Owned(matched)),
    }
}

/// Is this byte allowed unescaped in a segment of the match form? `pchar` without `%` and `;`.
const fn is_segment(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@'
        )
}

/// Is the byte an unreserved character (RFC 3986 section 2.3)?
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

const SEGMENT: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = is_segment(byte as u8);
        byte += 1;
    }
    table
};

/// Is the path certainly equal to its rewritten form? Segments that begin with a dot are left to the rewriting.
fn is_plain(path: &str) -> bool {
    let mut before = 0;
    for byte in path.bytes() {
        let fits = match byte {
            b'/' => before != b'/',
            b'.' => before != b'/',
            _ => SEGMENT[usize::from(byte)] && before != 0,
        };
        if !fits {
            return false;
        }
        before = byte;
    }
    path.starts_with('/')
}

fn forward_form(raw: &str) -> Result<PathText, BadPath> {
    let segments = raw.strip_prefix('/').ok_or(BadPath::NotAbsolute)?;
    let mut out = PathWriter::over(raw);
    let mut slash = false;
    for segment in segments.split('/') {
        let dots = leading_dots(segment);
        slash = true;
        match (dots.count, &segment[dots.length..]) {
            (0 | 1, "") => {}
            (2, "") => out.pop()?,
            (1 | 2, after) if begins_parameters(after) => return Err(BadPath::DotParameters),
            _ => {
                out.push(b'/');
                forward_segment(segment, &mut out)?;
                slash = false;
            }
        }
    }
    if slash {
        out.push(b'/');
    }
    Ok(out.text)
}

/// The dots, plain or escaped, at the beginning of a segment.
struct Dots {
    count: usize,
    length: usize,
}

fn leading_dots(segment: &str) -> Dots {
    let bytes = segment.as_bytes();
    let mut dots = Dots {
        count: 0,
        length: 0,
    };
    loop {
        dots.length += match &bytes[dots.length..] {
            [b'.', ..] => 1,
            [b'%', b'2', b'e' | b'E', ..] => 3,
            _ => return dots,
        };
        dots.count += 1;
    }
}

/// Does the text begin with parameters, their `;` escaped or not?
pub(super) fn begins_parameters(text: &str) -> bool {
    matches!(text.as_bytes(), [b';', ..] | [b'%', b'3', b'b' | b'B', ..])
}

fn forward_segment(segment: &str, out: &mut PathWriter<'_>) -> Result<(), BadPath> {
    let is_special = |byte: u8| matches!(byte, b'%' | b'\\' | 0..=b' ' | 0x7f | b'?' | b'#');
    let mut rest = segment;
    loop {
        let run = rest.bytes().position(is_special).unwrap_or(rest.len());
        out.push_str(&rest[..run]);
        rest = &rest[run..];
        match rest.bytes().next() {
            None => return Ok(()),
            Some(b'%') => {}
            Some(b'\\') => return Err(BadPath::Separator),
            Some(_) => return Err(BadPath::Character),
        }
        match escape_at(rest, 0).ok_or(BadPath::Escape)? {
            0 => return Err(BadPath::Nul),
            b'/' | b'\\' => return Err(BadPath::Separator),
            byte if is_unreserved(byte) => out.push(byte),
            byte => out.push_escape(byte),
        }
        rest = &rest[3..];
    }
}

/// The byte that the escape at this position of `text` represents.
fn escape_at(text: &str, at: usize) -> Option<u8> {
    let digit = |place: usize| {
        let byte = *text.as_bytes().get(place)?;
        char::from(byte).to_digit(16)
    };
    u8::try_from(digit(at + 1)? * 16 + digit(at + 2)?).ok()
}

/// The match form of a path in forwarded form.
fn match_form(forward: &str) -> PathText {
    if forward
        .bytes()
        .all(|byte| byte == b'/' || SEGMENT[usize::from(byte)])
    {
        return without_slash(forward);
    }
    let mut out = PathWriter::over(forward);
    for segment in forward.split('/') {
        if !segment.is_empty() && !begins_parameters(segment) {
            out.push(b'/');
            match_segment(segment, &mut out);
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out.text
}

/// The match form of a path whose bytes are already in match form: the path without a slash at its end.
fn without_slash(path: &str) -> PathText {
    let whole = path.strip_suffix('/').unwrap_or(path);
    PathText::Same(whole.len().max(1))
}

fn match_segment(segment: &str, out: &mut PathWriter<'_>) {
    let mut rest = segment;
    loop {
        let run = rest.bytes().position(|byte| !SEGMENT[usize::from(byte)]);
        let run = run.unwrap_or(rest.len());
        out.push_str(&rest[..run]);
        rest = &rest[run..];
        let Some(character) = rest.chars().next() else {
            return;
        };
        if begins_parameters(rest) {
            return;
        }
        let escaped = escape_at(rest, 0).filter(|_| character == '%');
        let length = match escaped {
            Some(byte) if is_segment(byte) => {
                out.push(byte);
                3
            }
            Some(byte) => {
                out.push_escape(byte);
                3
            }
            None => {
                let bytes = rest.bytes().take(character.len_utf8());
                bytes.for_each(|byte| out.push_escape(byte));
                character.len_utf8()
            }
        };
        rest = &rest[length..];
    }
}

/// A writer of a text that is often a prefix of its source. The writer copies only from the first difference on.
struct PathWriter<'a> {
    source: &'a str,
    text: PathText,
}

impl<'a> PathWriter<'a> {
    fn over(source: &'a str) -> Self {
        Self {
            source,
            text: PathText::Same(0),
        }
    }

    fn is_empty(&self) -> bool {
        self.text.of(self.source).is_empty()
    }

    fn push_str(&mut self, piece: &str) {
        match &mut self.text {
            PathText::Own(text) => text.push_str(piece),
            PathText::Same(length) if self.source[*length..].starts_with(piece) => {
                *length += piece.len();
            }
            PathText::Same(length) => {
                // At worst, an escape replaces one byte by three; most paths have few escapes.
                let mut text = String::with_capacity(self.source.len() + 16);
                text.push_str(&self.source[..*length]);
                text.push_str(piece);
                self.text = PathText::Own(text);
            }
        }
    }

    /// Writes one ASCII character.
    fn push(&mut self, ascii: u8) {
        self.push_str(char::from(ascii).encode_utf8(&mut [0; 2]));
    }

    fn push_escape(&mut self, byte: u8) {
        const DIGITS: [u8; 16] = *b"0123456789ABCDEF";
        let digits = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
        if let Ok(digits) = str::from_utf8(&digits) {
            self.push_str("%");
            self.push_str(digits);
        }
    }

    /// Removes the last segment.
    fn pop(&mut self) -> Result<(), BadPath> {
        let slash = self.text.of(self.source).rfind('/');
        let slash = slash.ok_or(BadPath::AboveRoot)?;
        match &mut self.text {
            PathText::Own(text) => text.truncate(slash),
            PathText::Same(length) => *length = slash,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

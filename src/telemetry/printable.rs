//! Text for a terminal: text from a file, an argument or a request may have any character, and a terminal interprets
//! some.

use std::borrow::Cow;
use std::fmt::Write as _;

/// `text` with escapes, such as `\u{1b}`, for all characters that a terminal would interpret; line breaks and tabs
/// stay.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, |c, out| {
        let _ = write!(out, "{}", c.escape_unicode());
    })
}

/// The same on one line, for the text of a foreign server: line breaks and tabs are escaped too.
#[must_use]
pub fn printable_line(text: &str) -> Cow<'_, str> {
    if !text.contains(['\n', '\t']) {
        return printable(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_obeyed(c) || matches!(c, '\n' | '\t') {
            let _ = write!(out, "{}", c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// The first `most` bytes of untrusted data: printable ASCII unchanged, everything else as `\xNN`.
#[must_use]
pub fn excerpt(sent: &[u8], most: usize) -> String {
    let mut shown = String::new();
    for byte in sent {
        let escaped = match byte {
            b'"' | b'\\' => format!("\\{}", char::from(*byte)),
            b' '..=b'~' => char::from(*byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        if shown.len() + escaped.len() > most {
            break;
        }
        shown.push_str(&escaped);
    }
    shown
}

/// JSON `text` with JSON escapes for such characters, which mean the same characters.
#[must_use]
pub fn printable_json(text: &str) -> Cow<'_, str> {
    replaced(text, |c, out| {
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            // Writing into a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

/// `text` with such characters replaced by marks of the same length, so that positions in the text stay. A character of
/// one byte has no mark and is left to the caller.
#[must_use]
pub fn printable_in_place(text: String) -> String {
    if !text.contains(is_obeyed) {
        return text;
    }
    let mark = |c: char| match c.len_utf8() {
        2 if is_obeyed(c) => '\u{bf}',
        3 if is_obeyed(c) => char::REPLACEMENT_CHARACTER,
        _ => c,
    };
    text.chars().map(mark).collect()
}

fn replaced(text: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_obeyed(c) {
            escape(c, &mut out);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Does a terminal interpret the character? Terminals interpret control characters as colours, titles and moves. Marks
/// that change the direction of text count too, since they make it appear as another text.
pub(super) fn is_obeyed(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(c, '\u{2028}' | '\u{2029}');
    turns || breaks || (c.is_control() && !matches!(c, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_nothing_else() {
        for (text, shown) in [
            ("GET /é\t日\n", "GET /é\t日\n"),
            ("/\u{1b}[31m", "/\\u{1b}[31m"),
            ("\u{9b}2J\u{7f}\r", "\\u{9b}2J\\u{7f}\\u{d}"),
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}"),
        ] {
            assert_eq!(printable(text), shown);
        }
        let text = "\u{1b}\u{9b}\u{2028}é\u{202e}";
        let in_place = printable_in_place(text.to_owned());
        assert_eq!(in_place, "\u{1b}\u{bf}\u{fffd}é\u{fffd}");
        assert_eq!(in_place.len(), text.len());
        assert_eq!(
            printable_json("{\"a\":\"\u{9b}\u{7f}\"}\n"),
            "{\"a\":\"\\u009b\\u007f\"}\n"
        );
    }

    #[test]
    fn what_a_server_says_stays_on_its_line() {
        assert_eq!(printable_line("a\nb\tc\u{1b}d"), "a\\u{a}b\\u{9}c\\u{1b}d");
        assert_eq!(printable_line("a b\r"), "a b\\u{d}");
    }

    #[test]
    fn what_is_shown_is_printable_and_short() {
        let shown = excerpt("a\"\\\u{e9}\x1b[2J".as_bytes(), 128);
        assert_eq!(shown, "a\\\"\\\\\\xc3\\xa9\\x1b[2J");
        for byte in [b'x', 0, b'"'] {
            let shown = excerpt(&[byte; 500], 128);
            assert!((125..=128).contains(&shown.len()), "{shown}");
        }
    }
}

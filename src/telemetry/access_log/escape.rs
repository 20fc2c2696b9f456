//! Escapes that make untrusted text harmless in a line: cut, escaped, and never more than one line.

use crate::clock;
use crate::telemetry::printable::is_obeyed;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

/// The most bytes that are written of any untrusted text.
pub(crate) const LONGEST: usize = 1024;

/// The mark of a cut text.
const CUT: &[u8] = b"...";

/// Writes the inside of a JSON string. A byte that is not UTF-8 becomes the text `\xff`, so that two such texts differ.
pub(super) fn json(out: &mut Vec<u8>, text: &[u8]) {
    escape(out, text, br"\\x", |out, c| match c {
        '"' => out.extend(br#"\""#),
        '\\' => out.extend(br"\\"),
        '\n' => out.extend(br"\n"),
        '\r' => out.extend(br"\r"),
        '\t' => out.extend(br"\t"),
        // All escaped characters are in the basic plane: four digits are enough.
        _ => {
            let code = c as u32;
            out.extend(br"\u");
            for shift in [12, 8, 4, 0] {
                out.push(hex(code >> shift));
            }
        }
    });
}

/// Writes text for a person's terminal, which would interpret control characters.
pub(super) fn terminal(out: &mut Vec<u8>, text: &[u8]) {
    escape(out, text, br"\x", |out, c| match c {
        '"' => out.push(b'"'),
        '\\' => out.push(b'\\'),
        _ => out.extend(c.escape_default().map(|c| c as u8)),
    });
}

/// Writes the inside of a quoted field as Apache does: every byte that is not plain ASCII in hexadecimal.
pub(super) fn apache(out: &mut Vec<u8>, text: &[u8]) {
    let (text, was_cut) = cut(text);
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b' '..=b'~' => out.push(*byte),
            _ => {
                let byte = u32::from(*byte);
                out.extend([b'\\', b'x', hex(byte >> 4), hex(byte)]);
            }
        }
    }
    if was_cut {
        out.extend(CUT);
    }
}

/// Copies runs of plain characters and gives each other character to `special`. A byte that is not UTF-8 is written in
/// hexadecimal after `mark`; in a text with such bytes backslashes are written so too, so that none is mistaken for a
/// mark.
fn escape(out: &mut Vec<u8>, text: &[u8], mark: &[u8], special: impl Fn(&mut Vec<u8>, char)) {
    let (mut rest, was_cut) = cut(text);
    let text = rest;
    let is_broken = || str::from_utf8(text).is_err();
    let byte = |out: &mut Vec<u8>, byte: u8| {
        out.extend_from_slice(mark);
        out.extend([hex(u32::from(byte >> 4)), hex(u32::from(byte))]);
    };
    while !rest.is_empty() {
        let run = plain_length(rest);
        let (plain, after) = rest.split_at(run);
        let (odd, after) = after.split_at(length(after, |byte| !is_plain(byte)));
        out.extend(plain);
        for chunk in odd.utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_harmless(c) {
                    out.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
                } else if c == '\\' && is_broken() {
                    byte(out, b'\\');
                } else {
                    special(out, c);
                }
            }
            for invalid in chunk.invalid() {
                byte(out, *invalid);
            }
        }
        rest = after;
    }
    if was_cut {
        out.extend(CUT);
    }
}

fn length(text: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    let end = text.iter().position(|byte| !belongs(*byte));
    end.unwrap_or(text.len())
}

/// The length of the run of plain characters at the beginning, examined in words: hardly any text has other characters.
fn plain_length(text: &[u8]) -> usize {
    let (words, _) = text.as_chunks();
    let whole = words.iter().take_while(|word| is_plain_word(**word));
    let start = whole.count() * WORD;
    start + length(&text[start..], is_plain)
}

const WORD: usize = 8;

/// Are these bytes all plain?
fn is_plain_word(word: [u8; WORD]) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let word = u64::from_le_bytes(word);
    // A byte below `least` borrows from its high bit. The borrow reaches the next byte, but the word is not plain then.
    let below = |word: u64, least: u64| word.wrapping_sub(ONES * least);
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    // DEL has no high bit and its successor has one.
    let odd = word | below(word, 0x20) | is(b'"') | is(b'\\') | word.wrapping_add(ONES);
    odd & HIGH == 0
}

const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// Is the character neither interpreted by a terminal, nor escaped by JSON?
fn is_harmless(c: char) -> bool {
    !is_obeyed(c) && !matches!(c, '\n' | '\t' | '"' | '\\')
}

/// At most [`LONGEST`] bytes of the text, not ending within a character, and whether any were cut off.
fn cut(text: &[u8]) -> (&[u8], bool) {
    if text.len() <= LONGEST {
        return (text, false);
    }
    let is_inside = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut end = LONGEST;
    while end > LONGEST - 3 && is_inside(&end) {
        end -= 1;
    }
    (&text[..end], true)
}

fn hex(digit: u32) -> u8 {
    b"0123456789abcdef"[(digit & 15) as usize]
}

/// Writes a number in decimal.
pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes an address.
pub(super) fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for (i, octet) in v4.octets().into_iter().enumerate() {
                if i > 0 {
                    out.push(b'.');
                }
                number(out, u64::from(octet));
            }
        }
        // Writing to a vector cannot fail.
        IpAddr::V6(v6) => drop(write!(out, "{v6}")),
    }
}

/// A version of HTTP in the form of a request line.
pub(super) const fn protocol(version: http::Version) -> &'static str {
    match version {
        http::Version::HTTP_09 => "HTTP/0.9",
        http::Version::HTTP_10 => "HTTP/1.0",
        http::Version::HTTP_2 => "HTTP/2.0",
        http::Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// Writes a number with leading zeros, in at most `DIGITS` digits.
pub(super) fn padded<const DIGITS: usize>(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&digits::<DIGITS>(number));
}

fn digits<const DIGITS: usize>(mut number: u64) -> [u8; DIGITS] {
    let mut text = [b'0'; DIGITS];
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text
}

/// Writes a time in milliseconds, with microseconds if there are any.
pub(super) fn millis(out: &mut Vec<u8>, time: Duration) {
    let micros = clock::micros(time);
    if micros == 0 {
        return out.push(b'0');
    }
    number(out, micros / 1_000);
    let [tenths, hundredths, thousandths] = digits::<3>(micros % 1_000);
    match (tenths, hundredths, thousandths) {
        (b'0', b'0', b'0') => {}
        (_, b'0', b'0') => out.extend_from_slice(&[b'.', tenths]),
        (_, _, b'0') => out.extend_from_slice(&[b'.', tenths, hundredths]),
        _ => out.extend_from_slice(&[b'.', tenths, hundredths, thousandths]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_survives_every_byte_and_stays_on_its_line() {
        let all: Vec<u8> = (0..=255).collect();
        let text = written(|out| json(out, &all));
        assert!(!text.contains(|c: char| c.is_control()));
        let back: String = serde_json::from_str(&format!("\"{text}\"")).unwrap();
        assert!(back.starts_with("\0\u{1}"));
        assert!(back.contains("\"#$") && back.contains(r"[\x5c]"));
        assert!(back.ends_with(r"\xfe\xff"));
    }

    #[test]
    fn two_texts_that_are_no_utf8_differ() {
        let texts: [&[u8]; 8] = [
            b"/\xff",
            b"/\xfe",
            b"/\xff\xfe",
            b"/\xe6\xb0",
            b"/\xe6\xb0\xb4\xff",
            b"/\xff\\xfe",
            b"/\\xff\xfe",
            b"/\xff\xef\xbf\xbd",
        ];
        for write in [json, terminal] {
            let mut written: Vec<String> = texts
                .iter()
                .map(|text| self::written(|out| write(out, text)))
                .collect();
            written.sort();
            written.dedup();
            assert_eq!(written.len(), texts.len(), "{written:?}");
        }
        assert_eq!(written(|out| json(out, b"/\xff\\")), r"/\\xff\\x5c");
        assert_eq!(written(|out| json(out, br"/\")), r"/\\");
    }

    #[test]
    fn letters_of_any_script_are_kept_and_tricks_are_not() {
        let text = written(|out| json(out, "grün 水 \u{202e}gpj.exe \u{85}\u{2028}".as_bytes()));
        assert_eq!(text, r"grün 水 \u202egpj.exe \u0085\u2028");
        let text = written(|out| terminal(out, "水\x1b[2J\r\u{202e}\"\\".as_bytes()));
        assert_eq!(text, r#"水\u{1b}[2J\r\u{202e}"\"#);
    }

    #[test]
    fn apache_fields_are_ascii() {
        let text = written(|out| apache(out, b"a \"b\" \\ \x1b \xff"));
        assert_eq!(text, r#"a \"b\" \\ \x1b \xff"#);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        for prefix in ["", "a", "ab", "abc"] {
            let long = format!("{prefix}{}", "🦀".repeat(1_000));
            let text = written(|out| json(out, long.as_bytes()));
            assert!(text.ends_with("🦀..."));
            assert!(text.len() > LONGEST - 4 && text.len() <= LONGEST + CUT.len());
        }
        let text = written(|out| json(out, &[0x80; 5_000]));
        assert!(text.ends_with(r"\\x80..."));
    }

    #[test]
    fn numbers() {
        assert_eq!(written(|out| padded::<6>(out, 42)), "000042");
        let millis = |micros| written(|out| millis(out, Duration::from_micros(micros)));
        assert_eq!(millis(0), "0");
        assert_eq!(millis(310), "0.31");
        assert_eq!(millis(400_000), "400");
        assert_eq!(millis(1_001), "1.001");
        assert_eq!(millis(2_050), "2.05");
        assert_eq!(millis(2_500), "2.5");
    }

    #[test]
    fn a_word_is_plain_where_each_of_its_bytes_is() {
        for place in 0..WORD {
            for byte in 0..=u8::MAX {
                let mut word = *b"a ~!#[]z";
                word[place] = byte;
                assert_eq!(is_plain_word(word), is_plain(byte), "{byte:#x} at {place}");
            }
        }
    }
}

//! Users and passwords of Basic credentials (RFC 7617), read so that no server sees another user.
//!
//! A less strict reader could find a user where this one finds none, or a different one: then the credential is
//! malformed, and does not count as absent.

use super::{behind_basic, may_be_basic, trim};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};
use smallvec::SmallVec;

/// A user and a password. Hardly any are longer than this together; longer ones are allocated.
type DecodedText = SmallVec<[u8; 128]>;

/// The result of reading all lines of `Authorization`.
pub(in crate::key) enum BasicReading {
    /// No line has the scheme.
    Absent,
    /// A line has the scheme, or seems to have it, and no user can be read in one way only.
    Malformed,
    /// The lines have different values.
    Several,
    /// One credential, or several of one value.
    One(BasicCredential),
}

/// The user and the password that a client states.
pub(in crate::key) struct BasicCredential {
    /// The user, `:`, and the password.
    decoded: DecodedText,
    /// The length of the user.
    user: usize,
}

impl BasicCredential {
    /// The user: the bytes before the first colon, in any character encoding.
    pub(in crate::key) fn user(&self) -> &[u8] {
        &self.decoded[..self.user]
    }

    /// The user and the password, with the colon between them.
    pub(in crate::key) fn user_and_password(&self) -> &[u8] {
        &self.decoded
    }
}

/// Reads the credential in `fields`; `value` selects the bytes that must be equal if there are several lines.
pub(in crate::key) fn read_basic(
    fields: &HeaderMap,
    value: fn(&BasicCredential) -> &[u8],
) -> BasicReading {
    let mut lines = fields.get_all(header::AUTHORIZATION).iter();
    let Some(first) = lines.next() else {
        return BasicReading::Absent;
    };
    let mut found = read_line(first.as_bytes());
    for line in lines {
        found = match (found, read_line(line.as_bytes())) {
            (BasicReading::Absent, BasicReading::Absent) => BasicReading::Absent,
            (BasicReading::Malformed, _) | (_, BasicReading::Malformed) => BasicReading::Malformed,
            (BasicReading::One(one), BasicReading::One(other)) if value(&one) == value(&other) => {
                BasicReading::One(one)
            }
            // A server that reads the other line sees another user, or none.
            _ => BasicReading::Several,
        };
    }
    found
}

/// Reads one line. The name of the scheme has any case, and one blank or more follow it (RFC 9110, section 11.4).
fn read_line(line: &[u8]) -> BasicReading {
    let line = trim(line);
    let Some(rest) = behind_basic(line) else {
        return if may_be_basic(line) {
            BasicReading::Malformed
        } else {
            BasicReading::Absent
        };
    };
    let start = rest.iter().position(|byte| *byte != b' ');
    let encoded = start.filter(|blanks| *blanks > 0).map(|at| &rest[at..]);
    match encoded.and_then(decode) {
        Some(credential) => BasicReading::One(credential),
        None => BasicReading::Malformed,
    }
}

/// Decodes a user and a password: with padding and without stray bits, since sloppy decoders take several texts for one
/// user. Control characters are not allowed (RFC 7617, section 2); some servers end a user at a NUL.
fn decode(encoded: &[u8]) -> Option<BasicCredential> {
    let mut decoded = DecodedText::from_elem(0, base64::decoded_len_estimate(encoded.len()));
    let length = STANDARD.decode_slice(encoded, &mut decoded).ok()?;
    decoded.truncate(length);
    let user = decoded.iter().position(|byte| *byte == b':')?;
    let is_text = !decoded.iter().any(u8::is_ascii_control);
    is_text.then_some(BasicCredential { decoded, user })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    /// What the lines are read as: the user, the whole credential, or a word.
    fn reading(lines: &[&[u8]], value: fn(&BasicCredential) -> &[u8]) -> Vec<u8> {
        let mut fields = HeaderMap::new();
        for line in lines {
            fields.append(
                header::AUTHORIZATION,
                HeaderValue::from_bytes(line).unwrap(),
            );
        }
        match read_basic(&fields, value) {
            BasicReading::Absent => b"absent".to_vec(),
            BasicReading::Malformed => b"malformed".to_vec(),
            BasicReading::Several => b"several".to_vec(),
            BasicReading::One(one) => value(&one).to_vec(),
        }
    }

    fn shown(lines: &[&str], value: fn(&BasicCredential) -> &[u8]) -> String {
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        String::from_utf8_lossy(&reading(&lines, value)).into_owned()
    }

    #[test]
    fn a_user_ends_at_the_first_colon() {
        for (line, user, whole) in [
            // The examples of RFC 7617, sections 2 and 2.1.
            (
                "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
                "Aladdin",
                "Aladdin:open sesame",
            ),
            ("Basic dGVzdDoxMjPCow==", "test", "test:123£"),
            ("bAsIC    YTpi", "a", "a:b"),
            ("  Basic YTpi\t", "a", "a:b"),
            ("Basic YTpiOmM=", "a", "a:b:c"),
            ("Basic YTo=", "a", "a:"),
            ("Basic OmI=", "", ":b"),
            ("Basic Og==", "", ":"),
        ] {
            assert_eq!(shown(&[line], BasicCredential::user), user, "{line}");
            let read = shown(&[line], BasicCredential::user_and_password);
            assert_eq!(read, whole, "{line}");
        }
        // A user of Latin-1: `ä:b`.
        let latin = reading(&[b"Basic 5Dpi"], BasicCredential::user);
        assert_eq!(latin, b"\xe4");
        let long = "u".repeat(3000);
        let line = format!("Basic {}", STANDARD.encode(format!("{long}:p")));
        assert_eq!(shown(&[&line], BasicCredential::user), long);
    }

    #[test]
    fn what_a_sloppy_reader_could_take_for_a_user_is_malformed() {
        for line in [
            "Basic",
            "Basic:YTpi",
            "BasicYTpi",
            "Basic=YTpi",
            "Basic\tYTpi",
            "Basic \tYTpi",
            // No colon, no padding, too much of it, stray bits, the other alphabet, and text behind it.
            "Basic YWI=",
            "Basic YTo",
            "Basic YTpi=",
            "Basic YTp=",
            "Basic YTpiYTo",
            "Basic YTr=",
            "Basic YTpi-_-_",
            "Basic YT pi",
            "Basic YTpi, x",
            "Basic YTpi YTpi",
            "Basic \"YTpi\"",
            // Control characters: `a\0:b`, and `a:\nb`.
            "Basic YQA6Yg==",
            "Basic YToKYg==",
            "Bearer t, Basic YTpi",
            "Digest realm=\"r\", Basic YTpi",
            "Digest realm=\"Basic YTpi\"",
            "Digest realm=\"Basic YTo\"",
            "x Basic YTpi",
            "Basic Basic YTpi",
        ] {
            assert_eq!(
                shown(&[line], BasicCredential::user),
                "malformed",
                "{line:?}"
            );
            assert_eq!(
                shown(&["Basic YTpi", line], BasicCredential::user),
                "malformed"
            );
        }
        for line in [
            "",
            "Bearer basic",
            "Bearer eyJh.basic.x",
            "Bearer ab+basic/x",
            "ApiKey basic-key",
            "Digest username=\"basic\", realm=\"Basic users\"",
            "Negotiate YTpi",
            "YTpi",
        ] {
            assert_eq!(shown(&[line], BasicCredential::user), "absent", "{line:?}");
        }
    }

    #[test]
    fn lines_that_differ_are_several() {
        let user = BasicCredential::user;
        let whole = BasicCredential::user_and_password;
        // `a:b` and `a:c`.
        let passwords = ["Basic YTpi", "basic  YTpj"];
        assert_eq!(shown(&passwords, user), "a");
        assert_eq!(shown(&passwords, whole), "several");
        assert_eq!(shown(&["Basic YTpi", "BASIC YTpi"], whole), "a:b");
        for other in ["Bearer t", "", "Basic Yjpi"] {
            assert_eq!(shown(&["Basic YTpi", other], user), "several", "{other}");
            assert_eq!(shown(&[other, "Basic YTpi"], user), "several", "{other}");
        }
        assert_eq!(shown(&["Bearer t", "Bearer u"], user), "absent");
    }
}

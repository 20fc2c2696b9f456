//! The subject of a certificate as one line of text (RFC 4514).

use std::fmt::Write as _;
use x509_parser::der_parser::asn1_rs::{Oid, ToDer as _};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// The attributes that have a name of their own, as RFC 4514 section 3 and OpenSSL spell them; others are numbers.
const KNOWN: [(&str, &str); 18] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// The name with its last part first (RFC 4514 section 2.1). Values that are not text, and values of attributes without
/// a name, are written as the digits of their encoding.
pub(super) fn write(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.iter().collect();
    for (at, part) in parts.into_iter().rev().enumerate() {
        if at > 0 {
            text.push(',');
        }
        for (at, attribute) in part.iter().enumerate() {
            if at > 0 {
                text.push('+');
            }
            write_attribute(&mut text, attribute);
        }
    }
    text
}

fn write_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    let known = known(attribute.attr_type());
    match known {
        Some(name) => text.push_str(name),
        None => text.push_str(&attribute.attr_type().to_id_string()),
    }
    text.push('=');
    match (known, attribute.as_str()) {
        (Some(_), Ok(value)) => escape(text, value),
        _ => {
            text.push('#');
            for byte in attribute.attr_value().to_der_vec().unwrap_or_default() {
                let _ = write!(text, "{byte:02x}");
            }
        }
    }
}

/// A subject that a person has written (RFC 4514 section 3), in the spelling of [`write`]: types of attributes in any
/// case, characters escaped in any of the allowed ways. `None` if the text is not a subject. Blanks around a type or a
/// value are not accepted: programs that write blanks often write the parts in the other order.
#[must_use]
pub fn canonical(text: &str) -> Option<String> {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once('=')?;
        let end = end_of_value(after);
        let (value, after) = after.split_at(end);
        write_written(&mut written, name, value)?;
        let Some(separator) = after.chars().next() else {
            return Some(written);
        };
        written.push(separator);
        rest = &after[separator.len_utf8()..];
    }
}

/// The end of a value: a comma or a plus sign that is not escaped, or the end of the text.
fn end_of_value(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = !is_escaped && matches!(byte, b',' | b'+');
        is_escaped = !is_escaped && byte == b'\\';
        ends
    });
    end.unwrap_or(text.len())
}

fn write_written(text: &mut String, name: &str, value: &str) -> Option<()> {
    let known = KNOWN
        .iter()
        .find(|(_, known)| known.eq_ignore_ascii_case(name));
    let is_number = name
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    match known {
        Some((_, name)) => text.push_str(name),
        None if is_number && !name.is_empty() => text.push_str(name),
        None => return None,
    }
    text.push('=');
    if let Some(digits) = value.strip_prefix('#') {
        let is_whole = digits.len() % 2 == 0 && !digits.is_empty();
        let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        text.push('#');
        text.push_str(&digits.to_ascii_lowercase());
        return (is_whole && are_digits).then_some(());
    }
    known?;
    escape(text, &unescaped(value)?);
    Some(())
}

/// A value without its escapes; `None` if an escape is malformed.
fn unescaped(value: &str) -> Option<String> {
    if value.starts_with(' ') {
        return None;
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut ends_with_blank = false;
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        ends_with_blank = *first == b' ';
        rest = match (first, after) {
            (b'\\', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default();
                plain.push(u8::try_from(digit(*high) << 4 | digit(*low)).ok()?);
                after
            }
            (b'\\', [escaped, after @ ..]) if b" \"#+,;<=>\\".contains(escaped) => {
                plain.push(*escaped);
                after
            }
            (b'\\' | b'"' | b';' | b'<' | b'>', _) => return None,
            _ => {
                plain.push(*first);
                after
            }
        };
    }
    let plain = String::from_utf8(plain).ok()?;
    (!ends_with_blank).then_some(plain)
}

fn known(oid: &Oid<'_>) -> Option<&'static str> {
    let number = oid.to_id_string();
    let found = KNOWN.iter().find(|(known, _)| *known == number);
    found.map(|(_, name)| *name)
}

/// Escapes a value (RFC 4514 section 2.4); control characters become pairs of digits, so that the text is one line.
fn escape(text: &mut String, value: &str) {
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        match c {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', c]),
            '#' if at == 0 => text.push_str("\\#"),
            ' ' if at == 0 || at == last => text.push_str("\\ "),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(text, "\\{byte:02X}");
                }
            }
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_subject_has_one_spelling() {
        for (text, spelled) in [
            ("CN=anna", Some("CN=anna")),
            ("cn=anna,o=House", Some("CN=anna,O=House")),
            ("CN=a\\2C b\\+c,OU=x", Some("CN=a\\, b\\+c,OU=x")),
            ("CN=J\\C3\\BCrg", Some("CN=Jürg")),
            ("CN=Jürg", Some("CN=Jürg")),
            ("CN=\\ a\\ ,C=DE", Some("CN=\\ a\\ ,C=DE")),
            ("CN=\\#1", Some("CN=\\#1")),
            ("CN=a\\0Ab", Some("CN=a\\0Ab")),
            ("CN=a=b", Some("CN=a=b")),
            ("CN=a+UID=b", Some("CN=a+UID=b")),
            ("1.2.3.4=#0C0161,CN=a", Some("1.2.3.4=#0c0161,CN=a")),
            ("emailaddress=a@b.test", Some("emailAddress=a@b.test")),
            ("CN=", Some("CN=")),
            // The default form of `openssl x509 -subject` and other programs.
            ("CN = anna", None),
            ("C=DE, CN=anna", None),
            ("/C=DE/CN=anna", None),
            ("subject=CN=anna", None),
            ("anna", None),
            ("", None),
            ("CN=anna,", None),
            ("X=anna", None),
            ("1.2.3=anna", None),
            ("CN=#0c016", None),
            ("CN=a\\", None),
            ("CN=a\\z", None),
            ("CN=\\ff", None),
            ("CN=\"a\"", None),
        ] {
            assert_eq!(canonical(text).as_deref(), spelled, "{text}");
        }
    }
}

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

/// The name with its last part first (RFC 4514 section 2.1). Values that are no text, and those of attributes without a
/// name, are written as the digits of their encoding.
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

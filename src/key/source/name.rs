//! Reads the name that the file writes after the word of a source. No name needs an escape in a challenge.

use super::KeyPart;
use crate::key::is_secret;
use http::HeaderName;

/// The name of a field. `*` may occur in one (RFC 9110, section 5.6.2), but is meant as a pattern, which a name cannot
/// be.
#[must_use]
pub fn field_name(text: &str) -> Option<HeaderName> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok();
    name.filter(|_| !text.contains('*'))
}

pub(super) fn header(name: &str) -> Option<KeyPart> {
    let name = field_name(name)?;
    let secret = is_secret(name.as_str());
    Some(KeyPart::Header { name, secret })
}

pub(super) fn cookie(name: &str) -> Option<KeyPart> {
    field_name(name)?;
    Some(KeyPart::Cookie(name.into()))
}

pub(super) fn query(name: &str) -> Option<KeyPart> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~[]:@$!*()".contains(c);
    name.chars().all(plain).then(|| KeyPart::Query {
        name: name.into(),
        secret: is_secret(name),
    })
}

pub(super) fn parameter(name: &str) -> Option<KeyPart> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = name.trim_matches(['{', '}', '*']);
    (!name.is_empty() && name.chars().all(plain)).then(|| KeyPart::Path(name.into()))
}

pub(super) fn claim(name: &str) -> Option<KeyPart> {
    let plain = |c: char| c.is_ascii_graphic() && !"\"\\|".contains(c);
    (name.len() <= 200 && name.chars().all(plain)).then(|| KeyPart::Jwt {
        claim: name.into(),
        secret: is_secret(name),
    })
}

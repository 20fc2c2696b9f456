//! Fields that tell servers who a client is, by what the gateway has verified: claims of believed tokens, certificates of
//! handshakes, and groups whose members have shown something that only they have.

use super::{Caller, Group, KeyPart, Memberships};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// The fields that a route's servers get about its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFields {
    /// The fields, in the file's order.
    pub fields: Vec<IdentityField>,
    /// Fields of other files' routes, which clients do not write here either.
    pub of_others: Option<FieldsOfOthers>,
    /// The groups that count as verified, in the file's order.
    pub groups: Vec<Arc<Group>>,
}

/// The fields by which routes tell servers who their clients are, as a route of one file sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldsOfOthers {
    /// Each field in the one spelling of [`same_field`], with the file whose routes alone write it, if there is only one.
    pub writers: Arc<HashMap<String, Option<usize>>>,
    /// The route's own file.
    pub own: usize,
}

impl FieldsOfOthers {
    /// Does a route of another file write the field?
    fn has(&self, name: &HeaderName) -> bool {
        let writer = self.writers.get(&same_field(name));
        writer.is_some_and(|only| *only != Some(self.own))
    }
}

/// One spelling of all names that servers may take for the same field (RFC 3875, section 4.1.18).
#[must_use]
pub fn same_field(name: &HeaderName) -> String {
    let name = name.as_str();
    name.replace(|one: char| !one.is_ascii_alphanumeric(), "-")
}

/// One field, with the template of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityField {
    /// Its name.
    pub name: HeaderName,
    /// The pieces of its value, at least one.
    pub pieces: Vec<IdentityPiece>,
}

/// A piece of such a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityPiece {
    /// This text, as the file writes it.
    Text(Arc<str>),
    /// A claim of the request's token: a text or a number.
    Claim(Arc<str>),
    /// The subject of the client's certificate, as RFC 4514 writes it.
    Subject,
    /// SHA-256 of the client's certificate, in hexadecimal digits.
    Fingerprint,
    /// The group whose tier holds for the request.
    Tier,
    /// The first group that the client is a member of.
    Group,
}

/// As the file writes it: `x-consumer = "{jwt:sub}"`.
impl fmt::Display for IdentityField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = \"", self.name)?;
        for piece in &self.pieces {
            match piece {
                IdentityPiece::Text(text) => f.write_str(text)?,
                IdentityPiece::Claim(claim) => write!(f, "{{jwt:{claim}}}")?,
                IdentityPiece::Subject => f.write_str("{tls:subject}")?,
                IdentityPiece::Fingerprint => f.write_str("{tls:fingerprint}")?,
                IdentityPiece::Tier => f.write_str("{tier}")?,
                IdentityPiece::Group => f.write_str("{group}")?,
            }
        }
        f.write_str("\"")
    }
}

impl IdentityFields {
    /// Would a server take a field of this name for one of these? CGI and what follows it make one character of all that
    /// are neither letters nor digits (RFC 3875, section 4.1.18).
    #[must_use]
    pub fn claims(&self, name: &HeaderName) -> bool {
        let mut own = self.fields.iter();
        own.any(|field| is_read_as(name.as_str(), field.name.as_str()))
            || self.of_others.as_ref().is_some_and(|all| all.has(name))
    }

    /// Removes what a client has sent in these fields, or in such as servers could take for them.
    #[cold]
    #[inline(never)]
    pub fn strip(&self, fields: &mut HeaderMap) {
        let claimed = fields.keys().filter(|name| self.claims(name));
        let claimed: Vec<HeaderName> = claimed.cloned().collect();
        for name in claimed {
            fields.remove(name);
        }
    }

    /// The value of `field` for `caller`, whose numbers are those of the groups in `tiers`; nothing where a piece of the
    /// value is not known. Bytes that are not visible ASCII, and `%`, are written `%XX`.
    pub fn value<'t>(
        &self,
        field: &IdentityField,
        caller: &Caller<'_>,
        tiers: impl Iterator<Item = &'t Arc<str>> + Clone,
    ) -> Option<HeaderValue> {
        let mut text = String::new();
        for piece in &field.pieces {
            match piece {
                IdentityPiece::Text(fixed) => text.push_str(fixed),
                IdentityPiece::Claim(claim) => {
                    if caller.identity.is_ambiguous() {
                        return None;
                    }
                    encode(&caller.identity.claim(claim)?, &mut text);
                }
                IdentityPiece::Subject => {
                    let subject = caller.certificate?.subject;
                    if subject.is_empty() {
                        return None;
                    }
                    encode(subject, &mut text);
                }
                IdentityPiece::Fingerprint => {
                    for byte in caller.certificate?.fingerprint {
                        // Writing into a text cannot fail.
                        let _ = write!(text, "{byte:02x}");
                    }
                }
                IdentityPiece::Tier => {
                    let is_verified = |name: &&Arc<str>| {
                        let mut groups = self.groups.iter();
                        groups.any(|group| group.name == **name)
                    };
                    encode(tiers.clone().find(is_verified)?, &mut text);
                }
                IdentityPiece::Group => encode(&self.group(caller)?.name, &mut text),
            }
        }
        let value = HeaderValue::try_from(text).ok();
        value.filter(|value| !value.is_empty())
    }

    /// The first group that `caller` is a member of. A request in doubt is in none.
    fn group(&self, caller: &Caller<'_>) -> Option<&Arc<Group>> {
        let (mut standing, mut room) = (Memberships::default(), Vec::new());
        let mut groups = self.groups.iter();
        groups.find(|group| standing.is_in(group, caller, &mut room, None) == Ok(true))
    }
}

impl KeyPart {
    /// Does a client that shows a member's value of this part prove by it that it is the member? A token and a
    /// certificate are proofs, and so is a secret. An address, a host or a plain field is none.
    #[must_use]
    pub fn is_proof(&self) -> bool {
        match self {
            Self::Jwt { .. } | Self::TlsSubject | Self::TlsFingerprint | Self::Cookie(_) => true,
            Self::Header { secret, .. } | Self::Query { secret, .. } => *secret,
            Self::Ip(_) | Self::Path(_) | Self::Method | Self::Host | Self::Route => false,
        }
    }
}

/// Is `name` the same as `field`, a lower-case name, where all that are neither letters nor digits are one character?
fn is_read_as(name: &str, field: &str) -> bool {
    let is_same = |(one, other): (u8, u8)| {
        one.eq_ignore_ascii_case(&other)
            || !(one.is_ascii_alphanumeric() || other.is_ascii_alphanumeric())
    };
    name.len() == field.len() && name.bytes().zip(field.bytes()).all(is_same)
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            out.push(char::from(byte));
        } else {
            // Writing into a text cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_field_could_have_is_escaped() {
        let mut out = String::new();
        encode("a b%é\r\n{\"~", &mut out);
        assert_eq!(out, "a%20b%25%C3%A9%0D%0A{\"~");
    }

    #[test]
    fn names_that_servers_confuse_are_one() {
        for (name, is_same) in [
            ("x-consumer", true),
            ("x_consumer", true),
            ("x.consumer", true),
            ("x-consumers", false),
            ("xaconsumer", false),
        ] {
            assert_eq!(is_read_as(name, "x-consumer"), is_same, "{name}");
        }
    }
}

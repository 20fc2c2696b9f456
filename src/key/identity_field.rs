//! Fields that identify a client to servers, by facts that the gateway has verified: claims of trusted tokens,
//! certificates of handshakes, and groups whose members have shown a secret or another proof.

use super::{Caller, Group, Memberships};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// The fields in which a route's servers learn about its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFields {
    /// The fields, in the file's order.
    pub fields: Vec<IdentityField>,
    /// Fields of other files' routes, which clients must not send here either.
    pub of_others: Option<FieldsOfOthers>,
    /// The groups that count as verified, in the file's order.
    pub groups: Vec<Arc<Group>>,
}

/// The fields by which routes of all files identify clients to servers, as seen from one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldsOfOthers {
    /// The writers in all files.
    pub writers: Arc<FieldWriters>,
    /// The route's own file.
    pub home_file: usize,
}

/// The files that write each field. The lookup of a field with a usual name allocates no memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FieldWriters {
    /// Each field in the normal form of [`same_field`], with the file whose routes alone write it, if there is only
    /// one.
    fields: HashMap<String, Option<usize>>,
    /// The bytes of the longest name.
    longest: usize,
}

impl FieldWriters {
    /// Fields in the normal form of [`same_field`], each with the file whose routes alone write it, if there is only
    /// one.
    #[must_use]
    pub fn of(fields: HashMap<String, Option<usize>>) -> Self {
        let longest = fields.keys().map(String::len).max().unwrap_or(0);
        Self { fields, longest }
    }

    /// Does no route write a field?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    fn writer(&self, name: &HeaderName) -> Option<&Option<usize>> {
        let name = name.as_str();
        if name.len() > self.longest {
            return None;
        }
        let spelled: SmallVec<[u8; 64]> = name.bytes().map(one_spelling).collect();
        self.fields.get(str::from_utf8(&spelled).ok()?)
    }
}

impl FieldsOfOthers {
    /// Does a route of another file write the field?
    fn has(&self, name: &HeaderName) -> bool {
        let writer = self.writers.writer(name);
        writer.is_some_and(|only| *only != Some(self.home_file))
    }
}

/// One normal form of all names that servers may take for the same field (RFC 3875, section 4.1.18).
#[must_use]
pub fn same_field(name: &HeaderName) -> String {
    let bytes = name.as_str().bytes().map(one_spelling);
    bytes.map(char::from).collect()
}

/// One character for all bytes that are neither letters nor digits.
fn one_spelling(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() {
        byte
    } else {
        b'-'
    }
}

/// One field, with the template of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityField {
    /// Its name.
    pub name: HeaderName,
    /// The pieces of its value, at least one.
    pieces: Vec<IdentityPiece>,
    escaped: EscapedBytes,
}

/// A piece of such a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityPiece {
    /// Literal text of the file.
    Text(Arc<str>),
    /// A claim of the request's token: a text or a number.
    Claim(Arc<str>),
    /// The subject of the client's certificate, as RFC 4514 writes it.
    Subject,
    /// SHA-256 of the client's certificate, in hexadecimal digits.
    Fingerprint,
    /// The group whose tier applies to the request.
    Tier,
    /// The first group that the client is a member of.
    Group,
    /// The customer whose credential the request has.
    Customer,
}

/// Bytes of ASCII that are escaped in the values of one template: the bytes of the template's own text, and the
/// separator of lists, never occur in a value. Letters and digits of the text are not escaped, and separate nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EscapedBytes(u128);

impl IdentityField {
    /// The field of this name, with the template of its value.
    #[must_use]
    pub fn new(name: HeaderName, pieces: Vec<IdentityPiece>) -> Self {
        Self {
            name,
            escaped: EscapedBytes::of(&pieces),
            pieces,
        }
    }

    /// The pieces of its value, at least one.
    #[must_use]
    pub fn pieces(&self) -> &[IdentityPiece] {
        &self.pieces
    }
}

impl EscapedBytes {
    fn of(pieces: &[IdentityPiece]) -> Self {
        let mut all = Self(1 << b'%' | 1 << b',');
        for piece in pieces {
            if let IdentityPiece::Text(text) = piece {
                text.bytes().for_each(|byte| all.add(byte));
            }
        }
        all
    }

    fn add(&mut self, byte: u8) {
        if byte.is_ascii() && !byte.is_ascii_alphanumeric() {
            self.0 |= 1 << byte;
        }
        // Inside of quotes its meaning would depend on the next quote.
        if byte == b'"' {
            self.0 |= 1 << b'\\';
        }
    }

    fn has(self, byte: u8) -> bool {
        byte.is_ascii() && self.0 >> byte & 1 == 1
    }
}

impl IdentityPiece {
    /// Could a reader find the end of a value before this piece? Letters and digits may be part of the value itself,
    /// and `%` begins an escaped byte there.
    #[must_use]
    pub fn ends_a_value(&self) -> bool {
        let ends = |byte: u8| !byte.is_ascii_alphanumeric() && byte != b'%';
        matches!(self, Self::Text(text) if text.bytes().any(ends))
    }
}

/// As the file writes it: `{jwt:sub}`.
impl fmt::Display for IdentityPiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Claim(claim) => write!(f, "{{jwt:{claim}}}"),
            Self::Subject => f.write_str("{tls:subject}"),
            Self::Fingerprint => f.write_str("{tls:fingerprint}"),
            Self::Tier => f.write_str("{tier}"),
            Self::Group => f.write_str("{group}"),
            Self::Customer => f.write_str("{customer}"),
        }
    }
}

/// As the file writes it: `x-consumer = "{jwt:sub}"`.
impl fmt::Display for IdentityField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = \"", self.name)?;
        self.pieces.iter().try_for_each(|piece| piece.fmt(f))?;
        f.write_str("\"")
    }
}

impl IdentityFields {
    /// Would a server treat a field of this name as one of these? CGI and its successors replace every character that
    /// is neither a letter nor a digit by one character (RFC 3875, section 4.1.18).
    #[must_use]
    pub fn claims(&self, name: &HeaderName) -> bool {
        let mut known = self.fields.iter();
        known.any(|field| is_read_as(name.as_str(), field.name.as_str()))
            || self.of_others.as_ref().is_some_and(|all| all.has(name))
    }

    /// Removes a client's fields of these names, or of names that servers could take for them, and reports each name.
    #[cold]
    #[inline(never)]
    pub fn strip(&self, fields: &mut HeaderMap, mut report: impl FnMut(&HeaderName)) {
        let claimed = fields.keys().filter(|name| self.claims(name));
        let claimed: Vec<HeaderName> = claimed.cloned().collect();
        for name in claimed {
            if fields.remove(&name).is_some() {
                report(&name);
            }
        }
    }

    /// The value of `field` for `caller`, whose limits use the numbers of the groups in `tiers`; `None` if a piece of
    /// the value is unknown. In an inserted value `%XX` replaces bytes that are not visible ASCII, `%` and `,`, and
    /// every byte of the template's own text except letters and digits, so that no value can be read as the text around
    /// it.
    pub fn value<'t>(
        &self,
        field: &IdentityField,
        caller: &Caller<'_>,
        tiers: impl Iterator<Item = &'t Arc<str>> + Clone,
    ) -> Option<HeaderValue> {
        let mut text = String::new();
        let escaped = field.escaped;
        for piece in &field.pieces {
            match piece {
                IdentityPiece::Text(fixed) => text.push_str(fixed),
                IdentityPiece::Claim(claim) => {
                    if caller.identity.is_ambiguous() {
                        return None;
                    }
                    encode(&caller.identity.claim(claim)?, escaped, &mut text);
                }
                IdentityPiece::Subject => {
                    let subject = caller.certificate?.subject;
                    if subject.is_empty() {
                        return None;
                    }
                    encode(subject, escaped, &mut text);
                }
                IdentityPiece::Fingerprint => {
                    for byte in caller.certificate?.fingerprint {
                        // Writing into a text cannot fail.
                        let _ = write!(text, "{byte:02x}");
                    }
                }
                IdentityPiece::Tier => {
                    let is_verified = |name: &&Arc<str>| {
                        let group = self.groups.iter().find(|group| group.name == **name);
                        group.is_some_and(|group| has_proved(group, caller))
                    };
                    encode(tiers.clone().find(is_verified)?, escaped, &mut text);
                }
                IdentityPiece::Group => {
                    encode(&self.group(caller)?.name, escaped, &mut text);
                }
                IdentityPiece::Customer => {
                    let is_proven = caller.is_proven_customer(&mut Vec::new());
                    let name = caller.customers.name().filter(|_| is_proven)?;
                    encode(name, escaped, &mut text);
                }
            }
        }
        let value = HeaderValue::try_from(text).ok();
        value.filter(|value| !value.is_empty())
    }

    /// The first group that `caller` is a member of. A request in doubt is a member of none.
    fn group(&self, caller: &Caller<'_>) -> Option<&Arc<Group>> {
        let (mut standing, mut room) = (Memberships::default(), Vec::new());
        let mut groups = self.groups.iter();
        groups.find(|group| standing.is_proven(group, caller, &mut room))
    }
}

/// Has `caller`, a member of the group, proved the membership? The part that a group without names goes by is a proof.
fn has_proved(group: &Group, caller: &Caller<'_>) -> bool {
    group.named().is_none() || Memberships::default().is_proven(group, caller, &mut Vec::new())
}

/// Is `name` the same as `field`, a lower-case name, if all characters other than letters and digits are equal?
fn is_read_as(name: &str, field: &str) -> bool {
    let is_same = |(one, other): (u8, u8)| {
        one.eq_ignore_ascii_case(&other)
            || !(one.is_ascii_alphanumeric() || other.is_ascii_alphanumeric())
    };
    name.len() == field.len() && name.bytes().zip(field.bytes()).all(is_same)
}

fn encode(text: &str, escaped: EscapedBytes, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !escaped.has(byte) {
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

    fn template(text: &str) -> EscapedBytes {
        EscapedBytes::of(&[IdentityPiece::Text(text.into()), IdentityPiece::Tier])
    }

    fn encoded(value: &str, escaped: EscapedBytes) -> String {
        let mut out = String::new();
        encode(value, escaped, &mut out);
        out
    }

    #[test]
    fn what_no_field_could_have_is_escaped() {
        for (text, value, written) in [
            ("", "a b%é\r\n{\"~,:", "a%20b%25%C3%A9%0D%0A{\"~%2C:"),
            ("role=user,sub=", "bob,role=admin", "bob%2Crole%3Dadmin"),
            ("user/", "a/b:user", "a%2Fb:user"),
            ("sub=\"", "a\\\"", "a%5C%22"),
            ("(", "a\\)", "a\\)"),
        ] {
            assert_eq!(encoded(value, template(text)), written, "{text}");
        }
    }

    /// No two pairs of values give one text, for any text between them.
    #[test]
    fn values_are_told_apart() {
        let letters = ["a", "2", "0", "C", "%", ",", ":", "-", "\"", "\\", "=", " "];
        let pairs = letters
            .iter()
            .flat_map(|one| letters.map(|two| format!("{one}{two}")));
        let values: Vec<String> = pairs.chain(letters.map(str::to_owned)).collect();
        for between in [":", ",", "a:", ":a", "::", "-", "%:2", ", sub=\"", " "] {
            assert!(IdentityPiece::Text(between.into()).ends_a_value());
            let escaped = template(between);
            let mut seen = std::collections::HashSet::new();
            for (one, other) in values
                .iter()
                .flat_map(|one| values.iter().map(move |other| (one, other)))
            {
                let (one, other) = (encoded(one, escaped), encoded(other, escaped));
                let written = format!("{one}{between}{other}");
                assert!(seen.insert(written), "{one}{between}{other}");
            }
        }
        for between in ["", "a", "2", "%", "%20", "a%"] {
            assert!(!IdentityPiece::Text(between.into()).ends_a_value());
        }
    }

    #[test]
    fn fields_of_other_files_are_found_in_any_spelling() {
        let fields = [
            ("x-consumer", Some(1)),
            ("x-tenant", None),
            ("x-own", Some(2)),
        ];
        let fields = fields.map(|(name, only)| (name.to_owned(), only));
        let all = FieldsOfOthers {
            writers: Arc::new(FieldWriters::of(HashMap::from(fields))),
            home_file: 2,
        };
        for (name, is_others) in [
            ("x-consumer", true),
            ("x.consumer", true),
            ("x_tenant", true),
            ("x-own", false),
            ("x-consumers", false),
            ("accept", false),
        ] {
            assert_eq!(all.has(&HeaderName::from_static(name)), is_others, "{name}");
        }
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

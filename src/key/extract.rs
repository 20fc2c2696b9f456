//! Writes the key of a request: parts framed so that no value can imitate another.
//!
//! A value keeps the characters `A-Z a-z 0-9 . _ ~ : / @ -`; every other byte becomes `%XX`. Parts are separated by
//! `|`, which no value can contain, and everything that is not a plain value starts with `%` and a small letter
//! beyond the hexadecimal ones, which no escape does: `%ip=` (counted by address instead), `%none` (absent), `%other` (a
//! method that hardly anybody knows), `%preflight` (in front of the parts), `%sha=` (a digest). An absent field and an empty one are the same.

use super::address::Spelled;
use super::cookie::Cookies;
use super::preflight::PREFLIGHT;
use super::token::NoToken;
use super::{
    Content, Digest, Group, KeyTemplate, Known, Mask, Missing, Part, Unknown, credential, digest,
    query,
};
use http::{HeaderMap, HeaderName, Method};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;

/// What of a request a key can be made of.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The client's address, after trusted hops.
    pub address: IpAddr,
    /// The name of the route that matched.
    pub route: &'a str,
    /// The request's method.
    pub method: &'a Method,
    /// The request's fields.
    pub fields: &'a HeaderMap,
    /// Where the request goes; asked only by limits that count by it.
    pub location: &'a dyn Location,
    /// Its cookies.
    pub cookies: &'a Cookies<'a>,
    /// What is known of who asks; asked only where a group is looked at.
    pub identity: &'a dyn Identity,
    /// What is known of its body.
    pub content: Content,
}

/// What is known of who asks, beside what the request itself says.
pub trait Identity: fmt::Debug {
    /// The claim of this name in its token, if that is verified: a text or a number.
    fn claim(&self, _name: &str) -> Option<Cow<'_, str>> {
        None
    }

    /// What the claim of this name lists, if it is a list: `each` is told of every entry.
    fn listed(&self, _name: &str, _each: &mut dyn FnMut(&str)) {}

    /// Has it several tokens that differ? Nobody knows which of them the upstream believes.
    fn is_ambiguous(&self) -> bool {
        false
    }

    /// Why its token is not believed, if it has one that is not: whoever reads it otherwise may believe it.
    fn doubt(&self) -> Option<NoToken> {
        None
    }

    /// Has somebody who saw the whole request found it in the group of this name? A log may say so.
    fn is_told(&self, _group: &str) -> bool {
        false
    }
}

/// Nothing is known.
#[derive(Debug, Clone, Copy)]
pub struct NoIdentity;

impl Identity for NoIdentity {}

/// What a request is for, in the spelling that routes are matched in.
pub trait Location: fmt::Debug {
    /// The host, empty when the request names none.
    fn host(&self) -> Cow<'_, str>;

    /// What the parameter of this name in the route's path took. Nothing when the route has no such parameter.
    fn parameter(&self, name: &str) -> Option<Cow<'_, str>>;

    /// The path in its normal form. Nothing when it has none.
    fn path(&self) -> Option<Cow<'_, str>>;

    /// The query, as it came.
    fn query(&self) -> Option<&str>;
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// It has been written.
    Key,
    /// The limit does not apply to this request.
    Skip,
    /// This part is absent and the limit demands it.
    Refuse(&'a Part),
    /// Nobody knows what this part says, and the limit takes only what is known.
    Unknown(&'a Part),
    /// Nobody can say what the upstream takes the request to say.
    Doubt(Doubt<'a>),
}

/// What an upstream may read otherwise than this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt<'a> {
    /// This part came several times and differs.
    Several(&'a Part),
    /// This part is claimed by a token that is not believed.
    Unbelieved(&'a Part),
}

/// What a request says of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// One thing, and it has been written.
    One,
    /// Nothing.
    Nothing,
    /// Several things.
    Several,
    /// Something that is not believed.
    Unbelieved,
}

impl KeyTemplate {
    /// Can a request lack what this counts by? Then `missing` is a required choice.
    #[must_use]
    pub fn can_be_absent(&self) -> bool {
        self.parts.iter().any(Part::can_be_absent)
    }

    /// Appends the key of `caller` to `out`. What is there already stays; on anything but `Key` nothing is added.
    pub fn write(&self, caller: &Caller<'_>, out: &mut Vec<u8>) -> Found<'_> {
        let start = out.len();
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                out.push(b'|');
            }
            let at = out.len();
            let said = write_part(part, caller, out);
            let missing = match (said, part) {
                (Said::One, _) => {
                    match &self.unknown {
                        Some(known) if !known.has(index, &out[at..]) => match known.otherwise {
                            Unknown::Ip => {
                                out.truncate(at);
                                write_address(caller, out);
                            }
                            Unknown::Refuse => {
                                out.truncate(start);
                                return Found::Unknown(part);
                            }
                        },
                        _ => {}
                    }
                    continue;
                }
                // Who is somebody to the upstream is not let go as nobody.
                (Said::Nothing, _)
                    if self.missing == Missing::Skip && is_elsewhere(part, caller) =>
                {
                    Missing::Ip
                }
                (Said::Nothing, _) => self.missing,
                (Said::Unbelieved, _) => {
                    out.truncate(start);
                    return Found::Doubt(Doubt::Unbelieved(part));
                }
                // Browsers send cookies of one name that were set for several paths: no reason to turn anybody away, nor
                // to let go whom the limit would hold.
                (Said::Several, Part::Cookie(_)) if self.missing == Missing::Skip => Missing::Ip,
                (Said::Several, Part::Cookie(_)) => self.missing,
                (Said::Several, _) => {
                    out.truncate(start);
                    return Found::Doubt(Doubt::Several(part));
                }
            };
            match missing {
                Missing::Shared => out.extend_from_slice(b"%none"),
                Missing::Ip => write_address(caller, out),
                Missing::Skip => {
                    out.truncate(start);
                    return Found::Skip;
                }
                Missing::Refuse => {
                    out.truncate(start);
                    return Found::Refuse(part);
                }
            }
        }
        Found::Key
    }

    /// Makes of a key that was written elsewhere, and stands in `out` from `start` on, the one that counts here: values
    /// that nobody knows give way to the client's address, or are refused. On anything but `Key` the key is gone.
    pub fn recognise(&self, caller: &Caller<'_>, out: &mut Vec<u8>, start: usize) -> Found<'_> {
        let Some(known) = &self.unknown else {
            return Found::Key;
        };
        if out[start..].starts_with(PREFLIGHT) {
            return Found::Key;
        }
        let written = out.split_off(start);
        for (index, piece) in written.split(|byte| *byte == b'|').enumerate() {
            if index > 0 {
                out.push(b'|');
            }
            let is_known = match piece_digest(piece) {
                Some(_) => known.has(index, piece),
                // Counted by address: for want of a value, where that is said to be so, else for an unknown one.
                None => !piece.starts_with(BY_ADDRESS) || self.missing == Missing::Ip,
            };
            match (is_known, known.otherwise, self.parts.get(index)) {
                (false, Unknown::Refuse, Some(part)) => {
                    out.truncate(start);
                    return Found::Unknown(part);
                }
                (false, Unknown::Ip, _) => write_address(caller, out),
                _ => out.extend_from_slice(piece),
            }
        }
        Found::Key
    }
}

impl Known {
    /// Is this value of that part one that a group knows, or one that need not be known?
    fn has(&self, part: usize, piece: &[u8]) -> bool {
        let groups = self.groups.get(part).map_or(&[][..], Vec::as_slice);
        let known = |digest| groups.iter().any(|group| group.has(&digest));
        groups.is_empty() || piece_digest(piece).is_some_and(known)
    }
}

/// The digest of the value that a part of a key stands for; nothing where it stands for none.
pub(super) fn piece_digest(piece: &[u8]) -> Option<Digest> {
    let hex = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let pair = |pair: &[u8]| Some(hex(*pair.first()?)? << 4 | hex(*pair.get(1)?)?);
    if let Some(digits) = piece.strip_prefix(b"%sha=") {
        let mut digest = Digest::default();
        if digits.len() != 2 * digest.len() {
            return None;
        }
        for (byte, digits) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair(digits)?;
        }
        return Some(digest);
    }
    let mut value: SmallVec<[u8; 64]> = SmallVec::new();
    let mut rest = piece;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'%' => {
                value.push(pair(rest.get(..2)?)?);
                rest = &rest[2..];
            }
            byte => value.push(byte),
        }
    }
    (!value.is_empty()).then(|| Group::digest(&value))
}

/// How a part begins that is counted by address instead.
const BY_ADDRESS: &[u8] = b"%ip=";

pub(super) fn write_address(caller: &Caller<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(BY_ADDRESS);
    write_ip(Mask::DEFAULT, caller.address, out);
}

/// Writes what the request says of `part`, if that is one thing.
pub(super) fn write_part(part: &Part, caller: &Caller<'_>, out: &mut Vec<u8>) -> Said {
    match part {
        Part::Ip(mask) => write_ip(*mask, caller.address, out),
        Part::Route => write_value(caller.route.as_bytes(), false, out),
        Part::Header { name, secret } => return write_field(caller.fields, name, *secret, out),
        Part::Cookie(name) => return write_several(caller.cookies.values(name), true, out),
        Part::Query { name, secret } => {
            let query = caller.location.query().unwrap_or_default();
            return write_several(query::values(query, name), *secret, out);
        }
        Part::Path(name) => {
            let taken = caller.location.parameter(name).unwrap_or_default();
            write_value(taken.as_bytes(), false, out);
        }
        Part::Jwt { .. } if caller.identity.is_ambiguous() => return Said::Several,
        Part::Jwt { claim, secret } => {
            let claim = caller.identity.claim(claim);
            return match &claim {
                Some(claim) => write_several(std::iter::once(claim.as_bytes()), *secret, out),
                None if caller.identity.doubt().is_some() => Said::Unbelieved,
                None => Said::Nothing,
            };
        }
        Part::Method => write_method(caller.method, out),
        Part::Host => write_value(caller.location.host().as_bytes(), false, out),
    }
    Said::One
}

/// The methods that anybody knows; all others are one, or whoever invents methods would have as many counters.
fn write_method(method: &Method, out: &mut Vec<u8>) {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::DELETE
        | Method::PATCH
        | Method::OPTIONS
        | Method::TRACE
        | Method::CONNECT => out.extend_from_slice(method.as_str().as_bytes()),
        _ => out.extend_from_slice(b"%other"),
    }
}

/// Would the upstream find there what this gateway does not?
fn is_elsewhere(part: &Part, caller: &Caller<'_>) -> bool {
    match part {
        Part::Query { name, .. } => {
            let query = caller.location.query().unwrap_or_default();
            query::is_read_elsewhere(query, name)
        }
        Part::Cookie(name) => caller.cookies.are_read_elsewhere(name),
        _ => false,
    }
}

fn write_ip(mask: Mask, address: IpAddr, out: &mut Vec<u8>) {
    let network = mask.apply(address);
    let (bits, whole) = match network {
        IpAddr::V4(_) => (mask.v4, 32),
        IpAddr::V6(_) => (mask.v6, 128),
    };
    out.extend_from_slice(Spelled::of(network).as_bytes());
    if bits < whole {
        // Writing into a vector cannot fail.
        let _ = write!(out, "/{bits}");
    }
}

/// The value of a field, which may come on several lines.
fn write_field(fields: &HeaderMap, name: &HeaderName, secret: bool, out: &mut Vec<u8>) -> Said {
    let lines = fields.get_all(name).iter().map(http::HeaderValue::as_bytes);
    match credential::is_in(name) {
        true => write_several(lines.map(credential::spelled), secret, out),
        false => write_several(lines.map(credential::trim), secret, out),
    }
}

/// What came several times with one value came once. With several values it could be told in as many ways as a client
/// likes, and each would have a counter of its own, while the upstream believes one of them all the time.
fn write_several<V: AsRef<[u8]>>(
    mut values: impl Iterator<Item = V>,
    secret: bool,
    out: &mut Vec<u8>,
) -> Said {
    let Some(first) = values.next() else {
        return Said::Nothing;
    };
    let value = first.as_ref();
    if values.any(|other| other.as_ref() != value) {
        return Said::Several;
    }
    if value.is_empty() {
        return Said::Nothing;
    }
    write_value(value, secret, out);
    Said::One
}

/// As it is where it may be, else its digest.
fn write_value(value: &[u8], secret: bool, out: &mut Vec<u8>) {
    let start = out.len();
    if !secret {
        escape(value, out);
    }
    if secret || out.len() - start > digest::LONGEST {
        out.truncate(start);
        out.extend_from_slice(b"%sha=");
        digest::append(value, out);
    }
}

/// Bytes that stay as they are.
const KEPT: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric()
            || matches!(byte as u8, b'.' | b'_' | b'~' | b':' | b'/' | b'@' | b'-');
        byte += 1;
    }
    table
};

fn escape(value: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut rest = value;
    loop {
        let run = rest.iter().position(|byte| !KEPT[usize::from(*byte)]);
        let (kept, behind) = rest.split_at(run.unwrap_or(rest.len()));
        out.extend_from_slice(kept);
        let Some((&byte, behind)) = behind.split_first() else {
            return;
        };
        let digits = [byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]);
        out.extend_from_slice(&[b'%', digits[0], digits[1]]);
        rest = behind;
    }
}

#[cfg(test)]
mod tests;

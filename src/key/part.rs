//! Writes one part of a key, and reads the value from a written part.

mod key_case;

pub use key_case::KeyCase;
pub(super) use key_case::write_logged;

use super::address::AddressText;
use super::credential::basic::{BasicCredential, BasicReading, read_basic};
use super::{
    Caller, CustomerReading, Digest, DigestText, KeyPart, Mask, credential, digest, percent, query,
};
use crate::client::UNIX;
use http::{HeaderMap, HeaderName, Method};
use smallvec::SmallVec;
use std::io::Write as _;
use std::net::IpAddr;

/// The result of reading one part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartReading {
    /// One value, which has been written.
    One,
    /// No value.
    Nothing,
    /// Several values.
    Several,
    /// A value that cannot be read in one way only.
    Malformed,
    /// An untrusted value.
    Untrusted,
    /// A credential that no group knows, where its customer is looked for.
    Unknown,
}

/// The beginning of a certificate's subject, before the digest of its authorities and `:`.
const SUBJECT: &[u8] = b"%tls=";

/// The digest of the value in a written part of a key; `None` if the part has no value.
pub(super) fn piece_digest(piece: &[u8]) -> Option<Digest> {
    if let Some(digest) = DigestText::read(piece) {
        return Some(digest);
    }
    if let Some(rest) = piece.strip_prefix(SUBJECT) {
        let colon = rest.iter().position(|byte| *byte == b':')?;
        return piece_digest(&rest[colon + 1..]);
    }
    let mut value: SmallVec<[u8; 64]> = SmallVec::new();
    let mut rest = piece;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'%' => {
                value.push(percent::byte(rest)?);
                rest = &rest[2..];
            }
            byte => value.push(byte),
        }
    }
    (!value.is_empty()).then(|| digest::value_digest(&value))
}

/// The prefix of a part that is counted by address instead.
pub(super) const BY_ADDRESS: &[u8] = b"%ip=";

pub(super) fn write_address(caller: &Caller<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(BY_ADDRESS);
    write_ip(Mask::DEFAULT, caller.address, out);
}

/// Writes the request's value of `part` as `case` counts it, if there is exactly one. Names of routes and methods have
/// one spelling.
pub(super) fn write_part(
    part: &KeyPart,
    case: KeyCase,
    caller: &Caller<'_>,
    out: &mut Vec<u8>,
) -> PartReading {
    match part {
        KeyPart::Ip(mask) => write_ip(*mask, caller.address, out),
        KeyPart::Route => write_value(caller.route.as_bytes(), false, out),
        KeyPart::Header { name, secret } => {
            return write_field(caller.fields, name, case, *secret, out);
        }
        KeyPart::Cookie(name) => {
            return write_several(caller.cookies.values(name), case, true, out);
        }
        KeyPart::Query { name, secret } => {
            let query = caller.location.query().unwrap_or_default();
            return write_several(query::values(query, name), case, *secret, out);
        }
        KeyPart::Path(name) => {
            let taken = caller.location.parameter(name).unwrap_or_default();
            if case == KeyCase::Insensitive {
                let decoded = percent::decode(taken.as_bytes());
                write_value(&case.text(decoded.into()), false, out);
            } else {
                write_value(taken.as_bytes(), false, out);
            }
        }
        KeyPart::Jwt { .. } if caller.identity.is_ambiguous() => return PartReading::Several,
        KeyPart::Jwt { claim, secret } => {
            let claim = caller.identity.claim(claim);
            return match &claim {
                Some(claim) => write_several(std::iter::once(claim.as_bytes()), case, *secret, out),
                None if caller.identity.doubt().is_some() => PartReading::Untrusted,
                None => PartReading::Nothing,
            };
        }
        KeyPart::TlsSubject | KeyPart::TlsFingerprint => {
            return write_certificate(part, case, caller, out);
        }
        KeyPart::BasicUser | KeyPart::Basic => return write_basic(part, case, caller, out),
        KeyPart::Customer => return write_customer(case, caller, out),
        KeyPart::Method => write_method(caller.method, out),
        KeyPart::Host => write_value(caller.location.host().as_bytes(), false, out),
    }
    PartReading::One
}

/// Writes the name of the customer whose credential the request has.
fn write_customer(case: KeyCase, caller: &Caller<'_>, out: &mut Vec<u8>) -> PartReading {
    let customers = caller.customers;
    match customers.read(caller, out) {
        CustomerReading::Named { .. } => {
            let name = customers.name().unwrap_or_default();
            write_value(&case.text(name.as_bytes().into()), false, out);
            PartReading::One
        }
        CustomerReading::Nothing => PartReading::Nothing,
        CustomerReading::Unknown(_) => PartReading::Unknown,
        CustomerReading::Several(_) | CustomerReading::Different => PartReading::Several,
        CustomerReading::Malformed(_) => PartReading::Malformed,
        CustomerReading::Untrusted(_) => PartReading::Untrusted,
    }
}

/// Writes the user of a Basic credential, or the digest of the user with the password.
fn write_basic(
    part: &KeyPart,
    case: KeyCase,
    caller: &Caller<'_>,
    out: &mut Vec<u8>,
) -> PartReading {
    let is_secret = *part == KeyPart::Basic;
    let value = if is_secret {
        BasicCredential::user_and_password
    } else {
        BasicCredential::user
    };
    match read_basic(caller.fields, value) {
        BasicReading::One(credential) => {
            let value = std::iter::once(value(&credential));
            write_several(value, case, is_secret, out)
        }
        BasicReading::Absent => PartReading::Nothing,
        BasicReading::Malformed => PartReading::Malformed,
        BasicReading::Several => PartReading::Several,
    }
}

/// Writes the value of `part` from the client's certificate. A subject follows a digest of the authorities that may
/// issue it: other authorities could issue the same subject.
#[cold]
fn write_certificate(
    part: &KeyPart,
    case: KeyCase,
    caller: &Caller<'_>,
    out: &mut Vec<u8>,
) -> PartReading {
    let Some(shown) = &caller.certificate else {
        return PartReading::Nothing;
    };
    if *part == KeyPart::TlsFingerprint {
        for byte in shown.fingerprint {
            // Writing into a vector cannot fail.
            let _ = write!(out, "{byte:02x}");
        }
        return PartReading::One;
    }
    if shown.subject.is_empty() {
        return PartReading::Nothing;
    }
    out.extend_from_slice(SUBJECT);
    for byte in &shown.authorities[..size_of::<Digest>()] {
        let _ = write!(out, "{byte:02x}");
    }
    out.push(b':');
    write_value(&case.text(shown.subject.as_bytes().into()), false, out);
    PartReading::One
}

/// The known methods. All others count as one, since a client that invents methods would otherwise have as many
/// counters.
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

/// Would the upstream find a value of the part that this gateway does not find?
pub(super) fn is_elsewhere(part: &KeyPart, caller: &Caller<'_>) -> bool {
    match part {
        KeyPart::Query { name, .. } => {
            let query = caller.location.query().unwrap_or_default();
            query::is_read_elsewhere(query, name)
        }
        KeyPart::Cookie(name) => caller.cookies.are_read_elsewhere(name),
        KeyPart::Customer => {
            let customers = caller.customers;
            customers.are_elsewhere(&|part| is_elsewhere(part, caller))
        }
        _ => false,
    }
}

fn write_ip(mask: Mask, address: Option<IpAddr>, out: &mut Vec<u8>) {
    let Some(address) = address else {
        return out.extend_from_slice(UNIX.as_bytes());
    };
    let network = mask.apply(address);
    let (bits, whole) = match network {
        IpAddr::V4(_) => (mask.v4, 32),
        IpAddr::V6(_) => (mask.v6, 128),
    };
    out.extend_from_slice(AddressText::of(network).as_bytes());
    if bits < whole {
        // Writing into a vector cannot fail.
        let _ = write!(out, "/{bits}");
    }
}

/// The value of a field, which may have several lines.
fn write_field(
    fields: &HeaderMap,
    name: &HeaderName,
    case: KeyCase,
    secret: bool,
    out: &mut Vec<u8>,
) -> PartReading {
    let lines = fields.get_all(name).iter().map(http::HeaderValue::as_bytes);
    if credential::is_in(name) {
        write_several(lines.map(credential::spelled), case, secret, out)
    } else {
        write_several(lines.map(credential::trim), case, secret, out)
    }
}

/// Joins equal values into one. Several different values could be interpreted in as many ways as a client likes. Each
/// interpretation would have a counter of its own, while the upstream always uses one value.
fn write_several<V: AsRef<[u8]>>(
    values: impl Iterator<Item = V>,
    case: KeyCase,
    secret: bool,
    out: &mut Vec<u8>,
) -> PartReading {
    if case == KeyCase::Sensitive {
        return write_equal(values, secret, out);
    }
    let texts = values.map(|value| case.text(value.as_ref().into()).into_owned());
    write_equal(texts, secret, out)
}

fn write_equal<V: AsRef<[u8]>>(
    mut values: impl Iterator<Item = V>,
    secret: bool,
    out: &mut Vec<u8>,
) -> PartReading {
    let Some(first) = values.next() else {
        return PartReading::Nothing;
    };
    let value = first.as_ref();
    if values.any(|other| other.as_ref() != value) {
        return PartReading::Several;
    }
    if value.is_empty() {
        return PartReading::Nothing;
    }
    write_value(value, secret, out);
    PartReading::One
}

/// Writes a value unchanged if that is allowed, else its digest.
fn write_value(value: &[u8], secret: bool, out: &mut Vec<u8>) {
    let start = out.len();
    if !secret {
        escape(value, out);
    }
    if secret || out.len() - start > digest::LONGEST {
        out.truncate(start);
        let digest = digest::cache::digest(value, digest::value_digest);
        out.extend_from_slice(DigestText::of(digest).as_bytes());
    }
}

/// Bytes that stay unchanged.
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
    let mut rest = value;
    loop {
        let run = rest.iter().position(|byte| !KEPT[usize::from(*byte)]);
        let (kept, behind) = rest.split_at(run.unwrap_or(rest.len()));
        out.extend_from_slice(kept);
        let Some((&byte, behind)) = behind.split_first() else {
            return;
        };
        out.extend_from_slice(&percent::escape(byte));
        rest = behind;
    }
}

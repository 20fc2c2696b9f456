//! Writes the key of a request: parts framed so that no value can imitate another.
//!
//! A value keeps the characters `A-Z a-z 0-9 . _ ~ : / @ -`; every other byte becomes `%XX`. Parts are separated by
//! `|`, which no value can contain, and everything that is not a plain value starts with `%` and a small letter
//! beyond the hexadecimal ones, which no escape does: `%ip=` (counted by address instead), `%none` (absent), `%sha=` (a
//! digest). An absent field and an empty one are the same.

use super::address::Spelled;
use super::{KeyTemplate, Mask, Missing, Part, digest};
use http::{HeaderMap, HeaderName};
use std::io::Write as _;
use std::net::IpAddr;

/// What of a request a key can be made of.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The client's address, after trusted hops.
    pub address: IpAddr,
    /// The name of the route that matched.
    pub route: &'a str,
    /// The request's fields.
    pub fields: &'a HeaderMap,
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// It has been written.
    Key,
    /// The limit does not apply to this request.
    Skip,
    /// This field is absent and the limit demands it.
    Refuse(&'a HeaderName),
}

impl KeyTemplate {
    /// Can a request lack what this counts by? Then `missing` is a required choice.
    #[must_use]
    pub fn can_be_absent(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, Part::Header { .. }))
    }

    /// Appends the key of `caller` to `out`. What is there already stays; on anything but `Key` nothing is added.
    pub fn write(&self, caller: &Caller<'_>, out: &mut Vec<u8>) -> Found<'_> {
        let start = out.len();
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                out.push(b'|');
            }
            match part {
                Part::Ip(mask) => write_ip(*mask, caller.address, out),
                Part::Route => escape(caller.route.as_bytes(), out),
                Part::Header { name, secret } => {
                    if write_field(caller.fields, name, *secret, out) {
                        continue;
                    }
                    match self.missing {
                        Missing::Shared => out.extend_from_slice(b"%none"),
                        Missing::Ip => {
                            out.extend_from_slice(b"%ip=");
                            write_ip(Mask::DEFAULT, caller.address, out);
                        }
                        Missing::Skip => {
                            out.truncate(start);
                            return Found::Skip;
                        }
                        Missing::Refuse => {
                            out.truncate(start);
                            return Found::Refuse(name);
                        }
                    }
                }
            }
        }
        Found::Key
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

/// Several lines of one field are one value, joined as RFC 9110 section 5.3 joins them. Says whether there was any.
fn write_field(fields: &HeaderMap, name: &HeaderName, secret: bool, out: &mut Vec<u8>) -> bool {
    let mut lines = fields.get_all(name).iter().map(http::HeaderValue::as_bytes);
    let Some(first) = lines.next() else {
        return false;
    };
    let joined;
    let value = match lines.next() {
        None => first.trim_ascii(),
        Some(second) => {
            let mut all = [first, second].join(&b", "[..]);
            for line in lines {
                all.extend_from_slice(b", ");
                all.extend_from_slice(line);
            }
            joined = all;
            joined.trim_ascii()
        }
    };
    if value.is_empty() {
        return false;
    }
    let start = out.len();
    if !secret {
        escape(value, out);
    }
    if secret || out.len() - start > digest::LONGEST {
        out.truncate(start);
        out.extend_from_slice(b"%sha=");
        digest::append(value, out);
    }
    true
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
mod tests {
    use super::*;

    fn template(parts: Vec<Part>, missing: Missing) -> KeyTemplate {
        KeyTemplate { parts, missing }
    }

    fn header(name: &'static str) -> Part {
        Part::Header {
            name: HeaderName::from_static(name),
            secret: false,
        }
    }

    fn key_of(template: &KeyTemplate, fields: &HeaderMap) -> Option<String> {
        let mut out = Vec::new();
        let caller = Caller {
            address: "203.0.113.9".parse().unwrap(),
            route: "orders",
            fields,
        };
        (template.write(&caller, &mut out) == Found::Key).then(|| String::from_utf8(out).unwrap())
    }

    fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        map
    }

    #[test]
    fn no_value_imitates_a_separator_or_a_substitute() {
        let two = template(vec![header("a"), header("b")], Missing::Shared);
        let left = key_of(&two, &fields(&[("a", "x|y"), ("b", "z")]));
        let right = key_of(&two, &fields(&[("a", "x"), ("b", "y|z")]));
        assert_ne!(left, right);
        let absent = key_of(&two, &fields(&[("a", "x")]));
        let forged = key_of(&two, &fields(&[("a", "x"), ("b", "%none")]));
        assert_ne!(absent, forged);
        let by_ip = template(vec![header("a")], Missing::Ip);
        let substitute = key_of(&by_ip, &fields(&[]));
        let forged = key_of(&by_ip, &fields(&[("a", "%ip=203.0.113.9")]));
        assert_eq!(substitute.as_deref(), Some("%ip=203.0.113.9"));
        assert_ne!(substitute, forged);
    }

    #[test]
    fn empty_is_absent_and_repeats_are_one_value() {
        let one = template(vec![header("a")], Missing::Skip);
        assert_eq!(key_of(&one, &fields(&[("a", " ")])), None);
        assert_eq!(
            key_of(&one, &fields(&[("a", "x"), ("a", "y")])).as_deref(),
            Some("x%2C%20y")
        );
        assert_eq!(
            key_of(&one, &fields(&[("a", "x, y")])).as_deref(),
            Some("x%2C%20y")
        );
    }

    #[test]
    fn secrets_and_long_values_are_digested() {
        let secret = Part::Header {
            name: HeaderName::from_static("x-api-key"),
            secret: true,
        };
        let key = key_of(
            &template(vec![secret], Missing::Skip),
            &fields(&[("x-api-key", "hunter2")]),
        )
        .unwrap();
        assert!(key.starts_with("%sha=") && !key.contains("hunter2") && key.len() == 37);
        let long = "x".repeat(8192);
        let key = key_of(
            &template(vec![header("a")], Missing::Skip),
            &fields(&[("a", &long)]),
        )
        .unwrap();
        assert_eq!(key.len(), 37);
    }

    #[test]
    fn addresses_count_by_network() {
        let mask = template(vec![Part::Ip(Mask { v4: 24, v6: 64 })], Missing::Skip);
        assert_eq!(
            key_of(&mask, &HeaderMap::new()).as_deref(),
            Some("203.0.113.0/24")
        );
        let plain = Mask::DEFAULT;
        assert_eq!(
            plain.apply("::ffff:1.2.3.4".parse().unwrap()).to_string(),
            "1.2.3.4"
        );
        assert_eq!(
            plain
                .apply("2001:db8:7:1:2:3:4:5".parse().unwrap())
                .to_string(),
            "2001:db8:7:1::"
        );
    }
}

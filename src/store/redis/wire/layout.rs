//! The names of counters in Redis: `PREFIX:VERSION:limit:KIND:{key}`, or `PREFIX:VERSION:limit:KIND:{TAG}{key}` for a
//! limit that is counted `with` others.
//!
//! The name is the identity, so that changed numbers keep the counters. Because of the braces, the key alone determines
//! the cluster slot: the counters of one client are together. The record of an id has its name after the braces:
//! `PREFIX:VERSION:limit:KIND:{key}:d:DIGEST`, the block of a key
//! `PREFIX:VERSION:limit:KIND:{key}:b`, the mark of a reset `PREFIX:VERSION:limit:KIND:{key}:z`. The kind is `candidate-KIND` for a limit's candidate, and `GROUP.KIND`
//! for the tier of a group.

use crate::key::RepeatId;
use crate::limit::{Limit, Mode};
use smallvec::SmallVec;
use std::fmt::Write;

/// The version of the bytes stored at the keys. States of another version are left to expire.
pub(super) const VERSION: u32 = 1;

/// Concatenated names of counters.
pub(crate) type CounterNames = SmallVec<[u8; 96]>;

/// The key of a limit that counts all clients together: empty braces would determine no slot. No other key has this
/// character.
pub(crate) const EVERYONE: &[u8] = b"*";

/// The tag of a counter, which alone determines its slot.
pub(crate) fn tag<'a>(limit: &'a Limit, key: &'a [u8]) -> &'a [u8] {
    match &limit.with {
        Some(tag) => tag.as_bytes(),
        None if key.is_empty() => EVERYONE,
        None => key,
    }
}

/// Appends the name of the counter of `key`; `prefix` ends with the brace that is closed here.
pub(crate) fn counter(out: &mut CounterNames, prefix: &[u8], key: &[u8]) {
    out.extend_from_slice(prefix);
    out.extend_from_slice(if key.is_empty() { EVERYONE } else { key });
    out.push(b'}');
}

/// The name of the record of `id`, in the slot of the counter.
pub(crate) fn record(prefix: &[u8], key: &[u8], id: RepeatId) -> Vec<u8> {
    let mut name = CounterNames::new();
    counter(&mut name, prefix, key);
    name.extend_from_slice(b":d:");
    name.extend_from_slice(&id.digits());
    name.into_vec()
}

/// The name of the block of `key`, in the slot of the counter.
pub(crate) fn block(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    let mut name = CounterNames::new();
    counter(&mut name, prefix, key);
    name.extend_from_slice(b":b");
    name.into_vec()
}

/// The name of the mark of a counter that was emptied, in the slot of the counter.
pub(crate) fn mark(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    let mut name = CounterNames::new();
    counter(&mut name, prefix, key);
    name.extend_from_slice(b":z");
    name.into_vec()
}

/// The part of the names before the key, built once for each limit.
///
/// A name may hold any character. Characters with a meaning in a key are escaped, so that no two limits share a key.
#[must_use]
pub(crate) fn key_prefix(prefix: &str, limit: &Limit) -> Box<[u8]> {
    let mut text = format!("{prefix}:{VERSION}:");
    for character in limit.name.chars() {
        match character {
            ':' | '{' | '}' | '%' => {
                let _ = write!(text, "%{:02X}", u32::from(character));
            }
            other => text.push(other),
        }
    }
    let candidate = match limit.mode {
        Mode::Candidate => "candidate-",
        Mode::Enforce | Mode::Shadow => "",
    };
    text.push(':');
    if let Some(group) = limit.counter_group() {
        // No name of a group contains a dot.
        let _ = write!(text, "{group}.");
    }
    let _ = write!(text, "{candidate}{}:", limit.kind);
    if let Some(tag) = &limit.with {
        let _ = write!(text, "{{{tag}}}");
    }
    text.push('{');
    text.into_bytes().into()
}

/// The key that a probe counts on, up to its closing brace. No limit has it: it has no kind.
#[must_use]
pub(crate) fn probe_key(prefix: &str) -> Vec<u8> {
    format!("{prefix}:{VERSION}:probe:{{").into_bytes()
}

/// The first part of the names of a trial's counters of this kind, up to the key.
pub(crate) fn probe_prefix(prefix: &str, kind: &str) -> Vec<u8> {
    format!("{prefix}:{VERSION}:probe:{kind}:{{").into_bytes()
}

/// The name of a trial's counter of this kind, in the slot of `tag`.
pub(crate) fn probe_counter(prefix: &str, kind: &str, tag: &[u8]) -> Vec<u8> {
    let mut name = CounterNames::new();
    counter(&mut name, &probe_prefix(prefix, kind), tag);
    name.into_vec()
}

/// The limit that a counter's name belongs to, in the form of names.
pub(crate) fn limit_of<'k>(prefix: &str, counter: &'k [u8]) -> Option<&'k str> {
    let rest = counter.strip_prefix(format!("{prefix}:{VERSION}:").as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b':')?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

/// The key of the marker with this name, in the slot of the counter `colocated`. No limit has the key: it has no kind.
#[must_use]
pub(crate) fn marker(prefix: &str, colocated: Option<&[u8]>, name: u64) -> Vec<u8> {
    let tag = colocated.and_then(|counter| {
        let open = counter.iter().position(|byte| *byte == b'{')?;
        let rest = counter.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close)
    });
    let mut marker = format!("{prefix}:{VERSION}:done:{{").into_bytes();
    marker.extend_from_slice(tag.unwrap_or(EVERYONE));
    marker.extend_from_slice(format!("}}{name:016x}").as_bytes());
    marker
}

/// The key at which the gateways report that they are alive. No limit has it: it has no kind.
#[must_use]
pub(crate) fn gateways_key(prefix: &str) -> String {
    everyones_key(prefix, "gateways")
}

/// The names of the values of what operators have changed, in the order of the script.
pub(crate) const CHANGES: [&str; 3] = ["version", "changes", "heard"];

/// A key that all gateways share, in the slot of the gateways' own. No limit has it: it has no kind.
#[must_use]
pub(crate) fn everyones_key(prefix: &str, name: &str) -> String {
    format!("{prefix}:{VERSION}:{name}:{{*}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::tests::support::{limit, token_bucket};

    #[test]
    fn a_name_with_marks_in_it_cannot_be_taken_for_another() {
        let plain = limit("per-key", token_bucket(10, 1_000_000, 10));
        assert_eq!(&*key_prefix("tollgate", &plain), b"tollgate:1:per-key:tb:{");
        let odd = limit("a:{b}%", token_bucket(10, 1_000_000, 10));
        assert_eq!(&*key_prefix("x", &odd), b"x:1:a%3A%7Bb%7D%25:tb:{");
    }

    /// The reference value of the Redis Cluster specification.
    fn slot(name: &[u8]) -> u16 {
        let open = name.iter().position(|byte| *byte == b'{');
        let tag = open.and_then(|open| {
            let rest = &name[open + 1..];
            let close = rest.iter().position(|byte| *byte == b'}')?;
            (close > 0).then_some(&rest[..close])
        });
        let crc = tag.unwrap_or(name).iter().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| match crc >> 15 {
                1 => crc << 1 ^ 0x1021,
                _ => crc << 1,
            })
        });
        crc % 16_384
    }

    /// IF6: a record's key was made in the script, and was on another node for most clients.
    #[test]
    fn if6_what_is_remembered_lives_in_the_slot_of_its_counter() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        let once = limit("a:{b}%", token_bucket(10, 1_000_000, 10));
        let prefix = key_prefix("x", &once);
        let id = RepeatId::of("POST", "/pay", 1, b"id");
        let keys = (0..500).map(|nth| format!("10.0.{}.{}|a%7Db", nth / 256, nth % 256));
        for key in keys.chain([String::new(), "%none".into()]) {
            let mut name = CounterNames::new();
            counter(&mut name, &prefix, key.as_bytes());
            let record = record(&prefix, key.as_bytes(), id);
            assert!(record.starts_with(&name) && *record != *name);
            assert_eq!(slot(&record), slot(&name), "{key}");
            let tag = if key.is_empty() { "*" } else { &key };
            assert_eq!(slot(&name), slot(format!("{{{tag}}}").as_bytes()), "{key}");
        }
    }
}

//! A hop's name for the hop before it (RFC 7239, section 6): an address, or a word that hides it.

use super::address::read_address;
use std::net::IpAddr;

/// The name of a hop in `Forwarded` or `X-Forwarded-For`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardedNode {
    /// An address; its port, brackets and zone are dropped.
    Address(IpAddr),
    /// `unknown`, or a name of the writer's choice that begins with an underscore (RFC 7239, sections 6.2 and 6.3); or
    /// an element without `for`.
    Unnamed,
    /// A text that is not a node.
    Malformed,
}

impl ForwardedNode {
    /// The address, if the node is one.
    #[must_use]
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::Unnamed | Self::Malformed => None,
        }
    }
}

/// Reads a node, with or without HTTP blanks around it. `X-Forwarded-For`, which has no grammar of its own, is read in
/// the same way.
#[must_use]
pub fn read_node(text: &[u8]) -> ForwardedNode {
    let Ok(text) = str::from_utf8(text) else {
        return ForwardedNode::Malformed;
    };
    let text = text.trim_matches([' ', '\t']);
    let name = without_port(text);
    if let Some(address) = name.and_then(read_address) {
        return ForwardedNode::Address(address);
    }
    match name {
        Some(name) if name.eq_ignore_ascii_case("unknown") => ForwardedNode::Unnamed,
        Some(name) if is_obfuscated(name) => ForwardedNode::Unnamed,
        _ => ForwardedNode::Malformed,
    }
}

/// The node's name; `None` if the rest is not a port.
fn without_port(text: &str) -> Option<&str> {
    let end = match text.find(']') {
        Some(bracket) if text.starts_with('[') => bracket + 1,
        // An IPv6 address without brackets has no port.
        _ if text.bytes().filter(|byte| *byte == b':').count() > 1 => return Some(text),
        _ => text.find(':').unwrap_or(text.len()),
    };
    let (name, rest) = text.split_at(end);
    match rest.strip_prefix(':') {
        None => rest.is_empty().then_some(name),
        Some(port) => is_port(port).then_some(name),
    }
}

/// A port: up to five digits, or an obfuscated one.
fn is_port(text: &str) -> bool {
    let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number || is_obfuscated(text)
}

/// An underscore, and at least one letter, digit, dot, underscore or hyphen (RFC 7239, section 6.3).
fn is_obfuscated(text: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let name = text.strip_prefix('_');
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(is_of_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_either_kind_are_dropped_and_names_are_told_from_noise() {
        let address = |text: &str| ForwardedNode::Address(text.parse().unwrap());
        for (text, node) in [
            ("203.0.113.61:_x", address("203.0.113.61")),
            ("203.0.113.61:80", address("203.0.113.61")),
            ("203.0.113.61:99999", address("203.0.113.61")),
            (" 203.0.113.61\t", address("203.0.113.61")),
            ("[2001:db8::1]:_gazonk.-_", address("2001:db8::1")),
            ("[2001:db8::1]", address("2001:db8::1")),
            ("2001:db8::1", address("2001:db8::1")),
            ("[fe80::1%eth0]:7", address("fe80::1")),
            ("[::ffff:203.0.113.9]", address("203.0.113.9")),
            ("unknown", ForwardedNode::Unnamed),
            ("UnKnown:_p", ForwardedNode::Unnamed),
            ("_hidden", ForwardedNode::Unnamed),
            ("_hidden:80", ForwardedNode::Unnamed),
            ("_", ForwardedNode::Malformed),
            ("_a b", ForwardedNode::Malformed),
            ("203.0.113.61:", ForwardedNode::Malformed),
            ("203.0.113.61:123456", ForwardedNode::Malformed),
            ("203.0.113.61:_", ForwardedNode::Malformed),
            ("203.0.113.061", ForwardedNode::Malformed),
            ("203.0.113", ForwardedNode::Malformed),
            ("[203.0.113.61]", ForwardedNode::Malformed),
            ("[2001:db8::1]x", ForwardedNode::Malformed),
            ("[2001:db8::1", ForwardedNode::Malformed),
            ("example.com", ForwardedNode::Malformed),
            ("", ForwardedNode::Malformed),
        ] {
            assert_eq!(read_node(text.as_bytes()), node, "{text}");
        }
        assert_eq!(read_node(b"203.0.113.61\xff"), ForwardedNode::Malformed);
    }
}

//! Reads `Forwarded` (RFC 7239): its elements from the right, their parameters, and the node of `for`.

use super::credential::trim;
use super::node::{ForwardedNode, read_node};
use smallvec::SmallVec;
use std::borrow::Cow;

/// Parameters of one element that are read. Four are defined (RFC 7239, section 5); an element with more than this many
/// is malformed.
const MOST_PARAMETERS: usize = 32;

/// The nodes of one line from the last to the first. Empty elements do not count (RFC 9110, section 5.6.1). All text at
/// or left of a quoted string without a beginning counts as one malformed node.
pub fn nodes(line: &[u8]) -> impl Iterator<Item = ForwardedNode> {
    from_the_right(line, b',').filter_map(|element| match element {
        Some(element) => node(element),
        None => Some(ForwardedNode::Malformed),
    })
}

/// The parts between separators outside of quoted strings (RFC 9110, section 5.6.4), from the last to the first. The
/// last item is `None` if quotes do not match.
///
/// The line is read from the right because trusted hops append there: an odd quote that an untrusted client wrote
/// before their text must not swallow it.
fn from_the_right(text: &[u8], separator: u8) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let mut quoted = false;
        for (at, byte) in text.iter().enumerate().rev() {
            if *byte == b'"' {
                let escaped = is_escaped(text, at);
                if escaped && !quoted {
                    return Some(None);
                }
                quoted = !quoted || escaped;
            } else if *byte == separator && !quoted {
                rest = Some(&text[..at]);
                return Some(Some(&text[at + 1..]));
            }
        }
        Some((!quoted).then_some(text))
    })
}

/// Is the number of backslashes before the quote odd?
fn is_escaped(text: &[u8], at: usize) -> bool {
    let before = text[..at].iter().rev();
    before.take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The node in the `for` of an element; `None` if the element is empty. A parameter occurs once (RFC 7239, section 4).
fn node(element: &[u8]) -> Option<ForwardedNode> {
    let element = trim(element);
    if element.is_empty() {
        return None;
    }
    let mut names: SmallVec<[&[u8]; 4]> = SmallVec::new();
    let mut named = None;
    for parameter in from_the_right(element, b';') {
        let Some(parameter) = parameter.map(trim) else {
            return Some(ForwardedNode::Malformed);
        };
        if parameter.is_empty() {
            continue;
        }
        let Some((name, value)) = pair(parameter) else {
            return Some(ForwardedNode::Malformed);
        };
        let is_there = names.iter().any(|known| known.eq_ignore_ascii_case(name));
        if is_there || names.len() == MOST_PARAMETERS {
            return Some(ForwardedNode::Malformed);
        }
        names.push(name);
        if name.eq_ignore_ascii_case(b"for") {
            named = Some(value);
        }
    }
    // An element need not name a node.
    Some(named.map_or(ForwardedNode::Unnamed, |node| read_node(&node)))
}

/// The name and the value of a parameter; `None` if the text is not one.
fn pair(parameter: &[u8]) -> Option<(&[u8], Cow<'_, [u8]>)> {
    let equals = parameter.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&parameter[..equals], &parameter[equals + 1..]);
    let is_token = !name.is_empty() && name.iter().copied().all(is_of_token);
    is_token.then_some((name, plain(value)?))
}

/// May the byte occur in a token (RFC 9110, section 5.6.2)?
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The last element's value of a parameter (RFC 7239, section 5): the hop that wrote the element vouches for it.
/// `lines` are the field's lines, the last first. Empty elements do not count.
#[must_use]
pub fn last<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &str) -> Option<Cow<'a, str>> {
    let mut elements = lines.flat_map(|line| from_the_right(line, b','));
    let element = elements.find(|element| element.is_none_or(|text| !trim(text).is_empty()))??;
    let mut parameters = from_the_right(element, b';').map_while(|parameter| parameter);
    let value = parameters.find_map(|parameter| {
        let (found, value) = pair(trim(parameter))?;
        found.eq_ignore_ascii_case(name.as_bytes()).then_some(value)
    })?;
    match value {
        Cow::Borrowed(value) => str::from_utf8(value).ok().map(Cow::Borrowed),
        Cow::Owned(value) => String::from_utf8(value).ok().map(Cow::Owned),
    }
}

/// The meaning of a value: of a quoted string, the text with its quoted pairs resolved. Other values may be more than
/// tokens: many proxies write a host with a port, or an IPv6 address, without the required quotes.
fn plain(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(opened) = value.strip_prefix(b"\"") else {
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        let is_value = !value.is_empty() && value.iter().all(is_plain);
        return is_value.then_some(Cow::Borrowed(value));
    };
    let inside = opened.strip_suffix(b"\"")?;
    if !inside.iter().any(|byte| matches!(byte, b'"' | b'\\')) {
        return Some(Cow::Borrowed(inside));
    }
    let mut plain = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => plain.push(bytes.next()?),
            b'"' => return None,
            _ => plain.push(byte),
        }
    }
    Some(Cow::Owned(plain))
}

#[cfg(test)]
mod grammar;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn read_nodes(line: &str) -> Vec<String> {
        let spell = |node| match node {
            ForwardedNode::Address(address) => address.to_string(),
            ForwardedNode::Unnamed => "?".to_owned(),
            ForwardedNode::Malformed => "-".to_owned(),
        };
        nodes(line.as_bytes()).map(spell).collect()
    }

    #[test]
    fn separators_in_quotes_separate_nothing() {
        assert_eq!(read_nodes("for=1.2.3.4;secret=\"a,b\""), ["1.2.3.4"]);
        assert_eq!(
            read_nodes("secret=\"a;for=6.6.6.6\";for=1.2.3.4"),
            ["1.2.3.4"]
        );
        assert_eq!(
            read_nodes("for=1.2.3.4;a=\"\\\",for=6.6.6.6\""),
            ["1.2.3.4"]
        );
        assert_eq!(
            read_nodes("a=\"\\\\\", for=\"[2001:db8::1]:4\""),
            ["2001:db8::1", "?"]
        );
        assert_eq!(read_nodes("For=\"1\\.2.3.4\""), ["1.2.3.4"]);
    }

    #[test]
    fn quotes_that_do_not_match_end_the_line() {
        assert_eq!(
            read_nodes("for=6.6.6.6, for=\"x, for=1.2.3.4"),
            ["1.2.3.4", "-"]
        );
        assert_eq!(
            read_nodes("for=6.6.6.6;x=\", for=\"[2001:db8::1]\""),
            ["2001:db8::1", "-"]
        );
        assert_eq!(read_nodes("for=6.6.6.6, for=1.2.3.4\\\""), ["-"]);
        assert_eq!(read_nodes("for=\"1.2.3.4"), ["-"]);
        assert_eq!(read_nodes("for=\"1.2.3.4\\\""), ["-"]);
        assert_eq!(read_nodes("for=\""), ["-"]);
    }

    /// The parts by the grammar, from the left; `None` if the grammar does not allow the text.
    fn from_the_left(text: &[u8]) -> Option<Vec<&[u8]>> {
        let (mut parts, mut begun, mut quoted, mut at) = (Vec::new(), 0, false, 0);
        while at < text.len() {
            match text[at] {
                b'"' => quoted = !quoted,
                b'\\' if quoted => at += 1,
                b'\\' => return None,
                b',' if !quoted => {
                    parts.push(&text[begun..at]);
                    begun = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        parts.push(&text[begun..]);
        (!quoted && at == text.len()).then_some(parts)
    }

    proptest! {
        #[test]
        fn the_right_and_the_left_agree(text in r#"[",;\\a]{0,24}"#) {
            let found: Option<Vec<_>> = from_the_right(text.as_bytes(), b',').collect();
            if let Some(mut expected) = from_the_left(text.as_bytes()) {
                expected.reverse();
                prop_assert_eq!(found, Some(expected));
            }
        }

        #[test]
        fn no_address_comes_from_inside_quotes(
            hops in prop::collection::vec((any::<[u8; 4]>(), r#"([ -!#-\[\]-~]|\\[ -~]|, for=6\.6\.6\.6|;for=6\.6\.6\.6){0,12}"#, any::<bool>()), 1..6),
        ) {
            let elements = hops.iter().map(|(address, text, first)| {
                let address = IpAddr::from(*address);
                if *first { format!("for={address};x=\"{text}\"") } else { format!("x=\"{text}\";for={address}") }
            });
            let line = elements.collect::<Vec<_>>().join(", ");
            let expected: Vec<_> = hops.iter().rev().map(|(address, ..)| ForwardedNode::Address(IpAddr::from(*address))).collect();
            prop_assert_eq!(nodes(line.as_bytes()).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn anything_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..64), text in r#"[",;=\\for1.\[\]:]{0,40}"#) {
            nodes(&line).for_each(drop);
            nodes(text.as_bytes()).for_each(drop);
        }
    }
}

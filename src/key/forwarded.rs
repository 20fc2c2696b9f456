//! Reads `Forwarded` (RFC 7239): its elements from the right, their parameters, the node behind `for`.

use super::address::read_address;
use std::borrow::Cow;
use std::net::IpAddr;

/// The nodes of one line from the last to the first; nothing for a node that is no address. All text at or left of a
/// quoted string without a beginning counts as one node, which is no address.
pub fn nodes(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    from_the_right(line, b',').map(|element| node(element?))
}

/// The parts between separators outside of quoted strings (RFC 9110, section 5.6.4), from the last to the first. The
/// last item is nothing where quotes do not match.
///
/// The line is read from the right because trusted hops write there: an odd quote from a stranger in front of their
/// text must not swallow it.
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

/// The address behind the `for` of an element. Nothing where the element has several (RFC 7239, section 4: a parameter
/// occurs once).
fn node(element: &[u8]) -> Option<IpAddr> {
    let mut named = None;
    for parameter in from_the_right(element, b';') {
        let parameter = parameter?;
        let Some(equals) = parameter.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (name, value) = (&parameter[..equals], &parameter[equals + 1..]);
        if name.trim_ascii().eq_ignore_ascii_case(b"for")
            && named.replace(value.trim_ascii()).is_some()
        {
            return None;
        }
    }
    read_address(&plain(str::from_utf8(named?).ok()?)?)
}

/// The last element's value of a parameter (RFC 7239, section 5): the hop that wrote the element vouches for it.
#[must_use]
pub fn last<'a>(line: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let element = from_the_right(line, b',').next()??;
    let mut parameters = from_the_right(element, b';').map_while(|parameter| parameter);
    let value = parameters.find_map(|parameter| {
        let equals = parameter.iter().position(|byte| *byte == b'=')?;
        let is_it = parameter[..equals]
            .trim_ascii()
            .eq_ignore_ascii_case(name.as_bytes());
        is_it.then(|| parameter[equals + 1..].trim_ascii())
    })?;
    plain(str::from_utf8(value).ok()?)
}

/// The meaning of a token or a quoted string.
fn plain(value: &str) -> Option<Cow<'_, str>> {
    let Some(opened) = value.strip_prefix('"') else {
        return Some(Cow::Borrowed(value));
    };
    let inside = opened.strip_suffix('"')?;
    if !inside.contains(['"', '\\']) {
        return Some(Cow::Borrowed(inside));
    }
    let mut plain = String::with_capacity(inside.len());
    let mut letters = inside.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => plain.push(letters.next()?),
            '"' => return None,
            _ => plain.push(letter),
        }
    }
    Some(Cow::Owned(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> Vec<String> {
        let spell = |node: Option<IpAddr>| node.map_or("-".to_owned(), |node| node.to_string());
        nodes(line.as_bytes()).map(spell).collect()
    }

    #[test]
    fn separators_in_quotes_separate_nothing() {
        assert_eq!(read("for=1.2.3.4;secret=\"a,b\""), ["1.2.3.4"]);
        assert_eq!(read("secret=\"a;for=6.6.6.6\";for=1.2.3.4"), ["1.2.3.4"]);
        assert_eq!(read("for=1.2.3.4;a=\"\\\",for=6.6.6.6\""), ["1.2.3.4"]);
        assert_eq!(
            read("a=\"\\\\\", for=\"[2001:db8::1]:4\""),
            ["2001:db8::1", "-"]
        );
        assert_eq!(read("For=\"1\\.2.3.4\""), ["1.2.3.4"]);
    }

    #[test]
    fn quotes_that_do_not_match_end_the_line() {
        assert_eq!(read("for=6.6.6.6, for=\"x, for=1.2.3.4"), ["1.2.3.4", "-"]);
        assert_eq!(
            read("for=6.6.6.6;x=\", for=\"[2001:db8::1]\""),
            ["2001:db8::1", "-"]
        );
        assert_eq!(read("for=6.6.6.6, for=1.2.3.4\\\""), ["-"]);
        assert_eq!(read("for=\"1.2.3.4"), ["-"]);
        assert_eq!(read("for=\"1.2.3.4\\\""), ["-"]);
        assert_eq!(read("for=\""), ["-"]);
        assert_eq!(read(""), ["-"]);
    }

    /// The parts by the grammar, from the left; nothing where the grammar does not allow the text.
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
            let expected: Vec<_> = hops.iter().rev().map(|(address, ..)| Some(IpAddr::from(*address))).collect();
            prop_assert_eq!(nodes(line.as_bytes()).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn anything_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..64), text in r#"[",;=\\for1.\[\]:]{0,40}"#) {
            nodes(&line).for_each(drop);
            nodes(text.as_bytes()).for_each(drop);
        }
    }
}

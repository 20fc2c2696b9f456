//! The grammar of RFC 7239: a generator of allowed lines, a reader that follows the grammar rule by rule from the left,
//! and the comparison of both with the reader from the right.

use super::nodes;
use crate::key::node::ForwardedNode;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The nodes of a line by the grammar, from the first to the last; `None` if the grammar does not allow the line.
fn by_grammar(line: &str) -> Option<Vec<ForwardedNode>> {
    let mut reader = GrammarReader(line);
    let mut found = Vec::new();
    loop {
        reader.blanks();
        if !reader.0.is_empty() && !reader.0.starts_with(',') {
            found.push(reader.element()?);
            reader.blanks();
        }
        if reader.0.is_empty() {
            return Some(found);
        }
        reader.byte(',')?;
    }
}

/// The rest of a line.
struct GrammarReader<'a>(&'a str);

impl<'a> GrammarReader<'a> {
    fn byte(&mut self, byte: char) -> Option<()> {
        self.0 = self.0.strip_prefix(byte)?;
        Some(())
    }

    fn blanks(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    /// `[ forwarded-pair ] *( ";" [ forwarded-pair ] )`, with blanks around the semicolons.
    fn element(&mut self) -> Option<ForwardedNode> {
        let (mut node, mut names) = (ForwardedNode::Unnamed, Vec::new());
        loop {
            self.blanks();
            if !self.0.is_empty() && !self.0.starts_with([';', ',']) {
                let name = self.token()?.to_ascii_lowercase();
                self.byte('=')?;
                let value = self.value()?;
                if names.contains(&name) {
                    return None;
                }
                if name == "for" {
                    node = of_node(&value)?;
                }
                names.push(name);
                self.blanks();
            }
            if !self.0.starts_with(';') {
                return Some(node);
            }
            self.byte(';')?;
        }
    }

    fn token(&mut self) -> Option<&'a str> {
        let is_of_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let end = self.0.find(|c: char| !is_of_token(c));
        let (token, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }

    fn value(&mut self) -> Option<String> {
        if !self.0.starts_with('"') {
            return self.token().map(str::to_owned);
        }
        self.byte('"')?;
        let mut value = String::new();
        let mut letters = self.0.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.0 = &self.0[at + 1..];
                    return Some(value);
                }
                '\\' => value.push(letters.next()?.1),
                _ => value.push(letter),
            }
        }
        None
    }
}

/// `nodename [ ":" node-port ]`; `None` for other text.
fn of_node(text: &str) -> Option<ForwardedNode> {
    let is_obfuscated = |text: &str| {
        let of_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        text.len() > 1 && text.starts_with('_') && text[1..].chars().all(of_name)
    };
    let is_port = |text: &str| {
        let digits = text.chars().all(|c| c.is_ascii_digit());
        is_obfuscated(text) || (1..=5).contains(&text.len()) && digits
    };
    let (name, port) = if let Some(opened) = text.strip_prefix('[') {
        let (inside, rest) = opened.split_once(']')?;
        let address: Ipv6Addr = inside.parse().ok()?;
        let node = ForwardedNode::Address(IpAddr::V6(address).to_canonical());
        return match rest.strip_prefix(':') {
            Some(port) => is_port(port).then_some(node),
            None => rest.is_empty().then_some(node),
        };
    } else {
        match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        }
    };
    if !port.is_none_or(is_port) {
        return None;
    }
    if let Ok(address) = name.parse::<Ipv4Addr>() {
        return Some(ForwardedNode::Address(address.into()));
    }
    (name.eq_ignore_ascii_case("unknown") || is_obfuscated(name)).then_some(ForwardedNode::Unnamed)
}

/// A text as a quoted string, with `escapes` needless escapes.
fn quoted(text: &str, escapes: u64) -> String {
    let mut out = String::from("\"");
    for (at, letter) in text.chars().enumerate() {
        if matches!(letter, '"' | '\\') || escapes >> (at % 64) & 1 == 1 {
            out.push('\\');
        }
        out.push(letter);
    }
    out + "\""
}

fn blanks() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", "", " ", "\t", " \t "])
}

/// A node, as the value of `for`.
fn node() -> impl Strategy<Value = (String, ForwardedNode)> {
    let port = prop_oneof![
        Just(String::new()),
        "[0-9]{1,5}".prop_map(|port| format!(":{port}")),
        "_[A-Za-z0-9._-]{1,6}".prop_map(|port| format!(":{port}")),
    ];
    let name = prop_oneof![
        any::<[u8; 4]>().prop_map(|address| {
            let address = IpAddr::from(address);
            (address.to_string(), ForwardedNode::Address(address))
        }),
        any::<[u8; 16]>().prop_map(|address| {
            let address = Ipv6Addr::from(address);
            let counts = IpAddr::V6(address).to_canonical();
            (format!("[{address}]"), ForwardedNode::Address(counts))
        }),
        select(vec!["unknown", "Unknown", "_a", "_.-_", "_SEVKISEK"])
            .prop_map(|name| (name.to_owned(), ForwardedNode::Unnamed)),
    ];
    (name, port, any::<bool>(), any::<u64>()).prop_map(|((name, node), port, plain, escapes)| {
        let text = name + &port;
        let is_token = !text.contains([':', '[']);
        let value = if plain && is_token {
            text
        } else {
            quoted(&text, escapes)
        };
        (value, node)
    })
}

/// A parameter other than `for`; its name is made unique later.
fn parameter() -> impl Strategy<Value = (String, String)> {
    let value = prop_oneof![
        "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,6}",
        ("[ -~]{0,12}", any::<u64>()).prop_map(|(text, escapes)| quoted(&text, escapes)),
        Just(quoted("x, for=6.6.6.6;for=7.7.7.7", 0)),
        Just(quoted("\\\", for=6.6.6.6", 0)),
    ];
    ("[a-z]{1,4}", value)
}

/// An element, and the node that it names.
fn element() -> impl Strategy<Value = (String, ForwardedNode)> {
    let named = proptest::option::weighted(0.9, node());
    let parts = proptest::collection::vec((parameter(), blanks(), blanks()), 0..4);
    let spelling = select(vec!["for", "For", "FOR"]);
    (named, parts, any::<prop::sample::Index>(), spelling).prop_map(
        |(named, parts, place, spelling)| {
            let mut pairs: Vec<String> = Vec::new();
            for (nth, ((name, value), before, after)) in parts.into_iter().enumerate() {
                pairs.push(format!("{before}x{nth}{name}={value}{after}"));
            }
            let node = match named {
                Some((value, node)) => {
                    let at = place.index(pairs.len() + 1);
                    pairs.insert(at, format!("{spelling}={value}"));
                    node
                }
                None => {
                    // An empty element would not count.
                    pairs.push(";proto=http".to_owned());
                    ForwardedNode::Unnamed
                }
            };
            (pairs.join(";"), node)
        },
    )
}

/// A line, and its nodes from the first to the last.
fn line() -> impl Strategy<Value = (String, Vec<ForwardedNode>)> {
    let empty = (Just(String::new()), Just(ForwardedNode::Malformed));
    let element = prop_oneof![
        4 => element().prop_map(|(text, node)| (text, Some(node))),
        1 => empty.prop_map(|(text, _)| (text, None)),
    ];
    proptest::collection::vec((blanks(), element, blanks()), 0..6).prop_map(|elements| {
        let nodes = elements
            .iter()
            .filter_map(|(_, (_, node), _)| *node)
            .collect();
        let texts = elements.iter();
        let texts = texts.map(|(before, (text, _), after)| format!("{before}{text}{after}"));
        (texts.collect::<Vec<_>>().join(","), nodes)
    })
}

fn from_the_right(line: &str) -> Vec<ForwardedNode> {
    let mut found: Vec<ForwardedNode> = nodes(line.as_bytes()).collect();
    found.reverse();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_line_of_the_grammar_is_read_as_it_says((line, expected) in line()) {
        prop_assert_eq!(by_grammar(&line), Some(expected.clone()), "the reference: {}", line);
        prop_assert_eq!(from_the_right(&line), expected, "{}", line);
    }

    /// A line with a change somewhere is read by the grammar if it is still legal.
    #[test]
    fn a_line_with_a_change_is_read_as_the_grammar_says(
        (line, _) in line(),
        at in any::<prop::sample::Index>(),
        with in select(vec!["", "\"", "\\", ",", ";", "=", " ", "for=", "x", ":", "]"]),
        takes in 0_usize..2,
    ) {
        let mut bytes: Vec<char> = line.chars().collect();
        let place = at.index(bytes.len() + 1);
        let end = (place + takes).min(bytes.len());
        bytes.splice(place..end, with.chars());
        let changed: String = bytes.into_iter().collect();
        let found = from_the_right(&changed);
        if let Some(expected) = by_grammar(&changed) {
            prop_assert_eq!(found, expected, "{}", changed);
        }
    }
}

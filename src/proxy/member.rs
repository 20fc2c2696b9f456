//! Finds one number in JSON that passes by, in pieces of any size and with a few bytes of its own: the texts are read once
//! and never kept. What is no JSON has no number; it is not held against the response.

use std::sync::Arc;

/// Deeper nesting is not followed.
const DEEPEST: usize = 256;

/// Looks for a member.
#[derive(Debug)]
pub(super) struct Member {
    /// The names that lead to it, from the outermost object on.
    names: Arc<[Box<str>]>,
    /// Open containers, outermost first: is it an object?
    open: Vec<bool>,
    /// How many of them, from the outermost on, are objects on the way there.
    on_way: usize,
    /// The value to come is the next on the way.
    is_next: bool,
    state: State,
    found: Option<u32>,
    /// Nothing can be made of the rest of the text.
    lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A value is to come.
    Value,
    /// A name is to come, or the end of the object.
    Name,
    /// In a name: how much of it is as wanted, if it still may be.
    InName {
        same: Option<usize>,
        escaped: bool,
    },
    Colon,
    InText {
        escaped: bool,
    },
    /// In the number that is looked for.
    InNumber(Option<u32>),
    /// In any other number, or a word.
    Plain,
    /// A value is over.
    After,
}

impl Member {
    /// The member at the end of `names`.
    #[must_use]
    pub(super) fn at(names: &Arc<[Box<str>]>) -> Self {
        Self {
            names: Arc::clone(names),
            open: Vec::new(),
            on_way: 0,
            is_next: false,
            state: State::Value,
            found: None,
            lost: false,
        }
    }

    /// The last number that was found.
    #[must_use]
    pub(super) fn found(&self) -> Option<u32> {
        self.found
    }

    /// Another text begins; what was found stays.
    pub(super) fn restart(&mut self) {
        self.open.clear();
        (self.on_way, self.is_next) = (0, false);
        (self.state, self.lost) = (State::Value, false);
    }

    /// Reads on.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.lost {
                return;
            }
            self.state = self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) -> State {
        match self.state {
            State::InName { same, escaped } => self.in_name(byte, same, escaped),
            State::InText { escaped: true } => State::InText { escaped: false },
            State::InText { escaped: false } => match byte {
                b'"' => State::After,
                b'\\' => State::InText { escaped: true },
                _ => self.state,
            },
            State::InNumber(number) => match byte {
                b'0'..=b'9' => State::InNumber(number.map(|number| {
                    let digit = u32::from(byte - b'0');
                    number.saturating_mul(10).saturating_add(digit)
                })),
                b'.' | b'e' | b'E' | b'+' | b'-' => State::InNumber(None),
                _ => {
                    self.found = number.or(self.found);
                    self.after(byte)
                }
            },
            State::Plain => match byte {
                b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' => self.after(byte),
                _ => State::Plain,
            },
            _ if byte.is_ascii_whitespace() => self.state,
            State::Value => self.value(byte),
            State::Name => match byte {
                b'"' => {
                    let is_on_way = self.open.len() == self.on_way;
                    State::InName {
                        same: is_on_way.then_some(0),
                        escaped: false,
                    }
                }
                _ => self.after(byte),
            },
            State::Colon => State::Value,
            State::After => self.after(byte),
        }
    }

    fn in_name(&mut self, byte: u8, same: Option<usize>, escaped: bool) -> State {
        let wanted = self.names[self.on_way.saturating_sub(1)].as_bytes();
        match byte {
            b'"' if !escaped => {
                self.is_next = same == Some(wanted.len());
                State::Colon
            }
            // An escaped name is none that is looked for.
            b'\\' => State::InName {
                same: None,
                escaped: !escaped,
            },
            _ => State::InName {
                same: same
                    .filter(|at| wanted.get(*at) == Some(&byte))
                    .map(|at| at + 1),
                escaped: false,
            },
        }
    }

    fn value(&mut self, byte: u8) -> State {
        let is_next = std::mem::take(&mut self.is_next);
        let is_last = is_next && self.on_way == self.names.len();
        match byte {
            b'{' | b'[' => {
                if self.open.len() == DEEPEST {
                    self.lost = true;
                    return State::Plain;
                }
                let is_object = byte == b'{';
                let is_root = self.open.is_empty();
                self.open.push(is_object);
                if is_object && (is_root || (is_next && !is_last)) {
                    self.on_way += 1;
                }
                if is_object { State::Name } else { State::Value }
            }
            b'"' => State::InText { escaped: false },
            b'0'..=b'9' if is_last => State::InNumber(Some(u32::from(byte - b'0'))),
            // An empty list ends here.
            b']' => self.after(byte),
            _ => State::Plain,
        }
    }

    fn after(&mut self, byte: u8) -> State {
        match byte {
            b'}' | b']' => {
                if self.open.len() == self.on_way {
                    self.on_way = self.on_way.saturating_sub(1);
                }
                self.open.pop();
                State::After
            }
            b',' if self.open.last() == Some(&true) => State::Name,
            b',' => State::Value,
            _ if byte.is_ascii_whitespace() => State::After,
            // One text after another.
            _ if self.open.is_empty() => self.value(byte),
            _ => {
                self.lost = true;
                State::Plain
            }
        }
    }
}

/// Looks for a member in each event of a stream of them; the last that has it counts.
#[derive(Debug)]
pub(super) struct Events {
    member: Member,
    line: Line,
    /// The line before ended with a carriage return, of which a line feed may be part.
    returned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// So much of it is as `data:` begins.
    Begin(usize),
    Data,
    Other,
}

const DATA: &[u8] = b"data:";

impl Events {
    /// Of events with this member.
    #[must_use]
    pub(super) fn with(member: Member) -> Self {
        Self {
            member,
            line: Line::Begin(0),
            returned: false,
        }
    }

    /// The last number that was found.
    #[must_use]
    pub(super) fn found(&self) -> Option<u32> {
        self.member.found()
    }

    /// Reads on.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let was_returned = std::mem::take(&mut self.returned);
            self.line = match (*byte, self.line) {
                (b'\n', _) if was_returned => self.line,
                (b'\n' | b'\r', line) => {
                    self.returned = *byte == b'\r';
                    match line {
                        // An empty line ends an event.
                        Line::Begin(0) => self.member.restart(),
                        Line::Data => self.member.read(b"\n"),
                        Line::Begin(_) | Line::Other => {}
                    }
                    Line::Begin(0)
                }
                (byte, Line::Begin(at)) if DATA[at] == byte => match at + 1 {
                    at if at == DATA.len() => Line::Data,
                    at => Line::Begin(at),
                },
                (_, Line::Begin(_) | Line::Other) => Line::Other,
                (byte, Line::Data) => {
                    self.member.read(&[byte]);
                    Line::Data
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn names(path: &str) -> Arc<[Box<str>]> {
        path.split('.').map(Box::from).collect()
    }

    fn found(path: &str, text: &str, piece: usize) -> Option<u32> {
        let mut member = Member::at(&names(path));
        for piece in text.as_bytes().chunks(piece.max(1)) {
            member.read(piece);
        }
        member.found()
    }

    #[test]
    fn the_member_is_found_where_it_stands_and_nowhere_else() {
        for (text, units) in [
            (r#"{"usage":{"total_tokens":42}}"#, Some(42)),
            (
                r#" { "id" : "x" , "usage" : { "prompt" : 1, "total_tokens" : 7 } , "z": [] } "#,
                Some(7),
            ),
            (
                r#"{"total_tokens":1,"other":{"usage":{"total_tokens":2}}}"#,
                None,
            ),
            (r#"{"usage":[{"total_tokens":3}]}"#, None),
            (r#"[{"usage":{"total_tokens":3}}]"#, None),
            (
                r#"{"usage":{"nested":{"total_tokens":4},"total_tokens":5}}"#,
                Some(5),
            ),
            (r#"{"usage":{"total_tokens":"6"}}"#, None),
            (r#"{"usage":{"total_tokens":null}}"#, None),
            (r#"{"usage":{"total_tokens":-6}}"#, None),
            (r#"{"usage":{"total_tokens":1.5}}"#, None),
            (
                r#"{"text":"\"usage\":{\"total_tokens\":9}","usage":{"total_tokens":8}}"#,
                Some(8),
            ),
            (
                r#"{"usage":null,"usage":{"total_tokens":99999999999}}"#,
                Some(u32::MAX),
            ),
            (r#"{"usage":{"total_tokens":1"#, None),
            ("", None),
            ("not json at all, {\"usage\":", None),
            (
                r#"{"a":[[],[1,2],{}],"usage":{"total_tokens":10}}"#,
                Some(10),
            ),
        ] {
            for piece in [1, 2, 7, 1_000] {
                assert_eq!(found("usage.total_tokens", text, piece), units, "{text}");
            }
        }
        assert_eq!(found("n", "{\"n\":1}\n{\"n\":2}\n{\"m\":3}", 3), Some(2));
    }

    #[test]
    fn the_last_event_that_has_it_counts() {
        let stream = ": hello\r\n\r\ndata: {\"usage\":null}\r\n\r\nevent: x\r\ndata:{\"usage\":\r\ndata: {\"n\":3}}\r\n\r\n\
            data: {\"usage\":{\"n\":5}}\n\ndata: {\"broken\n\ndatum: {\"usage\":{\"n\":9}}\n\ndata: [DONE]\n\n";
        for piece in 1..40 {
            let mut events = Events::with(Member::at(&names("usage.n")));
            for piece in stream.as_bytes().chunks(piece) {
                events.read(piece);
            }
            assert_eq!(events.found(), Some(5), "{piece}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<u32>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[ab\"\\\\{]{0,2}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_parser_finds_the_same(value in any_json(), piece in 1_usize..20, pretty: bool) {
            let value = json!({ "a": value.clone(), "b": value });
            let text = if pretty { format!("{value:#}") } else { value.to_string() };
            for path in ["a", "a.a", "a.b", "b.a.b", "b.b"] {
                let mut at = Some(&value);
                for name in path.split('.') {
                    at = at.and_then(|at| at.as_object()?.get(name));
                }
                let wanted = at.and_then(Value::as_u64).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
                prop_assert_eq!(found(path, &text, piece), wanted, "{} in {}", path, text);
            }
        }

        #[test]
        fn no_bytes_are_too_much(bytes: Vec<u8>) {
            let mut events = Events::with(Member::at(&names("a.b")));
            events.read(&bytes);
            let mut member = Member::at(&names("a.b"));
            member.read(&bytes);
            member.read(&vec![b'['; 5_000]);
        }
    }
}

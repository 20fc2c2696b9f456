//! Finds one number in JSON that passes by, in pieces of any size and with a few bytes of its own: the texts are read once
//! and never kept. What is no JSON has no number; it is not held against the response.

use std::sync::Arc;

/// Deeper nesting is not followed: nothing is known of what stands behind it.
const DEEPEST: usize = 256;

/// Looks for a member.
#[derive(Debug)]
pub(super) struct JsonProbe {
    /// The names that lead to it, from the outermost object on.
    names: Arc<[Box<str>]>,
    /// Open containers, outermost first: is it an object?
    open: Vec<bool>,
    /// How many of them, from the outermost on, are objects on the way there.
    on_way: usize,
    /// The value to come is the next on the way.
    is_next: bool,
    state: ProbeState,
    found: Option<u32>,
    /// It was there, and was no whole number.
    odd: bool,
    /// The first half of a character in a name that was written as two.
    half: Option<u32>,
    /// Texts are lines: what a broken one leaves open ends with it.
    lines: bool,
    /// Nothing can be made of the rest of the text.
    lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeState {
    /// A value is to come.
    Value,
    /// A name is to come, or the end of the object.
    Name,
    /// In a name: how much of it is as wanted, if it still may be.
    InName {
        same: Option<usize>,
        escape: Escape,
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

/// Where in a name an escape is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    Out,
    Begun,
    /// In the digits of `\u`: so many are to come.
    Digits {
        left: u8,
        value: u32,
    },
}

impl JsonProbe {
    /// The member at the end of `names`.
    #[must_use]
    pub(super) fn at(names: &Arc<[Box<str>]>) -> Self {
        Self {
            names: Arc::clone(names),
            open: Vec::new(),
            on_way: 0,
            is_next: false,
            state: ProbeState::Value,
            found: None,
            odd: false,
            half: None,
            lines: false,
            lost: false,
        }
    }

    /// The same in lines, each a text of its own.
    #[must_use]
    pub(super) fn in_lines(self) -> Self {
        Self {
            lines: true,
            ..self
        }
    }

    /// Was it there, and never a whole number? `null` says nothing.
    #[must_use]
    pub(super) fn is_odd(&self) -> bool {
        self.odd && self.found.is_none()
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
        (self.state, self.lost) = (ProbeState::Value, false);
    }

    /// Reads on.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if !self.lost {
                self.state = self.step(*byte);
            }
            if self.lines && *byte == b'\n' {
                self.restart();
            } else if self.lost && !self.lines {
                return;
            }
        }
    }

    fn step(&mut self, byte: u8) -> ProbeState {
        match self.state {
            ProbeState::InName { same, escape } => self.in_name(byte, same, escape),
            ProbeState::InText { escaped: true } => ProbeState::InText { escaped: false },
            ProbeState::InText { escaped: false } => match byte {
                b'"' => ProbeState::After,
                b'\\' => ProbeState::InText { escaped: true },
                _ => self.state,
            },
            ProbeState::InNumber(number) => match byte {
                b'0'..=b'9' => ProbeState::InNumber(number.map(|number| {
                    let digit = u32::from(byte - b'0');
                    number.saturating_mul(10).saturating_add(digit)
                })),
                b'.' | b'e' | b'E' | b'+' | b'-' => ProbeState::InNumber(None),
                _ => {
                    self.found = number.or(self.found);
                    self.odd |= number.is_none();
                    self.after(byte)
                }
            },
            ProbeState::Plain => match byte {
                b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' => self.after(byte),
                _ => ProbeState::Plain,
            },
            _ if byte.is_ascii_whitespace() => self.state,
            // A byte order mark.
            ProbeState::Value if self.open.is_empty() && matches!(byte, 0xEF | 0xBB | 0xBF) => {
                self.state
            }
            ProbeState::Value => self.value(byte),
            ProbeState::Name => match byte {
                b'"' => {
                    let is_on_way = self.open.len() == self.on_way;
                    self.half = None;
                    ProbeState::InName {
                        same: is_on_way.then_some(0),
                        escape: Escape::Out,
                    }
                }
                _ => self.after(byte),
            },
            ProbeState::Colon => ProbeState::Value,
            ProbeState::After => self.after(byte),
        }
    }

    fn in_name(&mut self, byte: u8, same: Option<usize>, escape: Escape) -> ProbeState {
        let stays = |escape| ProbeState::InName { same, escape };
        let code = match (escape, byte) {
            (Escape::Out, b'"') => {
                let wanted = self.names.get(self.on_way.saturating_sub(1));
                self.is_next = self.half.is_none() && same == wanted.map(|name| name.len());
                return ProbeState::Colon;
            }
            (Escape::Out, b'\\') => return stays(Escape::Begun),
            (Escape::Out, byte) => return self.named(same, &[byte]),
            (Escape::Begun, b'u') => return stays(Escape::Digits { left: 4, value: 0 }),
            (Escape::Begun, byte) => u32::from(match byte {
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                other => other,
            }),
            (Escape::Digits { left, value }, byte) => {
                let Some(digit) = char::from(byte).to_digit(16) else {
                    return self.named(None, &[]);
                };
                let value = value * 16 + digit;
                if left > 1 {
                    let left = left - 1;
                    return stays(Escape::Digits { left, value });
                }
                value
            }
        };
        // Characters beyond the first 65536 are written as two.
        let code = match (self.half.take(), code) {
            (None, 0xD800..=0xDBFF) => {
                self.half = Some(code);
                return stays(Escape::Out);
            }
            (Some(half), 0xDC00..=0xDFFF) => 0x10000 + (half - 0xD800) * 0x400 + (code - 0xDC00),
            (Some(_), _) => return self.named(None, &[]),
            (None, code) => code,
        };
        let mut buffer = [0; 4];
        match char::from_u32(code) {
            Some(character) => self.named(same, character.encode_utf8(&mut buffer).as_bytes()),
            None => self.named(None, &[]),
        }
    }

    /// So much more of a name, as it is.
    fn named(&mut self, same: Option<usize>, bytes: &[u8]) -> ProbeState {
        let wanted = self.names.get(self.on_way.saturating_sub(1));
        let same = same.filter(|_| self.half.take().is_none()).and_then(|at| {
            let rest = wanted?.as_bytes().get(at..)?;
            rest.starts_with(bytes).then_some(at + bytes.len())
        });
        ProbeState::InName {
            same,
            escape: Escape::Out,
        }
    }

    fn value(&mut self, byte: u8) -> ProbeState {
        let is_next = std::mem::take(&mut self.is_next);
        let is_last = is_next && self.on_way == self.names.len();
        self.odd |= is_last && !matches!(byte, b'0'..=b'9' | b'n');
        match byte {
            b'{' | b'[' => {
                if self.open.len() == DEEPEST {
                    self.lost = true;
                    return ProbeState::Plain;
                }
                let is_object = byte == b'{';
                let is_root = self.open.is_empty();
                self.open.push(is_object);
                if is_object && (is_root || (is_next && !is_last)) {
                    self.on_way += 1;
                }
                if is_object {
                    ProbeState::Name
                } else {
                    ProbeState::Value
                }
            }
            b'"' => ProbeState::InText { escaped: false },
            b'0'..=b'9' if is_last => ProbeState::InNumber(Some(u32::from(byte - b'0'))),
            // An empty list ends here.
            b']' => self.after(byte),
            _ => ProbeState::Plain,
        }
    }

    fn after(&mut self, byte: u8) -> ProbeState {
        match byte {
            b'}' | b']' => {
                if self.open.len() == self.on_way {
                    self.on_way = self.on_way.saturating_sub(1);
                }
                self.open.pop();
                ProbeState::After
            }
            b',' if self.open.last() == Some(&true) => ProbeState::Name,
            b',' => ProbeState::Value,
            _ if byte.is_ascii_whitespace() => ProbeState::After,
            // One text after another.
            _ if self.open.is_empty() => self.value(byte),
            _ => {
                self.lost = true;
                ProbeState::Plain
            }
        }
    }
}

/// Looks for a member in each event of a stream of them; the last that has it counts.
#[derive(Debug)]
pub(super) struct EventProbe {
    member: JsonProbe,
    line: EventLine,
    /// The line before ended with a carriage return, of which a line feed may be part.
    returned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventLine {
    /// So much of it is as `data:` begins.
    Begin(usize),
    Data,
    Other,
}

const DATA: &[u8] = b"data:";

impl EventProbe {
    /// Of events with this member.
    #[must_use]
    pub(super) fn with(member: JsonProbe) -> Self {
        Self {
            member,
            line: EventLine::Begin(0),
            returned: false,
        }
    }

    /// What has been found in them.
    #[must_use]
    pub(super) fn member(&self) -> &JsonProbe {
        &self.member
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
                        EventLine::Begin(0) => self.member.restart(),
                        EventLine::Data => self.member.read(b"\n"),
                        EventLine::Begin(_) | EventLine::Other => {}
                    }
                    EventLine::Begin(0)
                }
                (byte, EventLine::Begin(at)) if DATA[at] == byte => match at + 1 {
                    at if at == DATA.len() => EventLine::Data,
                    at => EventLine::Begin(at),
                },
                (_, EventLine::Begin(_) | EventLine::Other) => EventLine::Other,
                (byte, EventLine::Data) => {
                    self.member.read(&[byte]);
                    EventLine::Data
                }
            };
        }
    }
}

#[cfg(test)]
mod tests;

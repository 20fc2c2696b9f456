//! Finds one number in JSON that passes through, in pieces of any size and with a few bytes of memory: the texts are
//! read once and never kept. A text that is not JSON has no number, which is no fault of the response.

use std::sync::Arc;

/// The deepest nesting that is followed; a text after deeper nesting is ignored.
const DEEPEST: usize = 256;

/// The most bytes of one name's byte: an escape.
const LONGEST_SPELLING: usize = 6;

/// The search for one member.
#[derive(Debug, Default)]
pub(in crate::proxy) struct JsonProbe {
    /// The names that lead to the member, from the outermost object on.
    names: Arc<[Box<str>]>,
    /// Open containers, outermost first; true for an object.
    open: Vec<bool>,
    /// The number of open containers, counted from the outermost, that are objects on the path to the member.
    on_way: usize,
    /// The next value is on the path to the member.
    is_next: bool,
    state: ProbeState,
    found: Option<u32>,
    /// The member was present, and its value was not a whole number.
    odd: bool,
    /// The name that is being read, in its spelling, if it may be the next on the path.
    name: Vec<u8>,
    /// Each line is a text: containers that a broken line leaves open end with it.
    lines: bool,
    /// The rest of the text cannot be read.
    lost: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ProbeState {
    /// A value is expected.
    #[default]
    Value,
    /// A name is expected, or the end of the object.
    Name,
    InName {
        escaped: bool,
    },
    Colon,
    InText {
        escaped: bool,
    },
    /// In the number of the member.
    InNumber(Option<u32>),
    /// In any other number, or a word.
    Plain,
    /// A value is complete.
    After,
}

impl JsonProbe {
    /// The member at the end of `names`.
    #[must_use]
    pub(in crate::proxy) fn at(names: &Arc<[Box<str>]>) -> Self {
        Self {
            names: Arc::clone(names),
            ..Self::default()
        }
    }

    /// Reads lines, each as a separate text.
    #[must_use]
    pub(in crate::proxy) fn in_lines(self) -> Self {
        Self {
            lines: true,
            ..self
        }
    }

    /// Was the member present, and never a whole number? `null` counts as absent.
    #[must_use]
    pub(in crate::proxy) fn is_odd(&self) -> bool {
        self.odd && self.found.is_none()
    }

    /// The last number that was found.
    #[must_use]
    pub(in crate::proxy) fn found(&self) -> Option<u32> {
        self.found
    }

    /// Starts another text; the number found so far stays.
    pub(in crate::proxy) fn restart(&mut self) {
        self.open.clear();
        (self.on_way, self.is_next) = (0, false);
        (self.state, self.lost) = (ProbeState::Value, false);
    }

    /// Reads the next bytes.
    pub(in crate::proxy) fn read(&mut self, bytes: &[u8]) {
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
            ProbeState::InName { escaped } => self.in_name(byte, escaped),
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
            // The byte belongs to a byte order mark.
            ProbeState::Value if self.open.is_empty() && matches!(byte, 0xEF | 0xBB | 0xBF) => {
                self.state
            }
            ProbeState::Value => self.value(byte),
            ProbeState::Name => match byte {
                b'"' => {
                    self.name.clear();
                    ProbeState::InName { escaped: false }
                }
                _ => self.after(byte),
            },
            ProbeState::Colon => ProbeState::Value,
            ProbeState::After => self.after(byte),
        }
    }

    fn in_name(&mut self, byte: u8, escaped: bool) -> ProbeState {
        let wanted = self.wanted();
        if byte == b'"' && !escaped {
            self.is_next = wanted.is_some_and(|wanted| is_spelling(&self.name, wanted));
            return ProbeState::Colon;
        }
        if wanted.is_some_and(|wanted| self.name.len() <= wanted.len() * LONGEST_SPELLING) {
            self.name.push(byte);
        }
        ProbeState::InName {
            escaped: byte == b'\\' && !escaped,
        }
    }

    /// The next name on the path in the innermost open container, if that container is on the path.
    fn wanted(&self) -> Option<&str> {
        let is_on_way = self.open.len() == self.on_way;
        let wanted = self.names.get(self.on_way.checked_sub(1)?);
        wanted.filter(|_| is_on_way).map(|name| &**name)
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
            // Another text follows directly.
            _ if self.open.is_empty() => self.value(byte),
            _ => {
                self.lost = true;
                ProbeState::Plain
            }
        }
    }
}

/// Do these bytes between quotes represent `wanted`?
fn is_spelling(written: &[u8], wanted: &str) -> bool {
    if !written.contains(&b'\\') {
        return written == wanted.as_bytes();
    }
    let quoted = [b"\"", written, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).is_ok_and(|read| read == wanted)
}

/// Looks for a member in each event of an event stream; the last event with the member counts.
#[derive(Debug)]
pub(in crate::proxy) struct EventProbe {
    member: JsonProbe,
    line: EventLine,
    /// The previous line ended with a carriage return; a line feed that follows belongs to that end.
    returned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventLine {
    /// The line so far equals this many of the first bytes of `data:`.
    Begin(usize),
    Data,
    Other,
}

const DATA: &[u8] = b"data:";

impl EventProbe {
    /// A probe for `member` in events.
    #[must_use]
    pub(in crate::proxy) fn with(member: JsonProbe) -> Self {
        Self {
            member,
            line: EventLine::Begin(0),
            returned: false,
        }
    }

    /// The probe of the member, with its result.
    #[must_use]
    pub(in crate::proxy) fn member(&self) -> &JsonProbe {
        &self.member
    }

    /// Reads the next bytes.
    pub(in crate::proxy) fn read(&mut self, bytes: &[u8]) {
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

//! Reads the events of an event stream (HTML Living Standard, section 9.2), each as a text of its own.

use super::JsonProbe;

/// The field of a line of data.
const DATA: &[u8] = b"data:";

/// Looks for members in each event of an event stream; the last event with a member counts for it.
#[derive(Debug)]
pub(in crate::proxy) struct EventProbe {
    members: JsonProbe,
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

impl EventProbe {
    /// A probe for `members` in events.
    #[must_use]
    pub(in crate::proxy) fn with(members: JsonProbe) -> Self {
        Self {
            members,
            line: EventLine::Begin(0),
            returned: false,
        }
    }

    /// The probe of the members, with its result.
    #[must_use]
    pub(in crate::proxy) fn members(&self) -> &JsonProbe {
        &self.members
    }

    /// Reads the next bytes.
    pub(in crate::proxy) fn read(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(byte) = rest.first().copied() {
            // All of a line is read, or passed over, in one step.
            let length = match self.line {
                EventLine::Data | EventLine::Other => {
                    memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len())
                }
                EventLine::Begin(_) => 0,
            };
            if length == 0 {
                self.step(byte);
                rest = &rest[1..];
                continue;
            }
            let (line, behind) = rest.split_at(length);
            if self.line == EventLine::Data {
                self.members.read(line);
            }
            (self.returned, rest) = (false, behind);
        }
    }

    fn step(&mut self, byte: u8) {
        let was_returned = std::mem::take(&mut self.returned);
        self.line = match (byte, self.line) {
            (b'\n', _) if was_returned => self.line,
            (b'\n' | b'\r', line) => {
                self.returned = byte == b'\r';
                match line {
                    // An empty line ends an event.
                    EventLine::Begin(0) => self.members.restart(),
                    EventLine::Data => self.members.read(b"\n"),
                    EventLine::Begin(_) | EventLine::Other => {}
                }
                EventLine::Begin(0)
            }
            (byte, EventLine::Begin(at)) if DATA[at] == byte => match at + 1 {
                at if at == DATA.len() => EventLine::Data,
                at => EventLine::Begin(at),
            },
            (_, EventLine::Begin(_)) => EventLine::Other,
            (_, line) => line,
        };
    }
}

//! Finds numbers in JSON that passes through, in pieces of any size. The texts are read once and never kept: the search
//! holds at most 4 KiB, for a name, the open containers and a number for each place. A text that is not JSON has no
//! number, which is no fault of the response.

mod events;
mod number;

pub(in crate::proxy) use events::EventProbe;

use crate::key::{JsonCost, JsonNumber, ROOT};
use number::{NumberReader, Part};
use std::sync::Arc;

/// The deepest nesting that is followed; a text after deeper nesting is ignored.
const DEEPEST: usize = 256;

/// The most bytes of one name's byte: an escape.
const LONGEST_SPELLING: usize = 6;

/// The search for the members of a cost.
#[derive(Debug)]
pub(in crate::proxy) struct JsonProbe {
    cost: Arc<JsonCost>,
    /// Open containers, outermost first; true for an object.
    open: Vec<bool>,
    /// The steps to members that the open objects have made, counted from the outermost object.
    way: Vec<u16>,
    /// The step that leads to the next value, if it is on the way to a member.
    next: Option<u16>,
    /// The text is an array, and each of its elements is looked at as a text.
    is_array: bool,
    state: ProbeState,
    /// The last number of each place.
    found: Box<[Option<JsonNumber>]>,
    /// The place of the number that is being read.
    place: u16,
    /// A member was present, and its value was not a number.
    odd: bool,
    /// The name that is being read, in its spelling, if it may be the next on the way.
    name: Vec<u8>,
    /// The most bytes of the name that are kept.
    most: usize,
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
    /// In the number of a member.
    InNumber(NumberReader),
    /// In any other number, or a word.
    Plain,
    /// A value is complete.
    After,
}

impl JsonProbe {
    /// A search for the members of `cost`.
    #[must_use]
    pub(in crate::proxy) fn of(cost: &Arc<JsonCost>) -> Self {
        Self {
            cost: Arc::clone(cost),
            open: Vec::new(),
            way: Vec::new(),
            next: None,
            is_array: false,
            state: ProbeState::Value,
            found: vec![None; cost.count_places()].into(),
            place: 0,
            odd: false,
            name: Vec::new(),
            most: 0,
            lines: false,
            lost: false,
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

    /// Was a member present, and its value not a number? `null` counts as absent.
    #[must_use]
    pub(in crate::proxy) fn is_odd(&self) -> bool {
        self.odd
    }

    /// The cost by the last number of each member.
    #[must_use]
    pub(in crate::proxy) fn units(&self) -> Option<u64> {
        self.cost.of(&self.found)
    }

    /// Have all members that add to the cost a number?
    #[must_use]
    pub(in crate::proxy) fn is_complete(&self) -> bool {
        self.cost.is_complete(&self.found)
    }

    /// Starts another text; the numbers found so far stay.
    pub(in crate::proxy) fn restart(&mut self) {
        self.open.clear();
        self.way.clear();
        (self.next, self.is_array) = (None, false);
        (self.state, self.lost) = (ProbeState::Value, false);
    }

    /// Reads the next bytes.
    pub(in crate::proxy) fn read(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((byte, behind)) = rest.split_first() {
            if self.lost && !self.lines {
                return;
            }
            rest = behind;
            if !self.lost {
                self.state = self.step(*byte);
            }
            if self.lines && *byte == b'\n' {
                self.restart();
            } else if self.lost || self.state == (ProbeState::InText { escaped: false }) {
                // Most of a body is texts.
                let end = memchr::memchr3(b'"', b'\\', b'\n', rest).unwrap_or(rest.len());
                rest = &rest[end..];
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
            ProbeState::InNumber(number) => match number.read(byte) {
                Part::Digit(number) => ProbeState::InNumber(number),
                Part::End(number) => {
                    self.odd |= number.is_none();
                    if let Some(found) = self.found.get_mut(usize::from(self.place)) {
                        *found = number.or(*found);
                    }
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
                b'"' => self.begin_name(),
                _ => self.after(byte),
            },
            ProbeState::Colon => ProbeState::Value,
            ProbeState::After => self.after(byte),
        }
    }

    /// A name begins. It is kept up to one byte more than any spelling of a wanted name has.
    fn begin_name(&mut self) -> ProbeState {
        let names = self.innermost().into_iter();
        let names = names.flat_map(|step| self.cost.names(step));
        let longest = names.map(|(name, _)| name.len()).max();
        self.most = longest.map_or(0, |longest| longest * LONGEST_SPELLING + 1);
        self.name.clear();
        ProbeState::InName { escaped: false }
    }

    fn in_name(&mut self, byte: u8, escaped: bool) -> ProbeState {
        if byte == b'"' && !escaped {
            let step = self.innermost();
            let mut names = step.into_iter().flat_map(|step| self.cost.names(step));
            let next = names.find(|(name, _)| is_spelling(&self.name, name));
            self.next = next.map(|(_, step)| step);
            return ProbeState::Colon;
        }
        if self.name.len() < self.most {
            self.name.push(byte);
        }
        ProbeState::InName {
            escaped: byte == b'\\' && !escaped,
        }
    }

    /// The step of the innermost open container, if it is an object on the way to a member.
    fn innermost(&self) -> Option<u16> {
        let is_on_way = self.open.len() == self.way.len() + usize::from(self.is_array);
        self.way.last().copied().filter(|_| is_on_way)
    }

    fn value(&mut self, byte: u8) -> ProbeState {
        let next = self.next.take();
        let place = next.and_then(|step| self.cost.place(step));
        match byte {
            b'{' | b'[' => {
                let leads_further = |step: u16| self.cost.names(step).next().is_some();
                let leads_further = byte == b'{' && next.is_some_and(leads_further);
                self.odd |= place.is_some() && !leads_further;
                self.begin_container(byte == b'{', next)
            }
            b'0'..=b'9' => match place {
                Some(place) => {
                    self.place = place;
                    ProbeState::InNumber(NumberReader::starting(byte))
                }
                None => ProbeState::Plain,
            },
            b'"' => {
                self.odd |= place.is_some();
                ProbeState::InText { escaped: false }
            }
            // An empty list ends here.
            b']' => self.after(byte),
            // `null` says nothing.
            _ => {
                self.odd |= place.is_some() && byte != b'n';
                ProbeState::Plain
            }
        }
    }

    fn begin_container(&mut self, is_object: bool, next: Option<u16>) -> ProbeState {
        if self.open.len() == DEEPEST {
            self.lost = true;
            return ProbeState::Plain;
        }
        let is_text = self.open.len() == usize::from(self.is_array);
        if self.open.is_empty() {
            self.is_array = !is_object;
        }
        self.open.push(is_object);
        if !is_object {
            return ProbeState::Value;
        }
        self.way.extend(if is_text { Some(ROOT) } else { next });
        ProbeState::Name
    }

    fn after(&mut self, byte: u8) -> ProbeState {
        match byte {
            b'}' | b']' => {
                if self.innermost().is_some() {
                    self.way.pop();
                }
                self.open.pop();
                self.is_array &= !self.open.is_empty();
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

#[cfg(test)]
mod recipes;
#[cfg(test)]
mod tests;

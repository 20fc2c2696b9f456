//! The common layout of a trace's lines: most lines have the same members in the same order, with the same spelling.
//! The bytes between two values are therefore compared with the last line's as a whole, rather than parsed.

use super::members::MemberReader;

/// The most members of a line that are remembered; an access log has half as many.
const MOST: usize = 64;

/// The longest prefix that is remembered; longer ones are read each time.
const LONGEST: usize = 32;

/// The prefixes of the values in the last lines.
#[derive(Debug, Default)]
pub(super) struct LineLayout {
    /// The prefix of each value; `None` if it was too long.
    prefixes: Vec<Option<MemberPrefix>>,
}

/// The text before a value, starting at the end of the previous value: a comma, a name, a colon, blanks.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemberPrefix {
    /// The bytes of the prefix; zero from `length` on.
    text: [u8; LONGEST],
    /// All ones for each byte of the prefix, zero from `length` on.
    mask: [u8; LONGEST],
    pub(super) length: usize,
    /// The reader of the member; `None` if no request needs the member.
    pub(super) member: Option<&'static MemberReader>,
}

impl LineLayout {
    /// The remembered prefix before the `index`-th value, if `rest` begins with it. `rest` is the line after the
    /// previous value. Between two values the same bytes always mean the same member.
    #[inline]
    pub(super) fn next(&self, index: usize, rest: &[u8]) -> Option<&MemberPrefix> {
        let start = self.prefixes.get(index)?.as_ref()?;
        start.begins(rest).then_some(start)
    }

    /// Remembers that `start` precedes the `index`-th value and means `member`. `start` has been read and is valid.
    pub(super) fn learn(
        &mut self,
        index: usize,
        start: &[u8],
        member: Option<&'static MemberReader>,
    ) {
        if index >= MOST || start.len() > LONGEST {
            return;
        }
        if self.prefixes.len() <= index {
            self.prefixes.resize(index + 1, None);
        }
        let length = start.len();
        let mut learnt = MemberPrefix {
            text: [0; LONGEST],
            mask: [0; LONGEST],
            length,
            member,
        };
        learnt.text[..length].copy_from_slice(start);
        learnt.mask[..length].fill(0xff);
        self.prefixes[index] = Some(learnt);
    }
}

impl MemberPrefix {
    #[inline]
    fn begins(&self, rest: &[u8]) -> bool {
        let Some(chunk) = rest.first_chunk::<LONGEST>() else {
            return rest.starts_with(&self.text[..self.length]);
        };
        // The words are compared at full length: a comparison by `length` is a call and a loop.
        let word = |bytes: &[u8; LONGEST], at: usize| {
            let word = bytes[at..].first_chunk().copied();
            u64::from_le_bytes(word.unwrap_or_default())
        };
        let differs = |at| (word(chunk, at) ^ word(&self.text, at)) & word(&self.mask, at);
        differs(0) | differs(8) | differs(16) | differs(24) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::line::members::find;

    #[test]
    fn what_was_learnt_is_known_again_and_nothing_else() {
        let mut layout = LineLayout::default();
        let named = |layout: &LineLayout, index, rest: &[u8]| {
            let prefix = layout.next(index, rest)?;
            Some((prefix.member?.name, prefix.length))
        };
        let long = b", \"a member with a name of thirty two or more\": ";
        assert_eq!(named(&layout, 0, b"{\"ts\":1}"), None);
        layout.learn(1, b",\"client\":", find("client"));
        layout.learn(3, long, find("other"));
        layout.learn(MOST, b",\"path\":", find("path"));
        for behind in ["", "\"1.2.3.4\"}", &"x".repeat(40)] {
            let line = format!(",\"client\":{behind}");
            assert_eq!(
                named(&layout, 1, line.as_bytes()),
                Some(("client", 10)),
                "{line}"
            );
            for other in [0, 2, 3, 4, MOST] {
                assert_eq!(
                    named(&layout, other, line.as_bytes()),
                    None,
                    "{line} {other}"
                );
            }
            for at in 0..10 {
                let mut odd = line.clone().into_bytes();
                odd[at] ^= 1;
                assert_eq!(named(&layout, 1, &odd), None, "{line} {at}");
                assert_eq!(named(&layout, 1, &line.as_bytes()[..at]), None);
            }
        }
        layout.learn(1, b",\"path\": ", find("path"));
        assert_eq!(named(&layout, 1, b",\"client\":1"), None);
        assert_eq!(named(&layout, 1, b",\"path\": 1"), Some(("path", 9)));
    }
}

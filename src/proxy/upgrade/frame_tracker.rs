//! The frames of a WebSocket in one direction (RFC 6455, section 5.2), followed without being kept: the end of each,
//! and whether the closing one has passed.

/// The opcode of the closing frame.
const CLOSE: u8 = 0x8;
/// The longest head of a frame: two bytes, a length of eight, a mask of four.
const LONGEST_HEAD: usize = 14;
/// The longest content of a control frame.
const MOST_CONTROL: u64 = 125;
/// `going away` (RFC 6455, section 7.4.1), as the content of a closing frame.
const GOING_AWAY: [u8; 2] = 1001_u16.to_be_bytes();

/// The closing frame with `going away` in a server's form: unmasked.
#[must_use]
pub(super) fn going_away() -> Vec<u8> {
    [&[0x80 | CLOSE, 2], &GOING_AWAY[..]].concat()
}

/// The same in a client's form: masked.
#[must_use]
pub(super) fn going_away_masked() -> Vec<u8> {
    let mask = fastrand::u32(..).to_be_bytes();
    let content = [GOING_AWAY[0] ^ mask[0], GOING_AWAY[1] ^ mask[1]];
    [&[0x80 | CLOSE, 0x80 | 2], &mask[..], &content[..]].concat()
}

/// Follows the frames of one direction.
#[derive(Debug)]
pub(super) struct FrameTracker {
    place: FramePosition,
    /// The current frame is the closing one.
    is_closing: bool,
    /// The closing frame has passed.
    is_closed: bool,
}

#[derive(Debug)]
enum FramePosition {
    /// In a head, of which these bytes have passed. Zero bytes mean a frame boundary.
    Head {
        bytes: [u8; LONGEST_HEAD],
        count: usize,
    },
    /// This number of bytes of the frame is left.
    Content(u64),
    /// The bytes are not frames of RFC 6455: the frame boundaries are unknown.
    Lost,
}

impl FrameTracker {
    /// A tracker at the boundary before the first frame.
    pub(super) fn new() -> Self {
        Self {
            place: FramePosition::BORDER,
            is_closing: false,
            is_closed: false,
        }
    }

    /// Has the closing frame passed?
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Is the position after the passed bytes a boundary between two frames?
    pub(super) fn is_at_border(&self) -> bool {
        matches!(self.place, FramePosition::Head { count: 0, .. })
    }

    /// Passes `bytes`.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let passed = self.pass_frame(bytes);
            bytes = &bytes[passed..];
        }
    }

    /// Passes `bytes` up to the next boundary, or all of them. Returns their number.
    pub(super) fn pass_frame(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            match &mut self.place {
                FramePosition::Lost => return bytes.len(),
                FramePosition::Content(left) => {
                    let here = (bytes.len() - at) as u64;
                    let passed = here.min(*left);
                    *left -= passed;
                    // It is at most the length of the bytes.
                    at += passed as usize;
                }
                FramePosition::Head { bytes: head, count } => {
                    head[*count] = bytes[at];
                    *count += 1;
                    at += 1;
                    if let Some(next) = FramePosition::behind(&head[..*count]) {
                        self.is_closing = head[0] & 0x0F == CLOSE;
                        self.place = next;
                    }
                }
            }
            if matches!(self.place, FramePosition::Content(0)) {
                self.is_closed |= self.is_closing;
                self.place = FramePosition::BORDER;
                return at;
            }
        }
        at
    }
}

impl FramePosition {
    const BORDER: Self = Self::Head {
        bytes: [0; LONGEST_HEAD],
        count: 0,
    };

    /// The position after `head`, if that is complete.
    fn behind(head: &[u8]) -> Option<Self> {
        let (first, second) = (*head.first()?, *head.get(1)?);
        let (opcode, is_last) = (first & 0x0F, first & 0x80 != 0);
        // Compression uses the first of the three reserved bits (RFC 7692); the others are unused.
        let is_unknown = first & 0x30 != 0 || matches!(opcode, 0x3..=0x7 | 0xB..);
        let short = u64::from(second & 0x7F);
        let is_bad_control = opcode >= CLOSE && (!is_last || short > MOST_CONTROL);
        if is_unknown || is_bad_control {
            return Some(Self::Lost);
        }
        let size = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if second & 0x80 != 0 { 4 } else { 0 };
        if head.len() < 2 + size + mask {
            return None;
        }
        let long = head[2..2 + size].iter();
        let length = match size {
            0 => short,
            _ => long.fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        // The highest bit of a length is 0.
        Some(if length >> 63 == 0 {
            Self::Content(length)
        } else {
            Self::Lost
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame with this opcode and this length of content.
    fn frame(opcode: u8, length: usize, is_masked: bool) -> Vec<u8> {
        let mask = if is_masked { 0x80 } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match length {
            ..=125 => frame.push(mask | length as u8),
            126..=0xFFFF => {
                frame.push(mask | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        if is_masked {
            frame.extend([1, 2, 3, 4]);
        }
        frame.extend(vec![0x88; length]);
        frame
    }

    proptest! {
        #[test]
        fn borders_are_found_however_the_bytes_are_cut(
            frames in proptest::collection::vec((0usize..3, any::<bool>(), 0usize..70_000), 1..6),
            cuts in proptest::collection::vec(1usize..40_000, 1..20),
        ) {
            let frames: Vec<_> = frames
                .iter()
                .map(|(kind, masked, length)| {
                    let opcode = [1, 2, 9][*kind];
                    frame(opcode, if opcode == 9 { length % 126 } else { *length }, *masked)
                })
                .collect();
            let borders: Vec<_> = frames
                .iter()
                .scan(0, |at, frame| {
                    *at += frame.len();
                    Some(*at)
                })
                .collect();
            let all = frames.concat();
            let (mut tracker, mut found, mut at) = (FrameTracker::new(), vec![], 0);
            for cut in cuts.iter().cycle() {
                let end = all.len().min(at + cut);
                while at < end {
                    at += tracker.pass_frame(&all[at..end]);
                    if tracker.is_at_border() {
                        found.push(at);
                    }
                }
                if at == all.len() {
                    break;
                }
            }
            prop_assert_eq!(found, borders);
            prop_assert!(!tracker.is_closed());
        }

        #[test]
        fn any_bytes_pass(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut tracker = FrameTracker::new();
            tracker.pass(&bytes);
        }
    }

    #[test]
    fn the_closing_frame_is_noticed_when_it_is_whole() {
        for closing in [going_away(), going_away_masked(), frame(8, 125, true)] {
            let mut tracker = FrameTracker::new();
            tracker.pass(&frame(1, 300, false));
            for byte in &closing {
                assert!(!tracker.is_closed());
                tracker.pass(&[*byte]);
            }
            assert!(tracker.is_closed() && tracker.is_at_border());
        }
        assert_eq!(going_away(), [0x88, 2, 0x03, 0xE9]);
        let masked = going_away_masked();
        let (mask, content) = (&masked[2..6], &masked[6..]);
        let bare = [content[0] ^ mask[0], content[1] ^ mask[1]];
        assert_eq!((bare, &masked[..2]), ([0x03, 0xE9], &[0x88, 0x82][..]));
    }

    #[test]
    fn bytes_that_are_no_frames_have_no_border() {
        let odd: [&[u8]; 6] = [
            b"echo\r\n",
            b"\x83\x00",
            b"\xA1\x00",
            b"\x08\x00",
            b"\x88\x7E\x00",
            &[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0],
        ];
        for odd in odd {
            let mut tracker = FrameTracker::new();
            tracker.pass(odd);
            tracker.pass(&[0; 300]);
            assert!(!tracker.is_at_border() && !tracker.is_closed(), "{odd:?}");
        }
    }
}

//! Follows the frames of an HTTP/2 connection in the bytes that h2 reads, to detect an incomplete head: h2 does not
//! report a head before it is complete (RFC 9113, section 4.3). Bytes that are not HTTP/2 are left for h2 to refuse.

/// The beginning of every HTTP/2 connection (RFC 9113, section 3.4).
pub(in crate::listen) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of each frame's header (RFC 9113, section 4.1).
const FRONT: usize = 9;
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PUSH_PROMISE: u8 = 0x5;
const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;
/// Bytes of an answer to PING, the longer of the two answers (RFC 9113, section 6.7).
pub(in crate::listen) const ANSWER: u64 = 17;
/// Bytes of the shortest frame with content.
const LEAST: u64 = FRONT as u64 + 1;
/// Control frames after which other tasks have their turn.
const AT_ONCE: u64 = 1024;
/// Bytes of a frame without effect that count as one further such frame.
const BULK: u32 = 256;

/// The position in the bytes of one connection.
#[derive(Debug, Default)]
pub(super) struct H2FrameTracker {
    /// Bytes of the present frame, or of the preface, that are left to skip.
    left: u32,
    /// The received part of the next frame's header.
    front: [u8; FRONT],
    have: u8,
    /// A head is incomplete.
    in_head: bool,
    /// The head ends with the present frame.
    ends: bool,
    /// The latest stream that the client has begun.
    stream: u32,
    traffic: ControlTraffic,
    /// Written bytes that belong to no answer to PING or SETTINGS, at the last increment of [`ControlTraffic::times`].
    others: u64,
    /// The number of control frames at the last pause.
    paused: u64,
}

/// The control frames of a client, and the other frames that were sent to it, since the connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::listen) struct ControlTraffic {
    /// PING and SETTINGS frames from the client, nearly all of which require an answer.
    pub(in crate::listen) answers: u64,
    /// Bytes of all frames that were written.
    pub(in crate::listen) bytes: u64,
    /// The number of times that frames other than such answers were written.
    pub(in crate::listen) times: u64,
    /// The client's frames without effect: WINDOW_UPDATE, PRIORITY, PRIORITY_UPDATE and unknown kinds; a long one
    /// counts several times.
    pub(in crate::listen) idle: u64,
    /// Heads that the client has begun.
    pub(in crate::listen) heads: u64,
}

impl H2FrameTracker {
    /// A position before the preface.
    pub(in crate::listen) fn new() -> Self {
        Self {
            left: PREFACE.len() as u32,
            ..Self::default()
        }
    }

    /// Notes that `bytes` bytes have been written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        let traffic = &mut self.traffic;
        traffic.bytes += bytes as u64;
        let others = traffic.bytes.saturating_sub(traffic.answers * ANSWER);
        if others >= self.others + LEAST {
            self.others = others;
            traffic.times += 1;
        }
    }

    /// The control traffic so far.
    pub(in crate::listen) fn control_traffic(&self) -> ControlTraffic {
        self.traffic
    }

    /// Have so many control frames arrived at once that other tasks should have their turn? Returns true once.
    #[inline]
    pub(super) fn pauses(&mut self) -> bool {
        let control = self.traffic.idle + self.traffic.answers;
        let pauses = control - self.paused >= AT_ONCE;
        if pauses {
            self.paused = control;
        }
        pauses
    }

    /// The latest stream that the client has begun.
    pub(in crate::listen) fn latest_stream(&self) -> u32 {
        self.stream
    }

    /// Is a head incomplete?
    pub(in crate::listen) fn in_head(&self) -> bool {
        self.in_head
    }

    /// Follows the connection over bytes that were read from it.
    pub(in crate::listen) fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.left {
                0 => self.front(bytes),
                _ => self.pass(bytes),
            };
        }
    }

    fn front<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let have = usize::from(self.have);
        let more = bytes.len().min(FRONT - have);
        self.front[have..have + more].copy_from_slice(&bytes[..more]);
        self.have += u8::try_from(more).unwrap_or(0);
        if usize::from(self.have) == FRONT {
            self.begin();
        }
        &bytes[more..]
    }

    fn begin(&mut self) {
        self.have = 0;
        let [a, b, c, kind, flags, stream @ ..] = self.front;
        self.left = u32::from_be_bytes([0, a, b, c]);
        match kind {
            HEADERS => {
                self.stream = self.stream.max(u32::from_be_bytes(stream) & !(1 << 31));
                self.traffic.heads += 1;
            }
            PING | SETTINGS => self.traffic.answers += 1,
            // h2 has bounds of its own for these.
            DATA | RST_STREAM | PUSH_PROMISE | GOAWAY | CONTINUATION => {}
            _ => self.traffic.idle += 1 + u64::from(self.left / BULK),
        }
        if matches!(kind, HEADERS | CONTINUATION) {
            self.in_head = true;
            self.ends = flags & END_HEADERS != 0;
        }
        self.end_if_over();
    }

    fn pass<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let passed = bytes.len().min(left);
        self.left -= u32::try_from(passed).unwrap_or(self.left);
        self.end_if_over();
        &bytes[passed..]
    }

    fn end_if_over(&mut self) {
        if self.left == 0 && self.ends {
            self.in_head = false;
            self.ends = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    /// Is the position inside a head after the last byte?
    fn in_head(bytes: &[u8]) -> bool {
        let mut whole = H2FrameTracker::new();
        whole.advance(bytes);
        let mut byte_by_byte = H2FrameTracker::new();
        for byte in bytes {
            byte_by_byte.advance(&[*byte]);
        }
        assert_eq!(whole.in_head(), byte_by_byte.in_head());
        whole.in_head()
    }

    #[test]
    fn a_head_is_on_its_way_from_its_first_frame_to_the_end_of_its_last() {
        let settings = frame(4, 0, &[0; 6]);
        let (data, unended) = (frame(0, 1, b"body"), frame(HEADERS, 0, b"abc"));
        let more = frame(CONTINUATION, 0, b"");
        let last = frame(CONTINUATION, END_HEADERS, b"d");
        let whole = frame(HEADERS, END_HEADERS | 1, b"abcd");
        let sent = |frames: &[&[u8]]| [&PREFACE[..], &frames.concat()].concat();
        assert!(!in_head(&PREFACE[..]));
        assert!(!in_head(&sent(&[&settings, &whole, &data])));
        assert!(in_head(&sent(&[&whole, &unended])));
        assert!(in_head(&sent(&[&unended, &more])));
        assert!(!in_head(&sent(&[&unended, &more, &last, &data])));
        assert!(in_head(&sent(&[&settings, &whole[..whole.len() - 1]])));
        assert!(in_head(&sent(&[&unended, &last[..FRONT]])));
        // The kind of the frame is not known yet.
        assert!(!in_head(&sent(&[&whole[..3]])));
        // The flags of other frames have other meanings.
        assert!(in_head(&sent(&[&unended, &frame(0, END_HEADERS, b"x")])));
    }
}
